"""The base of every error that a user can act on, and the one way it leaves a process (standard library only)."""

from __future__ import annotations

import sys


class SpecsweepError(Exception):
    """Something a user can mend: the text says, on one line, what is wrong and what to do."""

    exit_code = 1
    """Exit code of a command that ends with it."""


def leave(command: str, error: SpecsweepError) -> int:
    """Say an error on stderr, as one line of `command`; the exit code to end with."""
    print(f"{command}: {error}", file=sys.stderr)
    return error.exit_code
