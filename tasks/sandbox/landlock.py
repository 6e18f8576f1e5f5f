"""Landlock: from here on this process opens nothing but what lies below the folders named (standard library only).

That a file exists, its size and its owner can still be asked for, by whoever could before. Source:
Documentation/userspace-api/landlock.rst of Linux; since 5.13, for root and for everybody else.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls; the same numbers on every architecture."""

VERSION_FLAG = 1
RULE_PATH_BENEATH = 1

READ_FILE, READ_DIR = 1 << 2, 1 << 3
"""Rights that are given; executing a file is none of them, so no other program can be started from there."""

RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""Rights over files that each version of the interface brought: all are taken away."""


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def allow_reading(folders: Iterable[Path]) -> None:
    """Take from this process, and from all that it may start, every file but those below `folders`, to be read.

    What is open stays open. `no_new_privs` must be set.

    Raises:
        OSError: this kernel has no Landlock, or it is switched off.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        result = int(libc.syscall(ctypes.c_long(number), *arguments))
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"Landlock: {os.strerror(code)}")
        return result

    nothing, zero, one = ctypes.c_void_p(None), ctypes.c_size_t(0), ctypes.c_uint32(VERSION_FLAG)
    version = call(CREATE_RULESET, nothing, zero, one)
    handled = ctypes.c_uint64(sum(rights for since, rights in RIGHTS.items() if since <= version))
    size = ctypes.c_size_t(ctypes.sizeof(handled))
    ruleset = call(CREATE_RULESET, ctypes.byref(handled), size, ctypes.c_uint32(0))
    for folder in folders:
        opened = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        rule = _Beneath(READ_FILE | READ_DIR, opened)
        call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(RULE_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
        os.close(opened)
    call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)
