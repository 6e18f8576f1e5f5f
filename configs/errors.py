"""The base of every error that a user can act on, and the one way it leaves a process (standard library only)."""

from __future__ import annotations

import sys
from collections.abc import Callable

from configs.secrets import redacted

LONGEST = 300  # characters shown of an error that nothing here knows


def shortened(text: str) -> str:
    """Somebody else's error on one line, its middle left out if it is long; the whole is for a log."""
    line, half = " ".join(text.split()), LONGEST // 2
    return line if len(line) <= LONGEST else f"{line[:half]} ... {line[-half:]}"


class SpecsweepError(Exception):
    """Something a user can fix: the text says, on one line, what is wrong and what to do."""

    exit_code = 1
    """Exit code of a command that fails with it."""

    def __str__(self) -> str:
        """The text, without a secret that somebody else's error may have brought into it."""
        return redacted(super().__str__())


def leave(command: str, error: SpecsweepError, tell: Callable[[str], None] | None = None) -> int:
    """Tell the user about an error on one line, behind `command:` if there is one, and return the exit code."""
    line = f"{command}: {error}" if command else str(error)
    if tell is None:
        print(line, file=sys.stderr, flush=True)
    else:
        tell(line)
    return error.exit_code
