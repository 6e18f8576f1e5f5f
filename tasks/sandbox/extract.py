"""The program in an answer.

The rule: of the answer's Markdown code blocks that are marked `python`, `python3` or `py`, or not at all, the longest;
of equally long ones the last. A block begins with a line of three or more backquotes or tildes and ends with a line of
as many of the same: one that is never ended was cut off, and is no program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

OPENS = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<mark>[^\s`]*)[^`\n]*$")
"""A line that begins a code block (CommonMark 0.31, 4.5)."""

MARKS = ("", "python", "python3", "py")


def program_of(answer: str) -> str | None:
    """The program in an answer without its thinking; None: there is none."""
    found = [text for mark, text in _blocks(answer) if mark.lower() in MARKS and text.strip()]
    return max(reversed(found), key=len) if found else None


def _blocks(answer: str) -> Iterator[tuple[str, str]]:
    """Mark and text of each block that is ended."""
    fence: re.Match[str] | None = None
    lines: list[str] = []
    for line in answer.splitlines():
        if fence is None:
            fence, lines = OPENS.match(line), []
        elif _ends(line, fence["fence"]):
            yield fence["mark"], "".join(f"{each}\n" for each in lines)
            fence = None
        else:
            lines.append(line)


def _ends(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and set(bare) == {fence[0]} and len(line) - len(line.lstrip(" ")) <= 3
