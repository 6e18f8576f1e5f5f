"""Programs and the `sweep` command as processes, and what processes were started with: does it show a secret?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from configs.checkout import ROOT
from tests.busy_machine import PATIENCE_S


def command_of(pid: int) -> str:
    """Its command line; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def start(argv: Sequence[str | Path], env: Mapping[str, str], cwd: Path = ROOT) -> subprocess.Popen[str]:
    """A program with no other variables; what it says on both channels is in one pipe."""
    nothing, pipe, same = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
    return subprocess.Popen(argv, cwd=cwd, env=env, text=True, stdin=nothing, stdout=pipe, stderr=same)


def start_command(*arguments: str | Path, env: Mapping[str, str], cwd: Path = ROOT) -> subprocess.Popen[str]:
    """`sweep ARGUMENTS`, with these variables besides ours."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | env
    return start([sys.executable, "-m", "flows.terminal", *arguments], env, cwd)


def run_python(*arguments: str | Path, env: Mapping[str, str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Our interpreter, to its end, with no other variables."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=env, text=True, capture_output=True, timeout=PATIENCE_S
    )


EVERY_S = 0.1  # pause between two looks
TOKEN_FILE = re.compile(rb"(?:^|\0)HF_TOKEN_PATH=([^\0]+)")


class SecretWatch:
    """What was seen so far: `leaks` has a line for each command that showed a needle, `commands` all command lines.

    `of_users` has each needle with the commands of the user's own that have it in their environment, and `token_files`
    the mode and text of each file with a needle that a process was told to read the hub's token from.
    """

    def __init__(self, *needles: str, of_the_user: str = "") -> None:
        """Processes whose environment has the variable `of_the_user` are the user's own: there secrets come from."""
        self._needles = [needle.encode() for needle in needles]
        self._users = f"{of_the_user}=".encode() if of_the_user else None
        self._last: dict[str, tuple[bytes, bytes]] = {}
        self.leaks: set[str] = set()
        self.commands: set[str] = set()
        self.of_users: set[tuple[str, str]] = set()
        self.token_files: set[tuple[int, str]] = set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        over = threading.Event()

        def watch() -> None:
            while not over.wait(EVERY_S):
                self.look()

        thread = threading.Thread(target=watch, name="secret-watch")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def look(self) -> None:
        # ten times a second at some hundred processes: with pathlib each look was 4.2 ms, not 1.0
        self._last = {name: self._look(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208

    def _look(self, name: str) -> tuple[bytes, bytes]:
        """At one process; what it shows is judged again when it shows something else, and its token file always."""
        shows = arguments, environment = _bytes(f"/proc/{name}/cmdline"), _bytes(f"/proc/{name}/environ")
        if self._last.get(name) == shows and b"HF_TOKEN_PATH=" not in environment:
            return shows
        command = arguments.replace(b"\0", b" ").decode(errors="replace").strip()
        self.commands.add(command)
        if any(needle in arguments for needle in self._needles):
            self.leaks.add(f"argument of {command}")
        shown = [needle for needle in self._needles if needle in environment]
        if self._users is not None and self._users in environment:
            self.of_users |= {(needle.decode(), command) for needle in shown}
        elif shown:
            self.leaks.add(f"environment of {command}")
        if found := TOKEN_FILE.search(environment):
            path = Path("/proc", name, "root", found[1].decode().lstrip("/"))
            text = _bytes(str(path))
            if any(needle in text for needle in self._needles):  # others' tests have tokens of their own
                self.token_files.add((path.stat().st_mode & 0o777, text.decode()))
        return shows


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return file.readall()
    except OSError:
        return b""  # it has ended meanwhile
