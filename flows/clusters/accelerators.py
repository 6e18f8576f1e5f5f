"""The cards that a task rents, held against those that a plan's cells are served on, before anything is paid for.

They are read as SkyPilot reads them (0.14.1, `Resources.from_yaml_config`): `H100`, `H100:8`, `{H100: 8}`, lists of
these, by their memory (`80GB+`), under `gpus`, too, and in each entry of `any_of` or `ordered`. A task that names a
machine instead isn't looked at: what is in it only the catalogue knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from configs.schema import Plan, PlannedCell
from flows.clusters.skypilot.task_file import TaskFile
from tasks.engine.program import serves_on_cards

_MEMORY = re.compile(r"\d+[GMT]B\+?", re.IGNORECASE)


class _Cards(NamedTuple):
    """So many cards of one name; None: whichever has the memory that was asked for."""

    name: str | None
    number: float


def require_cards(file: TaskFile, plan: Plan) -> None:
    """Refuse a task that rents another card than the plan's, or more or fewer than a cell is served on.

    Raises:
        TaskFileError: so it does, in one of the places that it allows.
    """
    for field, asked in _asked(file):
        try:
            problems = [_other(rented, planned) for rented in _cards(asked) for planned in plan.cells]
        except ValueError:
            problems = ["is no number of cards; accepted: e.g. H100:1"]
        for problem in filter(None, problems):
            raise file.wrong(field, asked, problem)


def _other(rented: _Cards, planned: PlannedCell) -> str | None:
    """Why a cell can't have these cards, or is planned as if it had none, and what would be accepted."""
    gpu, cell = planned.gpu, planned.cell
    if gpu.bandwidth_gb_s is None and not gpu.is_card and serves_on_cards(cell.engine):
        remedy = "accepted: the card's name in configs/gpus, or an engine for processors"
        return f"the sweep's gpu is {gpu.name}, and its engine {cell.engine.name!r} serves on cards; {remedy}"
    if rented.name and gpu.sky_names and rented.name.lower() not in map(str.lower, gpu.sky_names):
        remedy = f"accepted: {', '.join(gpu.sky_names)} (`sky_names` in its file), or another gpu in the sweep"
        return f"the sweep's gpu is {gpu.name}; {remedy}"
    if rented.number != cell.cards:
        name = rented.name or next(iter(gpu.sky_names), gpu.name)
        remedy = f"accepted: {name}:{cell.cards}, or other parallel sizes in the engine's `args`"
        return f"{cell.label} needs {cell.cards} x {gpu.name}; {remedy}"
    return None


def _asked(file: TaskFile) -> Iterator[tuple[str, object]]:
    """What each place that the task allows is asked to have, by the field that says so."""
    of_all = ("resources", file.config["resources"])
    for entry in file.entries:
        field, place = entry if {"accelerators", "gpus"} & set(entry[1]) else of_all
        for name in ("accelerators", "gpus"):
            if place.get(name):
                yield f"{field}.{name}", place[name]


def _cards(asked: object) -> Iterator[_Cards]:
    """The cards of each alternative.

    Raises:
        ValueError: a count is no number.
    """
    if isinstance(asked, dict):
        texts: list[object] = [name if count is None else f"{name}:{count}" for name, count in asked.items()]
    else:
        texts = list(asked) if isinstance(asked, list | set) else [asked]
    for text in texts:
        *before, last = str(text).split(":")
        counted = bool(before) and not _MEMORY.fullmatch(last)
        named = before if counted else [*before, last]
        by_memory = any(_MEMORY.fullmatch(word) for word in named)
        yield _Cards(None if by_memory else ":".join(named), float(last) if counted else 1)
