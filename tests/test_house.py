"""The floor plan holds: each room imports those below it only, no folder has a circle, and a node needs little."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

from configs.checkout import ROOT
from tasks.host.environments import ensure

LEDGER, DATASET, REPORT = (f"warehouse/{name}" for name in ("ledger", "dataset", "report"))

MAY_IMPORT = {
    "configs": set[str](),
    LEDGER: {"configs"},
    DATASET: {"configs", LEDGER},
    REPORT: {"configs", LEDGER, DATASET},
    "tasks": {"configs", LEDGER},
    "lab": {"configs", "tasks"},
    "flows": {"configs", LEDGER, DATASET, REPORT, "tasks", "lab"},
}
"""Rooms that hold code, and which others each may import, for types too."""

HOUSE = tuple(dict.fromkeys(room.split("/")[0] for room in MAY_IMPORT))

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


@cache
def arrows() -> tuple[Arrow, ...]:
    return tuple((file, other) for file in FILES for other in imported(file) if other != file)


def needed_by(*files: Path) -> set[Path]:
    """Files that are imported where these are, themselves and the doors of all their folders among them."""
    needed, new = set[Path](), set(files)
    while new:
        needed |= new
        doors = {parent / "__init__.py" for file in new for parent in file.parents if parent != Path()}
        new = (doors & set(FILES) | {target for source, target in arrows() if source in new}) - needed
    return needed


FLOORS = sorted({Path(), *(parent for file in FILES for parent in file.parents)})
"""Every folder that holds code, and the house itself."""


@pytest.mark.parametrize("floor", FLOORS, ids=str)
def test_the_doors_of_a_folder_lead_one_way(floor: Path) -> None:
    """A folder's own files and its sub-folders, each taken as one, import one another without a circle."""
    doors: dict[Arrow, list[str]] = defaultdict(list)
    for source, target in arrows():
        if floor in source.parents and floor in target.parents:
            here, there = (Path(path.relative_to(floor).parts[0]) for path in (source, target))
            if here != there:
                doors[here, there].append(f"{source} -> {target}")
    rooms = TopologicalSorter[Path]()
    for here, there in doors:
        rooms.add(here, there)
    try:
        rooms.prepare()
    except CycleError as error:
        circle = [door for step in pairwise(reversed(error.args[1])) for door in doors[step]]
        pytest.fail(f"a circle in {floor}:\n" + "\n".join(circle))


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    allowed = {Path(each) for each in (room, *MAY_IMPORT[room])}
    own = [arrow for arrow in arrows() if Path(room) in arrow[0].parents]
    assert not [f"{source} imports {target}" for source, target in own if not allowed & {*target.parents}]


def test_a_node_needs_no_dataset_no_page_and_no_polars() -> None:
    """The runner and every step, imported in the environment of a node."""
    program = (
        "import json, sys, tasks.cell\n"
        "from configs.step import step_module, step_names\n"
        "steps = [step_module('tasks', name).__name__ for name in step_names()]\n"
        "print(json.dumps([steps, sorted(sys.modules)]))\n"
    )
    argv = [str(ensure("node")), "-c", program]
    steps, modules = json.loads(subprocess.check_output(argv, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}))
    assert len(steps) > 1 and {"tasks.runner", "warehouse.ledger.commits", *steps} <= set(modules)
    above = re.compile(r"(warehouse\.(dataset|report)|polars|flows)(\.|$)")
    assert not [module for module in modules if above.match(module)]


def test_the_client_needs_neither_a_store_nor_parquet() -> None:
    """It starts in a moment, also where nothing is stored; `bench/client.py` says in how many milliseconds."""
    assert "warehouse" not in {file.parts[0] for file in needed_by(Path("tasks/client/client.py"))}


def test_nobody_imports_the_trainer_of_the_shipped_models() -> None:
    """Nodes have no torch of their own; who wants a training starts it."""
    trainer = Path("tasks/family/training")
    assert trainer in FLOORS
    found = [arrow for arrow in arrows() if arrow[1].parent == trainer != arrow[0].parent]
    assert not [f"{source} imports {target}" for source, target in found]


IN_THE_LAB = [Path(f"lab/bodies/{name}.py") for name in ("body", "connect", "cover", "init", "mounts", "ssh_server")]
"""Programs that start inside the lab, besides the daemon. They see no other folder of this repository."""


@pytest.mark.parametrize("entry", [Path("lab/control/daemon.py"), *IN_THE_LAB], ids=str)
def test_what_runs_inside_the_lab_needs_nothing_but_the_lab(entry: Path) -> None:
    assert {file.parts[0] for file in needed_by(entry)} == {"lab"}


def test_no_two_test_files_share_a_name() -> None:
    """pytest imports a test file by its bare name, so a second one of that name can't be collected beside it."""
    paths = defaultdict[str, list[Path]](list)
    for path in ROOT.glob("tests/**/test_*.py"):
        paths[path.name].append(path)
    assert [same for same in paths.values() if len(same) > 1] == []
