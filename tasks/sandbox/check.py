"""Whether the program in an answer does what its prompt asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from configs.workloads import Check, Workload
from tasks.sandbox.run import one_line, run

OPENS = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<mark>[^\s`]*)[^`\n]*$")
"""A line that begins a code block (CommonMark 0.31, 4.5)."""

MARKS = ("", "python", "python3", "py")


def program_of(answer: str) -> str | None:
    """The program in an answer without its thinking; None: there is none.

    It is the longest code block that is marked `python`, `python3` or `py`, or not at all; of equally long ones the
    last. A block that is never ended was cut off, and is no program.
    """
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


Outcome = Literal["correct", "wrong", "failed", "timed_out", "not_run"]

SHOWN_CHARS = 60
"""Of what was printed and of what should have been, in a reason."""

TRIED = """
import os, socket
for name, tried in (
    ("files", lambda: os.close(os.open("/", os.O_RDONLY))),
    ("network", lambda: socket.socket().close()),
    ("processes", lambda: os.fork() or os._exit(0)),
):
    try:
        tried()
    except PermissionError:
        continue
    print("open:", name)
"""
"""A program that tries what a fenced one must not."""

UNFENCED = "ran without fences"
"""How the reason begins of what could reach files and network."""

TRIAL = Check.model_validate({"cases": [{"stdout": ""}], "seconds": 30})
"""What it must print: nothing. On a busy machine a Python may take seconds to start."""


class Checked(NamedTuple):
    """What became of a program: `failed` with an error of its own, or without a program; `wrong` by what it printed."""

    outcome: Outcome
    reason: str
    """One line; of a correct one how many cases it was held to."""


def why_no_sandbox() -> str | None:
    """Why programs can't be fenced in on this machine; None: they can. It is tried, with a program that tries it."""
    ran = run(TRIED, TRIAL, TRIAL.cases[0])
    if ran.ending == "ended" and not ran.stdout:
        return None
    return one_line(ran.reason or f"the fences leave {' '.join(ran.stdout.split())}")


def checked(answer: str, check: Check, *, fenced: bool) -> Checked:
    """Run the program of an answer on every case, up to the first that it doesn't pass.

    `answer` is without its thinking. `fenced` is False only where configuration allows a machine without fences.
    """
    source = program_of(answer)
    if source is None:
        return Checked("failed", "no program: no code block in the answer that is ended")
    found = _held(source, check, fenced)
    if fenced or found.outcome == "not_run":
        return found
    return found._replace(reason=one_line(f"{UNFENCED}; {found.reason}"))


def _held(source: str, check: Check, fenced: bool) -> Checked:
    for number, case in enumerate(check.cases, 1):
        ran = run(source, check, case, fenced=fenced)
        if ran.ending != "ended":
            return Checked(ran.ending, one_line(f"case {number}: {ran.reason}"))
        if _bare(ran.stdout) != _bare(case.stdout):
            said = f"printed {_shown(ran.stdout)}, right is {_shown(case.stdout)}"
            return Checked("wrong", one_line(f"case {number}: {said}"))
    return Checked("correct", f"all of {len(check.cases)} cases")


def _bare(printed: str) -> list[str]:
    """Lines as they are compared: without blanks at their ends, and without empty ones at the end."""
    return "\n".join(line.rstrip() for line in printed.splitlines()).rstrip().split("\n")


def _shown(printed: str) -> str:
    text = repr("\n".join(_bare(printed)))
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


NOTHING: Mapping[str, Any] = {"program": None, "program_reason": None}
"""Columns of an answer of which no program is asked."""


class Programs:
    """Runs programs, and remembers them: greedy answers to one prompt are mostly the same."""

    def __init__(self, *, unfenced: bool) -> None:
        """`unfenced`: run them with limits only, where this machine can't fence them in."""
        self._unfenced = unfenced
        self._missing: str | None = None
        self._tried = False
        self._known: dict[tuple[str, str], Checked] = {}

    def columns(self, workload: Workload, answer: str) -> Mapping[str, Any]:
        """What became of an answer's program, as columns of `prompt_requests`. It takes seconds: not on the loop."""
        if workload.check is None:
            return NOTHING
        if not self._tried:
            self._missing, self._tried = why_no_sandbox(), True
        if self._missing is not None and not self._unfenced:
            return {"program": "not_run", "program_reason": self._missing}
        key = (workload.name, answer)
        if key not in self._known:
            self._known[key] = checked(answer, workload.check, fenced=self._missing is None)
        found = self._known[key]
        return {"program": found.outcome, "program_reason": found.reason}
