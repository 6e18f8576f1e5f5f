"""A program that a model wrote: found in an answer, run behind fences to its limits, and held to what it must print."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from configs.steps.prompts import Case, Check, Workload

JAIL = Path(__file__).with_name("jail.py")
MOST_OUTPUT_BYTES = 64 * 1024  # of standard output and error together; no case of ours prints a tenth of it
REASON_CHARS = 200  # longest reason that a row keeps
Ending = Literal["ended", "failed", "timed_out", "not_run"]

OUTPUT, ERROR, ENDED = "stdout", "stderr", "ended"
Cut = Literal["", "time", "output"]  # what ended a program from outside; empty: nothing did


class Ran(NamedTuple):
    """How a run went: `failed` by itself or at a limit, `not_run` where no fences could be put up."""

    ending: Ending
    stdout: str
    reason: str  # one line; empty where it ended well


def run(source: str, check: Check, case: Case, *, fenced: bool = True) -> Ran:
    """Run a program on one case; three pipes are all that reaches it, its folder and its environment are empty.

    Its session is killed at its end, at its time limit, or when it has printed too much. Not `fenced` there are only
    the limits of time, memory and output: files and network are open.
    """
    with tempfile.TemporaryDirectory(prefix="specsweep-program-") as folder, _spooled(source) as text:
        readable, writable = os.pipe()
        try:
            with _spooled(case.stdin) as stdin:
                program = _started(folder, text.fileno(), writable, stdin, check, case, fenced)
            os.close(writable)
            writable = -1
            with program:
                try:
                    # and not `wait`: until it is reaped, nobody else gets its number
                    ended = os.pidfd_open(program.pid)
                except OSError as error:  # an old profile of a container, or a kernel in user space
                    os.killpg(program.pid, signal.SIGKILL)
                    return Ran("not_run", "", f"no sandbox here: nobody can tell when it ends: pidfd_open: {error}")
                said, cut = _listen(program, ended, check.seconds)
            ready = os.read(readable, 1) == b"!"
        finally:
            os.close(readable)
            if writable >= 0:
                os.close(writable)
    return _ran(program.returncode, said, cut, ready, check)


@contextmanager
def _spooled(text: str) -> Iterator[IO[bytes]]:
    """Text in a file without a name."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode(errors="replace"))
        file.seek(0)
        yield file


def _started(
    folder: str, source_fd: int, ready_fd: int, stdin: IO[bytes], check: Check, case: Case, fenced: bool
) -> subprocess.Popen[bytes]:
    asked = {
        "source_fd": source_fd, "ready_fd": ready_fd, "memory_mib": check.memory_mib, "cpu_s": ceil(check.seconds) + 1,
        "fenced": fenced, "function": check.function, "arguments": list(case.arguments),
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(JAIL), json.dumps(asked)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={},
        pass_fds=(source_fd, ready_fd),
        start_new_session=True,
    )


def _listen(program: subprocess.Popen[bytes], ended: int, seconds: float) -> tuple[dict[str, bytes], Cut]:
    """What it printed until it ended or was ended, and by what; afterwards nothing of its session is left."""
    said = {OUTPUT: b"", ERROR: b""}
    deadline = time.monotonic() + seconds
    cut: Cut = ""
    with selectors.DefaultSelector() as selector:
        selector.register(ended, selectors.EVENT_READ, ENDED)
        for name, pipe in ((OUTPUT, program.stdout), (ERROR, program.stderr)):
            assert pipe is not None
            selector.register(pipe, selectors.EVENT_READ, name)
        while selector.get_map() and not cut:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            for key, _ in ready:
                data = b"" if key.data == ENDED else os.read(key.fd, MOST_OUTPUT_BYTES)
                if data:
                    said[key.data] += data
                else:
                    selector.unregister(key.fileobj)
            if sum(map(len, said.values())) > MOST_OUTPUT_BYTES:
                cut = "output"
            elif time.monotonic() >= deadline and selector.get_map():
                cut = "time"
    os.killpg(program.pid, signal.SIGKILL)
    os.close(ended)
    return said, cut


def _ran(code: int, said: dict[str, bytes], cut: Cut, ready: bool, check: Check) -> Ran:
    stdout, stderr = (said[name].decode(errors="replace") for name in (OUTPUT, ERROR))
    if not ready and cut != "time":
        return Ran("not_run", "", f"no sandbox here: {_last_line(stderr) or f'exit code {code}'}")
    if cut == "time" or code == -signal.SIGXCPU:
        return Ran("timed_out", stdout, f"still running after {check.seconds:g} s")
    if cut == "output":
        return Ran("failed", stdout, f"printed more than {MOST_OUTPUT_BYTES // 1024} KiB")
    if code < 0:
        return Ran("failed", stdout, f"ended by {signal.Signals(-code).name}")
    if code > 0:
        return Ran("failed", stdout, _error(stderr) or f"exit code {code}")
    return Ran("ended", stdout, "")


PLACE = re.compile(r'^  File "<program>", line (\d+)', re.MULTILINE)  # a line of the program in a traceback


def _error(stderr: str) -> str:
    """The error that ended a program, with the line of it in which it arose."""
    places = PLACE.findall(stderr)
    return one_line(f"line {places[-1]}: {_last_line(stderr)}" if places else _last_line(stderr))


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def one_line(text: str) -> str:
    """A text as a reason: one line, printable, no longer than a row keeps."""
    plain = "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))
    return plain if len(plain) <= REASON_CHARS else f"{plain[: REASON_CHARS - 1]}…"


OPENS = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<mark>[^\s`]*)[^`\n]*$")  # CommonMark 0.31, 4.5
MARKS = ("", "python", "python3", "py")


def program_of(answer: str) -> str | None:
    """The program in an answer without its thinking; None: there is none, or only one that was cut off.

    It is the longest code block that is marked `python`, `python3`, `py` or not at all; of equally long ones the last.
    """
    found = [text for mark, text in _blocks(answer) if mark.lower() in MARKS and text.strip()]
    return max(reversed(found), key=len) if found else None


def _blocks(answer: str) -> Iterator[tuple[str, str]]:
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
SHOWN_CHARS = 60  # of what was printed and of what should have been, in a reason
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

UNFENCED = "ran without fences"  # how the reason begins of what could reach files and network

TRIAL = Check.model_validate({"cases": [{"stdout": ""}], "seconds": 30})
"""What it must print: nothing. On a busy machine a Python may take seconds to start."""


class Checked(NamedTuple):
    """What became of a program: `failed` with an error of its own, or without a program; `wrong` by what it printed."""

    outcome: Outcome
    reason: str  # one line; of a correct one how many cases it was held to


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


NOTHING: Mapping[str, Any] = {"program": None, "program_reason": None}  # columns where no program is asked for


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
