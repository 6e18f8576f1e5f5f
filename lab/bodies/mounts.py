"""The few mounts that the lab needs, straight from the kernel (standard library only).

Not through mount(8): it wants a writable /run, and its read-only remount does not reach the mounts below a folder.
`unshare ... PYTHON -m lab.bodies.mounts FOLDER` tries them, in a few milliseconds: it ends with 0, or with the reason
as the last line of stderr.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

MS_BIND = 4096
MS_NOSUID, MS_NODEV = 2, 4
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture (linux/unistd.h); kernel 5.12 or newer
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def mount(source: str, target: Path, kind: str, options: str = "", flags: int = 0) -> None:
    """Mount a file system; raises OSError naming the target."""
    arguments = (source.encode(), bytes(target), kind.encode(), ctypes.c_ulong(flags), options.encode())
    _check(_libc.mount(*arguments), f"mount {kind or 'bind'} on {target}")


def tmpfs(target: Path, size: str, mode: int = 0o755) -> None:
    """Cover `target` with an empty file system in memory; `size` reads 1m, 2g."""
    mount("lab", target, "tmpfs", f"size={size},mode={mode:o}", MS_NOSUID | MS_NODEV)


def bind(source: Path, target: Path) -> None:
    """Make `source` (a file or folder) appear at `target`, which exists."""
    mount(str(source), target, "", flags=MS_BIND)


def overlay(lower: Path, upper: Path, work: Path, target: Path) -> None:
    """A writable view of `lower`: changes go to `upper`. Made by an unprivileged user: `userxattr`."""
    mount("lab", target, "overlay", f"lowerdir={lower},upperdir={upper},workdir={work},userxattr")


def read_only(target: Path, *, recursive: bool = False) -> None:
    """Refuse writes to the mount at `target`, and to all mounts below it if asked."""
    _set(target, _MountAttr(attr_set=_MOUNT_ATTR_RDONLY), recursive)


def writable(target: Path) -> None:
    """Undo `read_only` where this mount namespace did it."""
    _set(target, _MountAttr(attr_clr=_MOUNT_ATTR_RDONLY), recursive=False)


def detach(target: Path) -> None:
    """Unmount `target` and what is below it."""
    _check(_libc.umount2(bytes(target), 2), f"unmount {target}")  # MNT_DETACH


def _set(target: Path, attributes: _MountAttr, recursive: bool) -> None:
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR), _AT_FDCWD, bytes(target), flags, ctypes.byref(attributes), size
    )
    _check(result, f"change the mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}: {what}")


def main() -> None:
    """Make the mounts that a body makes, and write to the overlay."""
    place = Path("/mnt/instance")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    tmpfs(Path("/mnt"), "1m")
    place.mkdir()
    bind(Path(sys.argv[1]), place)
    read_only(Path("/"), recursive=True)
    for each in (Path("/mnt"), place):
        writable(each)
    lower, upper, work, merged = (place / name for name in ("lower", "upper", "work", "merged"))
    for each in (lower, upper, work, merged):
        each.mkdir()
    overlay(lower, upper, work, merged)
    (merged / "written").touch()
    mount("proc", Path("/proc"), "proc")


if __name__ == "__main__":
    main()
