"""What is told again and again is told once in a row."""

from __future__ import annotations

from collections.abc import Callable


def once_in_a_row(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Tell a text unless it is empty or the one before; after an empty one it is told again."""
    last = ""

    def told(text: str) -> None:
        nonlocal last
        if text not in ("", last):
            tell(text)
        last = text

    return told
