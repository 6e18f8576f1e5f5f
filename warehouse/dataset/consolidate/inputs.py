"""What there is to consolidate, read off the ledger; and the one rule of which AR cell a cell is compared with.

A committed part is read once, when asked for, checked with its commit and reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import polars as pl
from polars.exceptions import PolarsError

from configs.schema import PlannedCell
from configs.step import MeasuredStep
from configs.visits import Visit, split_name, unmeasured
from warehouse.ledger.commits import Commit, Ledger, Part, in_force, newest, read_regrade
from warehouse.ledger.lease import Attempt, Leases
from warehouse.ledger.placement import Placements, PlacementStory
from warehouse.ledger.runs import OUT, OddRun
from warehouse.ledger.store import Store, StoreError
from warehouse.ledger.tables import ColumnType, Table, sha256_hex


def bench_of(planned: PlannedCell) -> tuple[str, str, str, str]:
    """What two cells of a run share that may be compared; a model may be held against another model's AR."""
    cell = planned.cell
    return cell.model.compared_as, cell.precision.name, cell.engine.name, planned.gpu.name


def baseline_among(planned: PlannedCell, cells: Iterable[PlannedCell]) -> PlannedCell | None:
    """The AR cell that a cell of the same run is compared with; None for AR itself, and where there is none.

    Of several, one with the same serving arguments comes first. Dummy weights are only compared with dummy weights.
    """
    if planned.cell.technique.is_baseline:
        return None
    model, serving = planned.cell.model, planned.cell.serving
    found = (
        each
        for each in cells
        if each.cell.technique.is_baseline
        and bench_of(each) == bench_of(planned)
        and (each.cell.model.name, each.cell.model.weights) == (model.compared_as, model.weights)
    )
    return min(found, key=lambda each: (each.cell.serving != serving, each.cell.cell_key), default=None)


def reference_among(planned: PlannedCell, cells: Iterable[PlannedCell]) -> PlannedCell | None:
    """The AR cell of another precision that a cell of the same run is held against; None: its row names none."""
    named, cell = planned.held_against, planned.cell
    if named is None:
        return None
    bench = (named.model, named.precision, cell.engine.name, planned.gpu.name)
    found = (
        each
        for each in cells
        if each.cell.technique.is_baseline and (each.cell.model.name, *bench_of(each)[1:]) == bench
        if each.cell.model.weights == cell.model.weights
    )
    return min(found, key=lambda each: (each.cell.serving != cell.serving, each.cell.cell_key), default=None)


READERS = 16  # small objects read at the same time: an S3 answer takes tens of milliseconds, and a run has thousands
Identity = tuple[str, str, str]  # what raw rows call a committed step: run, cell, step
STEP = ("run_id", "cell_key", "step")  # the columns that tie a raw row to its committed step


class CommittedStep(NamedTuple):
    """One step of one cell that a commit made visible."""

    run_id: str
    cell_key: str
    planned: PlannedCell
    commit: Commit
    attempts: int  # closed attempts of the cell

    @property
    def identity(self) -> Identity:
        """Run, cell and step, as raw rows name them."""
        return self.run_id, self.cell_key, self.commit.step

    @property
    def spec(self) -> MeasuredStep | None:
        """The step as it was planned; None: the plan has no such step."""
        return next((spec for spec in self.planned.steps if spec.step == self.name), None)

    @property
    def name(self) -> str:
        """The step's name, whichever start it was measured in."""
        return split_name(self.commit.step)[0]

    @property
    def visit(self) -> Visit:
        """In which engine start it was measured."""
        return split_name(self.commit.step)[1]

    def wrote(self, table: Table) -> bool:
        """Whether its commit names a part of that table."""
        return any(part.table == table.name for part in self.commit.parts)

    @property
    def is_baseline(self) -> bool:
        """Whether the cell decodes autoregressively, so that others are compared with it."""
        return self.planned.cell.technique.is_baseline


class CellHistory(NamedTuple):
    """Closed attempts and placements of one cell of one run, oldest first, and what no attempt has committed."""

    run_id: str
    planned: PlannedCell
    attempts: tuple[Attempt, ...]
    placements: tuple[PlacementStory, ...]
    unmeasured: tuple[str, ...] = ()


class Inventory(NamedTuple):
    """Everything a build looks at."""

    steps: tuple[CommittedStep, ...]
    histories: tuple[CellHistory, ...]
    plans: Mapping[str, tuple[PlannedCell, ...]]  # cells of each run, including those that have not been tried yet


