"""A message that repeats is passed on once."""

from __future__ import annotations

from collections.abc import Callable


def once_in_a_row(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Tell a text unless it is empty or repeats the last one. An empty text lets the last one be told again."""
    last = ""

    def told(text: str) -> None:
        nonlocal last
        if text not in ("", last):
            tell(text)
        last = text

    return told
