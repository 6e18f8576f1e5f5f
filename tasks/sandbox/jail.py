"""Runs one program, behind the fences that this process puts around itself first (standard library only).

    python -I -S -B jail.py '{"source_fd": 5, "ready_fd": 6, "memory_mib": 512, "cpu_s": 6, "fenced": true, ...}'

`run.py` starts it in an empty folder, with an empty environment, and kills it at its time limit. Behind the fences the
standard library can be read, standard input, output and error go on, and the system calls that computing needs; nothing
else. One byte on `ready_fd` says that the fences stand, before a line of the program is run; without it nothing was.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

PR_SET_NO_NEW_PRIVS = 38

PRELOADED = ("bz2", "decimal", "hashlib", "lzma", "math", "random", "traceback", "zlib")
"""Modules that need libraries of the system, or that an error needs: these lie outside of what may be read later."""

OPEN_FILES = 64  # most files that the program may have open; the standard library needs one at a time
MIB = 1024 * 1024


class Silent:
    """Standard output while a program is loaded whose function is what counts."""

    def write(self, text: str) -> int:
        """Drop it."""
        return len(text)

    def flush(self) -> None:
        """There is nothing to flush."""


def main() -> None:
    """Limit, fence, and run; an error of the program ends the process as in any Python."""
    asked = json.loads(sys.argv[1])
    source = _read(asked["source_fd"])
    for name in PRELOADED:
        try:
            __import__(name)
        except ImportError:  # this Python was built without it
            continue
    fence = _fence()
    _limit(asked["memory_mib"], asked["cpu_s"])
    if asked["fenced"]:
        fence()
    os.write(asked["ready_fd"], b"!")
    os.close(asked["ready_fd"])
    sys.argv[:] = ["program"]
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # which `site` would bring
    _run(source, asked["function"], asked["arguments"])


def _read(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8", newline="\n") as file:
        return file.read()


def _limit(memory_mib: int, cpu_s: int) -> None:
    for which, most in (
        (resource.RLIMIT_AS, memory_mib * MIB),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(which, (most, most))


def _fence() -> Callable[[], None]:
    """What puts up the fences, files by Landlock and all else by seccomp; it raises OSError if the kernel lacks one.

    Imported before there are limits: afterwards the checkout is out of reach.
    """
    checkout = str(Path(__file__).parents[2])
    sys.path.insert(0, checkout)
    from tasks.sandbox import fences

    sys.path.remove(checkout)

    def put_up() -> None:
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs")
        fences.allow_reading([Path(os.__file__).parent])
        fences.allow_computing()

    return put_up


def _run(source: str, function: str | None, arguments: list[Any]) -> None:
    """In a module of its own, which is known by its name: dataclasses and others look their module up."""
    module = ModuleType("__main__" if function is None else "program")
    sys.modules[module.__name__] = module
    code = compile(source, "<program>", "exec", dont_inherit=True)
    if function is None:
        exec(code, module.__dict__)
        return
    printed, sys.stdout = sys.stdout, Silent()
    exec(code, module.__dict__)
    sys.stdout = printed
    if not hasattr(module, function):
        raise NameError(f"no function {function!r} in the program")
    print(getattr(module, function)(*arguments))


if __name__ == "__main__":
    main()