def take_inventory(store: Store, run_ids: Sequence[str], skip: Callable[[OddRun], None] | None = None) -> Inventory:
    """Committed steps and attempts of the runs, in a fixed order.

    A run that this version can't read is told to `skip`, and left out; without one, `OddRun` is raised.
    """
    steps: list[CommittedStep] = []
    histories: list[CellHistory] = []
    plans: dict[str, tuple[PlannedCell, ...]] = {}
    with ThreadPoolExecutor(READERS) as pool:
        for run_id in run_ids:
            try:
                ledger = Ledger(store, run_id)
                plan = ledger.plan().cells
                cells = _cells(ledger, plan)
                found = list(pool.map(lambda item, ledger=ledger: _cell(ledger, *item), cells))
            except OddRun as odd:
                if skip is None:
                    raise
                skip(odd)
                continue
            plans[run_id] = plan
            for history, committed in found:
                histories += history
                steps += committed
    return Inventory(tuple(steps), tuple(histories), plans)


Graded = tuple[str, int]  # a committed step's name, and the number of its newest regrade; 0: it has none


def _cells(ledger: Ledger, plan: Sequence[PlannedCell]) -> list[tuple[str, list[Graded]]]:
    keys = ledger.keys()
    committed, regraded = ledger.committed_steps(keys), newest(keys)
    planned = {planned.cell.cell_key for planned in plan}
    return [
        (cell, [(step, regraded.get((cell, step), 0)) for step in sorted(committed.get(cell, ()))])
        for cell in sorted(planned | set(committed))
    ]


def _cell(ledger: Ledger, cell_key: str, steps: Sequence[Graded]) -> tuple[list[CellHistory], list[CommittedStep]]:
    """History and committed steps of one cell, as last graded; nothing of a cell that has not been tried yet."""
    attempts = tuple(Leases(ledger, cell_key).attempts())
    placements = tuple(Placements(ledger, cell_key).stories())
    if not steps and not attempts and not placements:
        return [], []
    planned = ledger.planned_cell(cell_key)
    commits = [(ledger.read_commit(cell_key, name), name, number) for name, number in steps]
    found = [
        in_force(commit, read_regrade(ledger, cell_key, name, number) if number else None)
        for commit, name, number in commits
        if commit is not None
    ]
    left = unmeasured(planned.measurements, {commit.step: commit.is_usable for commit in found})
    history = CellHistory(ledger.run_id, planned, attempts, placements, tuple(each.name for each in left))
    return [history], [CommittedStep(ledger.run_id, cell_key, planned, commit, len(attempts)) for commit in found]


Group = tuple[CommittedStep, ...]  # steps that are compared with each other


def comparison_groups(steps: Sequence[CommittedStep]) -> list[Group]:
    """Steps of the same run, model, precision, engine and kind of machine; nothing outside is a fair comparison.

    Where a row is held against another precision, the two are one group.
    """
    joined: dict[tuple[str, ...], tuple[str, ...]] = {}

    def first(bench: tuple[str, ...]) -> tuple[str, ...]:
        while bench in joined:
            bench = joined[bench]
        return bench

    groups: dict[tuple[str, ...], list[CommittedStep]] = {}
    for step in steps:
        own = (step.run_id, *bench_of(step.planned))
        if (named := step.planned.held_against) is not None:
            there = first((step.run_id, named.model, named.precision, *own[3:]))
            if there != first(own):
                joined[first(own)] = there
    for step in steps:
        groups.setdefault(first((step.run_id, *bench_of(step.planned))), []).append(step)
    return [tuple(groups[key]) for key in sorted(groups)]


Choose = Callable[[PlannedCell, Iterable[PlannedCell]], PlannedCell | None]


def baseline_of(step: CommittedStep, group: Group, choose: Choose = baseline_among) -> CommittedStep | None:
    """The AR cell's step of the same name; None for AR itself, and where AR has no such step."""
    candidates = {other.cell_key: other for other in group if other.commit.step == step.commit.step}
    found = choose(step.planned, (other.planned for other in candidates.values()))
    return None if found is None else candidates[found.cell.cell_key]


def batches(
    groups: Sequence[Group], max_rows: int, max_parts: int, unread: Collection[str] = ()
) -> Iterator[list[Group]]:
    """Whole groups, as many at a time as fit the limits, which bounds a build's memory; a larger group comes alone."""
    batch: list[Group] = []
    rows = parts = 0
    for group in groups:
        named = [part for step in group for part in step.commit.parts if part.table not in unread]
        group_rows = sum(part.rows for part in named)
        if batch and (rows + group_rows > max_rows or parts + len(named) > max_parts):
            yield batch
            batch, rows, parts = [], 0, 0
        batch.append(group)
        rows, parts = rows + group_rows, parts + len(named)
    if batch:
        yield batch


Rows = list[dict[str, Any]]

Reduce = Callable[[pl.LazyFrame], pl.LazyFrame]
"""Turns many rows into few, or into other columns; a module's function, because results are cached by it."""

