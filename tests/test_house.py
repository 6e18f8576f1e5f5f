"""The floor plan holds: no circle of imports on any floor, and no folder that has become a corridor."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

from configs.checkout import ROOT

HOUSE = ("configs", "warehouse", "tasks", "lab", "flows")
"""The rooms that hold code, lowest first: each may use those before it."""

MOST_FILES = 17
"""Files of its own that a folder may have."""

FILES = sorted(path.relative_to(ROOT) for room in HOUSE for path in (ROOT / room).rglob("*.py"))

Arrow = tuple[Path, Path]


def imported(file: Path) -> Iterator[Path]:
    """Files of the house that a file imports: at run time, inside functions, or for types only."""
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from filter(None, map(file_of, names))


def file_of(name: str) -> Path | None:
    """The file behind a dotted name, or behind what it is taken from; none: not of this house."""
    parts = name.split(".")
    if parts[0] not in HOUSE:
        return None
    for length in (len(parts), len(parts) - 1):
        path = Path(*parts[:length])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if (ROOT / file).is_file():
                return file
    return None


ARROWS: list[Arrow] = [(file, other) for file in FILES for other in imported(file) if other != file]


def floors() -> list[Path]:
    """Every folder that holds code, and the house itself."""
    return sorted({Path(), *(parent for file in FILES for parent in file.parents)})


@pytest.mark.parametrize("floor", floors(), ids=str)
def test_the_doors_of_a_folder_lead_one_way(floor: Path) -> None:
    """A folder's own files and its sub-folders, each taken as one, import one another without a circle."""
    doors: dict[Arrow, list[str]] = {}
    for source, target in ARROWS:
        if floor in source.parents and floor in target.parents:
            here, there = (Path(path.relative_to(floor).parts[0]) for path in (source, target))
            if here != there:
                doors.setdefault((here, there), []).append(f"{source} -> {target}")
    rooms: dict[Path, set[Path]] = {}
    for here, there in doors:
        rooms.setdefault(here, set()).add(there)
    try:
        TopologicalSorter(rooms).prepare()
    except CycleError as error:
        circle = [door for step in pairwise(reversed(error.args[1])) for door in doors[step]]
        pytest.fail(f"a circle in {floor}:\n" + "\n".join(circle))


def test_nobody_uses_a_room_above() -> None:
    upward = [
        f"{source} imports {target}"
        for source, target in ARROWS
        if HOUSE.index(target.parts[0]) > HOUSE.index(source.parts[0])
    ]
    assert not upward


def test_nobody_imports_the_trainer_of_the_shipped_models() -> None:
    """Nodes have no torch of their own; who wants a training starts it."""
    trainer = Path("tasks/family/training")
    assert trainer in floors()
    assert not [f"{source} imports {target}" for source, target in ARROWS if target.parent == trainer != source.parent]


@pytest.mark.parametrize("floor", floors(), ids=str)
def test_no_folder_is_a_corridor(floor: Path) -> None:
    own = [path.name for path in (ROOT / floor).iterdir() if path.is_file() and path.suffix == ".py"]
    assert len(own) <= MOST_FILES, f"{floor} has {len(own)} files of its own: make rooms"


IN_THE_LAB = [Path(f"lab/bodies/{name}.py") for name in ("body", "connect", "cover", "init", "probe", "ssh_server")]
"""What is started where nothing but lab/ can be seen, besides the daemon."""


@pytest.mark.parametrize("entry", [Path("lab/control/daemon.py"), *IN_THE_LAB], ids=str)
def test_what_runs_inside_the_lab_needs_nothing_but_the_lab(entry: Path) -> None:
    needed, new = set[Path](), {entry}
    while new:
        needed |= new
        new = {target for source, target in ARROWS if source in new} - needed
    assert {file.parts[0] for file in needed} == {"lab"}
