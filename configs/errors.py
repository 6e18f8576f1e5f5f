"""The base of every error that a user can act on, and the one way it leaves a process (standard library only)."""

from __future__ import annotations

import sys
from collections.abc import Callable

from configs.secrets import redacted


class SpecsweepError(Exception):
    """Something a user can fix: the text says, on one line, what is wrong and what to do."""

    exit_code = 1
    """Exit code of a command that fails with it."""

    def __str__(self) -> str:
        """The text, without a secret that somebody else's error may have brought into it."""
        return redacted(super().__str__())


def _on_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def leave(command: str, error: SpecsweepError, tell: Callable[[str], None] = _on_stderr) -> int:
    """Tell the user about an error on one line, and return the exit code to end with.

    The line begins with `command`; if that is empty, the error's text stands alone.
    """
    tell(f"{command}: {error}" if command else str(error))
    return error.exit_code
