"""Python environments, made on first use and shared by all clones of this user.

The pins of the control side, the node runner and the engine exclude one another. So each has its own environment in the
user's cache folder, under the hash of its pin file. Standard library only: any python3 >= 3.11 runs it.

    python3 tasks/host/environments.py python control node   # make what is missing, print the interpreters
    python3 tasks/host/environments.py list                  # which there are, where, and whether they are ready
    python3 tasks/host/environments.py suffix                # try the suffix-decoding add-on of the engine again
"""

from __future__ import annotations

import signal

if not __package__:  # run as a script: python3 tasks/host/environments.py
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until there is something to clean up

import argparse
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from configs.errors import SpecsweepError, leave
from tasks.host.environment_install import Installer, Tell, alone
from tasks.host.environment_spec import ENVIRONMENTS, NAMES, REQUIREMENTS, InstallError, Name, check_machine, folder_of

__all__ = ["NAMES", "InstallError", "Name", "ensure", "overlay_of", "python_of", "suffix_unavailable"]

READY = "READY"  # written last: a folder without it is a partial install, which nobody uses
SUFFIX = "SUFFIX"  # empty when the suffix add-on is installed; otherwise the reason why it is not

LOG_LINE_EVERY_S = 10.0

HEAD_START_S = 1.0  # of what takes longest, before others: it fetches first, one at a time does, and all wait for it
CLEAR = "\r\x1b[2K"  # clears the current line of a terminal


def python_of(name: Name) -> Path | None:
    """The interpreter of a finished environment, or None; installs nothing."""
    folder = folder_of(name)
    python = folder / "bin" / "python"
    return python if (folder / READY).exists() and python.exists() else None


def overlay_of(name: Name) -> Path | None:
    """The folder of a finished overlay, for PYTHONPATH, or None; installs nothing."""
    folder = folder_of(name)
    return folder if ENVIRONMENTS[name].over and (folder / READY).exists() else None


def _path_of(name: Name) -> Path | None:
    return overlay_of(name) if ENVIRONMENTS[name].over else python_of(name)


def ensure(name: Name, *, tell: Tell = lambda _: None) -> Path:
    """Return the interpreter of an environment (the folder of an overlay), making it first if it is missing.

    `tell` gets a line of text about every half second while something is going on.
    A second caller waits for the first. Raises InstallError with one line that says what to do.
    """
    if path := _path_of(name):
        return path
    folder, spec = folder_of(name), ENVIRONMENTS[name]
    base = ensure(spec.over, tell=tell) if spec.over else None
    tools, lock = _tools(name, tell), _lock_of(name)
    with alone(lock, tell, f"{name}: another process is making it"):
        if path := _path_of(name):
            return path
        try:
            shutil.rmtree(folder, ignore_errors=True)
            check_machine(spec, folder.parent)
            installer = Installer(name, spec, folder, folder.with_suffix(".log"), tell, tools)
            how = installer.lay_over(base) if base else installer.build()
            if spec.addon:
                (folder / SUFFIX).write_text(installer.addon_missing or "", encoding="utf-8")
            facts = {"installer": how, "seconds": round(time.monotonic() - installer.started, 1)}
            (folder / READY).write_text(json.dumps(facts) + "\n", encoding="utf-8")
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, InstallError):
                raise InstallError(f"the {name} environment cannot be made: {error}") from None
            raise
    return folder if base else folder / "bin" / "python"


