"""Looks at every process of this machine, again and again: do its arguments or its environment show a secret?"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EVERY_S = 0.1
"""Pause between two looks."""

TOKEN_FILE = re.compile(rb"(?:^|\0)HF_TOKEN_PATH=([^\0]+)")


class SecretWatch:
    """What was seen so far.

    `leaks` has a line for each command that showed a needle, `commands` all command lines, `of_users` each needle with
    the commands of the user's own that have it in their environment, and `token_files` the mode and text of each file
    with a needle that a process was told to read the hub's token from.
    """

    def __init__(self, *needles: str, of_the_user: str = "") -> None:
        """Processes whose environment has the variable `of_the_user` are the user's own: there secrets come from."""
        self._needles = [needle.encode() for needle in needles]
        self._users = f"{of_the_user}=".encode() if of_the_user else None
        self.leaks: set[str] = set()
        self.commands: set[str] = set()
        self.of_users: set[tuple[str, str]] = set()
        self.token_files: set[tuple[int, str]] = set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look until the block ends."""
        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,), name="secret-watch")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        """At every process, once."""
        for folder in Path("/proc").glob("[0-9]*"):
            self._look(folder)

    def _look(self, folder: Path) -> None:
        arguments, environment = _bytes(folder / "cmdline"), _bytes(folder / "environ")
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
            path = folder / "root" / found[1].decode().lstrip("/")
            text = _bytes(path)
            if any(needle in text for needle in self._needles):  # others' tests have tokens of their own
                self.token_files.add((path.stat().st_mode & 0o777, text.decode()))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it has ended meanwhile
