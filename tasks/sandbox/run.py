"""One run of a program that a model wrote: in a process of its own, behind fences, ended at its limits."""

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
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import IO, Literal, NamedTuple

from configs.workloads import Case, Check

JAIL = Path(__file__).with_name("jail.py")

MOST_OUTPUT_BYTES = 64 * 1024
"""Of standard output and error together; no case of ours prints a tenth of it."""

REASON_CHARS = 200
"""Longest reason that a row keeps."""

Ending = Literal["ended", "failed", "timed_out", "not_run"]

OUTPUT, ERROR, ENDED = "stdout", "stderr", "ended"

Cut = Literal["", "time", "output"]
"""What ended a program from outside; empty: nothing did."""


class Ran(NamedTuple):
    """How a run went: `failed` by itself or at a limit, `not_run` where no fences could be put up."""

    ending: Ending
    stdout: str
    reason: str
    """One line; empty where it ended well."""


def run(source: str, check: Check, case: Case, *, fenced: bool = True) -> Ran:
    """Run a program on one case.

    Three pipes are all that reaches it. Its folder is empty and gone afterwards, its environment is empty. Its session
    is killed at its end, at its time limit, or when it has printed too much. Not `fenced` there are only the limits of
    time, memory and output: files and network are open.
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
                    ended = os.pidfd_open(
                        program.pid
                    )  # and not `wait`: until it is reaped, nobody else gets its number
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


PLACE = re.compile(r'^  File "<program>", line (\d+)', re.MULTILINE)
"""A line of the program in a traceback."""


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
