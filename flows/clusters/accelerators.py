"""The cards that a task rents, held against those that a plan's cells are served on, before anything is paid for.

They are read as SkyPilot reads them (0.14.1, `Resources.from_yaml_config`): `H100`, `H100:8`, `{H100: 8}`, lists of
these, by their memory (`80GB+`), under `gpus`, too, and in each entry of `any_of` or `ordered`. A task that names a
machine instead isn't looked at: what is in it only the catalogue knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from configs.cell import Gpu
from configs.schema import Plan
from flows.clusters.skypilot.task_file import TaskFile

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
    needed = {planned.cell.cards: planned.cell.label for planned in plan.cells}
    for field, asked in _asked(file.config["resources"]):
        try:
            problems = [_other(rented, plan.gpu, needed) for rented in _cards(asked)]
        except ValueError:
            problems = ["is no number of cards; accepted: e.g. H100:1"]
        for problem in filter(None, problems):
            raise file.wrong(field, asked, problem)


def _other(rented: _Cards, gpu: Gpu, needed: Mapping[int, str]) -> str | None:
    """Why a cell can't have these cards, and what it could have; `needed` are the cells by how many they need."""
    if rented.name and gpu.sky_names and rented.name.lower() not in map(str.lower, gpu.sky_names):
        names = ", ".join(gpu.sky_names)
        return (
            f"the sweep's gpu is {gpu.name}; accepted: {names} (`sky_names` in its file), or another gpu in the sweep"
        )
    name = rented.name or next(iter(gpu.sky_names), gpu.name)
    for cards, label in needed.items():
        if rented.number != cards:
            remedy = f"accepted: {name}:{cards}, or other parallel sizes in the engine's `args`"
            return f"{label} needs {cards} x {gpu.name}; {remedy}"
    return None


def _asked(resources: dict[str, object]) -> Iterator[tuple[str, object]]:
    """What each place that the task allows is asked to have, by the field that says so."""
    lists = {key: entries for key in ("any_of", "ordered") if isinstance(entries := resources.get(key), list)}
    places = [(f".{key}[{i}]", entry) for key, entries in lists.items() for i, entry in enumerate(entries)]
    for where, entry in places or [("", resources)]:
        own = {"accelerators", "gpus"} & set(entry) if isinstance(entry, dict) else set()
        place, inside = (entry, where) if own else (resources, "")
        for name in ("accelerators", "gpus"):
            if place.get(name):
                yield f"resources{inside}.{name}", place[name]


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