def _lock_of(name: Name) -> Path:
    """The environment's lock, in the folder of all of them. InstallError: that can't be written to."""
    lock = folder_of(name).with_suffix(".lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    except OSError as error:
        remedy = "make it writable, or set XDG_CACHE_HOME to a folder that is"
        raise InstallError(f"{lock.parent} can't be written to ({error.strerror}). Remedy: {remedy}") from None
    return lock


def _tools(name: Name, tell: Tell) -> Path | None:
    """The interpreter of the environment with pip and uv; None where it can't be made, or is being made."""
    try:
        return ensure("uv", tell=tell) if name != "uv" else None
    except InstallError as error:
        tell(f"{name}: {error}")
        return None


def suffix_unavailable() -> str | None:
    """Why the engine of this machine cannot do suffix decoding, or None when it can."""
    if python_of("engine-cpu") is None:
        return "the engine-cpu environment is not installed yet"
    return (folder_of("engine-cpu") / SUFFIX).read_text(encoding="utf-8") or None


def retry_suffix(tell: Tell = lambda _: None) -> str | None:
    """Try the suffix add-on of the engine once more, for example after installing g++; None, or why it failed."""
    ensure("engine-cpu", tell=tell)
    folder, spec = folder_of("engine-cpu"), ENVIRONMENTS["engine-cpu"]
    with alone(folder.with_suffix(".lock"), tell, "engine-cpu: another process is making it"):
        log = folder.with_name(folder.name + "-suffix.log")
        log.write_text("", encoding="utf-8")
        installer = Installer("engine-cpu", spec, folder, log, tell, _tools("engine-cpu", tell))
        reason = installer.add(REQUIREMENTS / str(spec.addon))
        installer.compile()
        (folder / SUFFIX).write_text(reason or "", encoding="utf-8")
    return reason


class Console:
    """Progress on stderr: one line that renews itself on a terminal, a line every ten seconds in a log."""

    def __init__(self, left: Callable[[], str] = str) -> None:
        """`left` says how long it all still takes, at the end of each line; by default nothing."""
        self.cancelled = False
        self._left = left
        self.tty = sys.stderr.isatty()
        self._doing: dict[str, str] = {}
        self._last = -LOG_LINE_EVERY_S
        self._lock = threading.Lock()

    def tell_of(self, name: str) -> Tell:
        """The `tell` of one environment; raises KeyboardInterrupt once the user has interrupted, to stop the work."""

        def tell(text: str) -> None:
            if self.cancelled:
                raise KeyboardInterrupt
            with self._lock:
                self._doing[name] = text
                self._show()

        return tell

    def tell(self, text: str, *, of: str = "") -> None:
        """Print a line that stays; the environment `of` has nothing more to show."""
        with self._lock:
            self._doing.pop(of, None)
            print(f"{CLEAR if self.tty else ''}{text}", file=sys.stderr, flush=True)

    def _show(self) -> None:
        now = time.monotonic()
        if self.tty:
            left = self._left()
            room = (shutil.get_terminal_size().columns - len(left)) // len(self._doing) - 3
            text = " | ".join(f"{doing[:room]:{room}}" for doing in self._doing.values())
            print(f"{CLEAR}{text}{left}", end="", file=sys.stderr, flush=True)
        elif now - self._last >= LOG_LINE_EVERY_S:
            self._last = now
            print(" | ".join(doing[:70] for doing in self._doing.values()) + self._left(), file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; `python` prints nothing on stdout but the paths of interpreters (or overlays)."""
    parser = argparse.ArgumentParser(
        prog="environments.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    python = commands.add_parser("python", help="make the environments that are missing, print the interpreters of all")
    python.add_argument("names", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    python.add_argument(
        "--then-s", type=float, help="seconds of what follows: each line says what is left of the whole"
    )
    commands.add_parser("list", help="show every environment, its folder and whether it is ready")
    commands.add_parser("suffix", help="try the suffix-decoding add-on of engine-cpu again")
    arguments = parser.parse_args(argv)
    then_s: float | None = getattr(arguments, "then_s", None)
    console = Console() if then_s is None else Console(left_of_all(arguments.names, then_s))
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if arguments.command == "python":
            return _print_pythons(arguments.names, console)
        if arguments.command == "list":
            for name in NAMES:
                path, spec = _path_of(name), ENVIRONMENTS[name]
                print(f"{name:<16} {'ready' if path else '-':<6} {spec.purpose:<38} {folder_of(name)}")
            print(f"{'':<16} suffix decoding: {suffix_unavailable() or 'available'}")
        elif reason := retry_suffix(console.tell_of("engine-cpu")):
            console.tell(f"specsweep: suffix decoding is not available: {reason}")
            return 1
    except SpecsweepError as error:
        return leave("specsweep", error, console.tell)
    except KeyboardInterrupt:
        console.tell("specsweep: interrupted; nothing half-made was left, run the same command again")
        return 130
    return 0


def left_of_all(names: Sequence[Name], then_s: float) -> Callable[[], str]:
    """Says `; about 9 min left of all` while environments are made, before something that takes `then_s`.

    Two are made at a time. What is late by the figures of `ENVIRONMENTS` is taken to need a quarter of them still.
    """
    lacking, began_s = [name for name in names if _path_of(name) is None], time.monotonic()

    def left() -> str:
        all_s, lacking_s = (
            sum(ENVIRONMENTS[name].make_s for name in some) / 2
            for some in (lacking, [name for name in lacking if _path_of(name) is None])
        )
        left_s = max(min(lacking_s, all_s - (time.monotonic() - began_s)), lacking_s / 4)
        return f"; about {max(1, round((left_s + then_s) / 60))} min left of all"

    return left


def _print_pythons(names: list[Name], console: Console) -> int:
    """Make what is missing, side by side; print all interpreters in the order asked for."""
    missing = sorted((name for name in names if _path_of(name) is None), key=lambda name: -ENVIRONMENTS[name].make_s)
    if missing:
        _lock_of(missing[0])  # what is wrong with the folder of all is told once
        if missing[0] != "uv" and _path_of("uv") is None:
            _make("uv", console)
        with ThreadPoolExecutor(len(missing)) as pool:
            try:
                made = list(pool.map(lambda name: _make(name, console, HEAD_START_S * (name != missing[0])), missing))
            except KeyboardInterrupt:
                console.cancelled = True
                raise
        if not all(made):
            return 1
    for name in names:
        print(_path_of(name))
    return 0


def _make(name: Name, console: Console, after_s: float = 0.0) -> bool:
    started = time.monotonic()
    time.sleep(after_s)
    try:
        ensure(name, tell=console.tell_of(name))
    except InstallError as error:
        leave("specsweep", error, partial(console.tell, of=name))
        return False
    console.tell(f"{name}: ready after {time.monotonic() - started:.0f} s", of=name)
    return True


if __name__ == "__main__":
    sys.exit(main())
