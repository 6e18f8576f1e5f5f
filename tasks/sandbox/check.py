"""Whether the program in an answer does what its prompt asked."""

from __future__ import annotations

from typing import Literal, NamedTuple

from configs.workloads.workload import Case, Check
from tasks.sandbox.extract import program_of
from tasks.sandbox.run import Ran, one_line, run

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

    Args:
        answer: without its thinking.
        check: what it is held to.
        fenced: False only where configuration allows a machine without fences.
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
        found = _of_case(ran, case)
        if found is not None:
            return found._replace(reason=one_line(f"case {number}: {found.reason}"))
    return Checked("correct", f"all of {len(check.cases)} cases")


def _of_case(ran: Ran, case: Case) -> Checked | None:
    if ran.ending != "ended":
        return Checked(ran.ending, ran.reason)
    if _bare(ran.stdout) == _bare(case.stdout):
        return None
    return Checked("wrong", f"printed {_shown(ran.stdout)}, right is {_shown(case.stdout)}")


def _bare(printed: str) -> list[str]:
    """Lines as they are compared: without blanks at their ends, and without empty ones at the end."""
    return "\n".join(line.rstrip() for line in printed.splitlines()).rstrip().split("\n")


def _shown(printed: str) -> str:
    text = repr("\n".join(_bare(printed)))
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"
