"""A checkpoint that is a folder of this machine instead of a repository on the hub, and what tells it from another."""

from __future__ import annotations

import hashlib
from pathlib import Path

from configs.errors import SpecsweepError

CONFIG = "config.json"
DIGEST_DIGITS = 16  # hex digits: no two checkpoints of anybody's share them
BLOCK_BYTES = 1 << 16
BLOCKS = 64
"""Of a file larger than these blocks of it are read, evenly spread from its first byte to its last: 4 MiB a file, where
all of it would take minutes. Training changes a checkpoint nearly everywhere."""


class NoCheckpoint(SpecsweepError):
    """A folder that is named as a checkpoint and is none; the text says what is missing."""


def local_folder(hub_id: str | None) -> Path | None:
    """The folder that a `hub_id` names, by a path that begins with / or ~/; None: it is on the hub."""
    return Path(hub_id).expanduser() if hub_id is not None and hub_id.startswith(("/", "~/")) else None


def why_none(folder: Path) -> str | None:
    """Why a folder is no checkpoint, as a verb; None: it may be one."""
    if not folder.is_dir():
        return "isn't a folder of this machine"
    return None if (folder / CONFIG).is_file() else f"has no {CONFIG}"


def digest_of(folder: Path) -> str:
    """What identifies a folder's checkpoint: names, sizes and (large ones in part) contents of its files.

    Raises NoCheckpoint: it isn't there, or has no config.
    """
    if (why := why_none(folder)) is not None:
        raise NoCheckpoint(f"{folder} {why}: name the folder that save_pretrained() wrote, as hub_id")
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as opened:
            if size <= BLOCKS * BLOCK_BYTES:
                digest.update(opened.read())
                continue
            for number in range(BLOCKS):
                opened.seek(number * (size - BLOCK_BYTES) // (BLOCKS - 1))
                digest.update(opened.read(BLOCK_BYTES))
    return digest.hexdigest()[:DIGEST_DIGITS]
