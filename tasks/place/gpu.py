"""The cards of this machine, as the driver shows them, and which of them a process may use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

FIELDS = ("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "clocks.sm")
CSV = "--format=csv,noheader,nounits"
ANSWER_S = 30.0  # longer than a driver that has to wake its cards takes to answer


class Card(NamedTuple):
    """One card. Memory in MiB, the SM clock in MHz; None where the driver doesn't say."""

    number: str
    uuid: str
    name: str
    driver: str
    memory_mib: float | None
    used_mib: float | None
    clock_mhz: float | None


class Holder(NamedTuple):
    """A process that has memory of a card, in MiB; None where the driver doesn't say."""

    uuid: str
    pid: str
    used_mib: float | None
    name: str


def cards() -> list[Card] | None:
    """All cards of this machine, in the driver's order; None: no driver is installed, or it doesn't answer."""
    said = _asked(f"--query-gpu={','.join(FIELDS)}", CSV)
    if said is None:
        return None
    lines = ([field.strip() for field in line.split(",")] for line in said.splitlines())
    return [
        Card(*fields[:4], *map(_number, fields[4:]))  # type: ignore[arg-type]
        for fields in lines
        if len(fields) == len(FIELDS)
    ]


def holders() -> list[Holder]:
    """Processes that have memory of a card; those outside of this container are not shown."""
    said = _asked("--query-compute-apps=gpu_uuid,pid,used_memory,process_name", CSV) or ""
    lines = ([field.strip() for field in line.split(",", 3)] for line in said.splitlines())
    rows = (fields for fields in lines if len(fields) == len(Holder._fields))
    return [Holder(uuid, pid, _number(used), name) for uuid, pid, used, name in rows]


def cuda_version() -> str | None:
    """The newest CUDA that the driver serves, such as 13.0, as the table's head says; None: it doesn't say."""
    found = re.search(r"CUDA (?:UMD )?Version: *(\d+\.\d+)", _asked() or "")
    return found[1] if found else None


def _asked(*words: str) -> str | None:
    """What nvidia-smi says; None: no driver is installed, or it doesn't answer."""
    if not shutil.which("nvidia-smi"):
        return None
    try:
        done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def visible(found: Sequence[Card], said: str | None) -> list[Card]:
    """Those that CUDA shows a process, in its order, as the driver reads CUDA_VISIBLE_DEVICES.

    It has numbers, or how uuids begin; the first that names no card ends it.
    """
    if said is None:
        return list(found)
    shown: list[Card] = []
    for name in map(str.strip, said.split(",")):
        named = [card for card in found if name and (card.number == name or card.uuid.startswith(name))]
        if len(named) != 1:
            break
        shown += named
    return shown


def name_here() -> str | None:
    """Name by the driver of the first card that this process would use; None: there is no card."""
    shown = visible(cards() or [], os.environ.get("CUDA_VISIBLE_DEVICES"))
    return shown[0].name if shown else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # "[N/A]": this driver doesn't say
