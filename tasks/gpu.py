"""The cards of this machine, as the driver shows them, and which of them a process may use."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

FIELDS = ("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "clocks.sm")

ANSWER_S = 30.0
"""Longer than a driver that has to wake its cards takes to answer."""


class Card(NamedTuple):
    """One card. Memory in MiB, the SM clock in MHz; None where the driver doesn't say."""

    number: str
    uuid: str
    name: str
    driver: str
    memory_mib: float | None
    used_mib: float | None
    clock_mhz: float | None


def cards() -> list[Card] | None:
    """All cards of this machine, in the driver's order; None: no driver is installed, or it doesn't answer."""
    if not shutil.which("nvidia-smi"):
        return None
    argv = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        return None
    lines = ([field.strip() for field in line.split(",")] for line in done.stdout.splitlines())
    return [
        Card(*fields[:4], *map(_number, fields[4:]))  # type: ignore[arg-type]
        for fields in lines
        if len(fields) == len(FIELDS)
    ]


def visible(found: Sequence[Card], said: str | None) -> list[Card]:
    """Those that CUDA shows a process, in its order.

    As the driver reads CUDA_VISIBLE_DEVICES: numbers, or how uuids begin; the first that names no card ends it.

    Args:
        found: all cards.
        said: the variable's text; None: it is not set, and all are visible.
    """
    if said is None:
        return list(found)
    shown: list[Card] = []
    for name in (word.strip() for word in said.split(",")):
        named = [card for card in found if name and (card.number == name or card.uuid.startswith(name))]
        if len(named) != 1:
            break
        shown += named
    return shown


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # "[N/A]": this driver doesn't say
