"""The kernel's two fences around a process: Landlock for files, seccomp for all else (standard library only).

Landlock opens nothing but what lies below the folders named; that a file exists, its size and its owner can still be
asked for. Source: Documentation/userspace-api/landlock.rst of Linux; since 5.13, for root and for everybody else.

Seccomp leaves the system calls that computing needs: no network, no process or thread, no signal, no raised limit, for
root neither. Source: Documentation/userspace-api/seccomp_filter.rst; numbers: arch/x86/entry/syscalls/syscall_64.tbl
and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls; the same numbers on every architecture
VERSION_FLAG = 1
RULE_PATH_BENEATH = 1

READ_FILE, READ_DIR = 1 << 2, 1 << 3
"""Rights that are given; executing a file is none of them, so no other program can be started from there."""

RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # by the version that brought them: all taken away


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def allow_reading(folders: Iterable[Path]) -> None:
    """Take from this process, and from all that it may start, every file but those below `folders`, to be read.

    What is open stays open. `no_new_privs` must be set.
    Raises OSError: this kernel has no Landlock, or it is switched off.
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


class Architecture(NamedTuple):
    """Its name for the kernel's audit, and the allowed system calls; the last three with harmless arguments only."""

    audit: int
    allowed: tuple[int, ...]
    openat: int
    fcntl: int
    ioctl: int


WRITING: Final = 0o1 | 0o2 | 0o100 | 0o1000 | 0o20000000
"""Flags of an opening that a file isn't only read by: to write, create, truncate, make one without a name. Landlock
refuses them, too, but before its third version (Linux 6.2) not to truncate what may be read."""

FCNTL: Final = (0, 1, 2, 3, 1030)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC; not F_SETOWN, by which a pipe sends signals to anybody."""

IOCTL: Final = (0x5401, 0x5413, 0x541B, 0x5450, 0x5451)
"""TCGETS (is it a terminal?), TIOCGWINSZ, FIONREAD, FIONCLEX, FIOCLEX."""


X86_64: Final = Architecture(
    0xC000003E,
    (
        # read, write, close, stat, fstat, lstat, poll, lseek, mmap
        0, 1, 3, 4, 5, 6, 7, 8, 9,
        # mprotect, munmap, brk, rt_sigaction, rt_sigprocmask, rt_sigreturn, pread64
        10, 11, 12, 13, 14, 15, 17,
        # readv, writev, access, select, sched_yield, mremap, madvise, dup, dup2, nanosleep
        19, 20, 21, 23, 24, 25, 28, 32, 33, 35,
        # getpid, exit, uname, getcwd, readlink, gettimeofday, getrlimit, getrusage, sysinfo, times
        39, 60, 63, 79, 89, 96, 97, 98, 99, 100,
        # getuid, getgid, geteuid, getegid, getppid, sigaltstack, gettid, time, futex, sched_getaffinity
        102, 104, 107, 108, 110, 131, 186, 201, 202, 204,
        # getdents64, set_tid_address, clock_gettime, clock_getres, clock_nanosleep, exit_group
        217, 218, 228, 229, 230, 231,
        # newfstatat, readlinkat, faccessat, pselect6, ppoll, set_robust_list, dup3
        262, 267, 269, 270, 271, 273, 292,
        # getrandom, membarrier, statx, rseq, faccessat2
        318, 324, 332, 334, 439,
    ),
    openat=257,
    fcntl=72,
    ioctl=16,
)  # fmt: skip

AARCH64: Final = Architecture(
    0xC00000B7,
    (
        # getcwd, dup, dup3, faccessat, close, getdents64, lseek
        17, 23, 24, 48, 57, 61, 62,
        # read, write, readv, writev, pread64, pselect6, ppoll, readlinkat, newfstatat, fstat
        63, 64, 65, 66, 67, 72, 73, 78, 79, 80,
        # exit, exit_group, set_tid_address, futex, set_robust_list, nanosleep, clock_gettime, clock_getres
        93, 94, 96, 98, 99, 101, 113, 114,
        # clock_nanosleep, sched_getaffinity, sched_yield, sigaltstack, rt_sigaction, rt_sigprocmask, rt_sigreturn
        115, 123, 124, 132, 134, 135, 139,
        # times, uname, getrlimit, getrusage, gettimeofday, getpid, getppid, getuid, geteuid, getgid, getegid
        153, 160, 163, 165, 169, 172, 173, 174, 175, 176, 177,
        # gettid, sysinfo, brk, munmap, mremap, mmap, mprotect, madvise
        178, 179, 214, 215, 216, 222, 226, 233,
        # getrandom, membarrier, statx, rseq, faccessat2
        278, 283, 291, 293, 439,
    ),
    openat=56,
    fcntl=25,
    ioctl=29,
)  # fmt: skip

MACHINES: Final = {"x86_64": X86_64, "aarch64": AARCH64}

PR_SET_SECCOMP, MODE_FILTER = 22, 2
LOAD, JUMP_IF_EQUAL, JUMP_IF_ANY, RETURN = 0x20, 0x15, 0x45, 0x06
"""Instructions of the classic BPF: load a word, jump if it equals k or has any bit of k, return k."""

NUMBER_AT, MACHINE_AT, SECOND_AT, THIRD_AT = 0, 4, 24, 32
"""Offsets in `struct seccomp_data`: the call, the architecture, the lower halves of the second and third argument."""

Step = tuple[int, int, int, int]  # code, how many instructions are left out if it jumps, how many if not, and k

ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
"""What a filter returns: go on, fail with EPERM, end the process."""


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def allow_computing() -> None:
    """Refuse all unlisted system calls; `no_new_privs` must be set. Raises OSError: no filters here, or no list."""
    machine = MACHINES.get(platform.machine())
    if machine is None:
        raise OSError(errno.ENOSYS, f"seccomp: no list of system calls for {platform.machine()}")
    instructions = filter_of(machine)
    program = _Filter(len(instructions) // 8, instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_ulong(MODE_FILTER), ctypes.byref(program), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if libc.prctl(ctypes.c_int(PR_SET_SECCOMP), *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"seccomp: {os.strerror(code)}")


def filter_of(machine: Architecture) -> bytes:
    """The filter as the kernel takes it: 8 bytes an instruction."""
    steps: list[Step] = [
        (LOAD, 0, 0, MACHINE_AT),
        (JUMP_IF_EQUAL, 1, 0, machine.audit),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
        *_held_to(machine.openat, THIRD_AT, [(JUMP_IF_ANY, 0, 1, WRITING)]),
        *_held_to(machine.fcntl, SECOND_AT, _one_of(FCNTL)),
        *_held_to(machine.ioctl, SECOND_AT, _one_of(IOCTL)),
        *_one_of(machine.allowed),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _one_of(values: Sequence[int]) -> list[Step]:
    """Jumps over the instruction behind them if what was loaded is one of these."""
    return [(JUMP_IF_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]


def _held_to(call: int, argument_at: int, test: Sequence[Step]) -> list[Step]:
    """Of one call: is it allowed by its argument? The test comes before a refusal and a permission."""
    held = [(LOAD, 0, 0, argument_at), *test, (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    return [(JUMP_IF_EQUAL, 0, len(held), call), *held]