POLARS_TYPES: dict[ColumnType, Any] = {
    "str": pl.String, "i64": pl.Int64, "f64": pl.Float64, "bool": pl.Boolean,
    "list[str]": pl.List(pl.String), "list[i64]": pl.List(pl.Int64), "list[f64]": pl.List(pl.Float64),
}  # fmt: skip


def polars_schema(table: Table) -> pl.Schema:
    """The table's columns as polars types, in declared order."""
    return pl.Schema({column.name: POLARS_TYPES[column.type] for column in table.columns})


def unchanged(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The default `Reduce`: the rows as they were written."""
    return frame


class Raw:
    """Raw rows of a batch of committed steps: a table's parts are read once, and reduced, when a step asks for it."""

    def __init__(self, store: Store, steps: Sequence[CommittedStep]) -> None:
        """Of these steps, all of each cell; nothing is read yet."""
        self._store = store
        self._steps: dict[tuple[str, str], list[CommittedStep]] = {}
        for step in steps:
            self._steps.setdefault((step.run_id, step.cell_key), []).append(step)
        self._parts: dict[str, list[Part]] = {}
        for part in (part for step in steps for part in step.commit.parts):
            self._parts.setdefault(part.table, []).append(part)
        self._data: dict[str, list[bytes]] = {}
        self._frames: dict[tuple[str, Reduce], dict[Identity, pl.DataFrame]] = {}
        self._rows: dict[tuple[str, Reduce], dict[Identity, Rows]] = {}

    def beside(self, step: CommittedStep) -> list[CommittedStep]:
        """All committed steps of the step's cell, itself included: a cell is never split between batches."""
        return self._steps[step.run_id, step.cell_key]

    def rows(self, step: CommittedStep, table: Table, reduce: Reduce = unchanged) -> Rows:
        """A step's rows of a table as Python dicts, so reduce them to few; `frame` is for many."""
        key = (table.name, reduce)
        if key not in self._rows:
            found = self._rows[key] = {}
            for row in self._collected(table, reduce).iter_rows(named=True):
                found.setdefault((row["run_id"], row["cell_key"], row["step"]), []).append(row)
        return self._rows[key].get(step.identity, [])

    def frame(self, step: CommittedStep, table: Table, reduce: Reduce = unchanged) -> pl.DataFrame | None:
        """A step's rows of a table; None: it has none.

        `reduce` is applied first, to all rows of the batch, and must keep the columns `STEP`. Columns that older parts
        lack are null. StoreError: a part is missing, or is not what its commit says. OddRun: it has columns that this
        version doesn't know.
        """
        key = (table.name, reduce)
        if key not in self._frames:
            split = self._collected(table, reduce).partition_by(*STEP, as_dict=True, include_key=False)
            self._frames[key] = {(str(run), str(cell), str(name)): frame for (run, cell, name), frame in split.items()}
        return self._frames[key].get(step.identity)

    def _collected(self, table: Table, reduce: Reduce) -> pl.DataFrame:
        try:
            return reduce(_scan(self._verified(table.name), table)).collect(engine="streaming")
        except PolarsError as error:
            for part, data in zip(self._parts[table.name], self._verified(table.name), strict=True):
                _require_readable(part, data, table)
            raise StoreError(f"parts of table {table.name} can't be read together: {error}") from error

    def _verified(self, table: str) -> list[bytes]:
        """Bytes of a table's parts, each compared with the hash that its commit recorded; fetched once."""
        if table not in self._data:
            with ThreadPoolExecutor(READERS) as pool:
                self._data[table] = list(pool.map(partial(_read, self._store), self._parts.get(table, ())))
        return self._data[table]


def _read(store: Store, part: Part) -> bytes:
    data = store.get(part.key)
    if data is None:
        raise StoreError(f"{store.uri(part.key)} is named by a commit but gone: restore it, or leave its run out")
    if sha256_hex(data) != part.sha256:
        raise StoreError(f"{store.uri(part.key)} is not the file its commit names (sha256 differs): restore it")
    return data


def _require_readable(part: Part, data: bytes, table: Table) -> None:
    try:
        _scan([data], table).collect()
    except PolarsError as error:
        run_id, why = part.key.split("/")[1], " ".join(str(error).split())
        problem = f"run {run_id!r} was written by a newer version of specsweep ({part.key}: {why})"
        raise OddRun(run_id, f"{problem}: use that version, or {OUT}") from error


def _scan(sources: list[bytes], table: Table) -> pl.LazyFrame:
    """The table's parts as one lazy frame; columns that older parts lack are null."""
    schema = polars_schema(table)
    if not sources:
        return pl.LazyFrame(schema=schema)
    return pl.scan_parquet(sources, schema=schema, missing_columns="insert", extra_columns="raise")
