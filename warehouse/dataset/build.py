"""The build: groups of comparable steps in, rows of the product tables out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, cast

from configs.step import MeasuredStep, module_of, step_module, step_names
from warehouse.dataset.bill import BillLine, bill
from warehouse.dataset.consolidate.comparable import barred, cells_that_fail_parity, lossless_cells
from warehouse.dataset.consolidate.inputs import (
    CellHistory,
    CommittedStep,
    Group,
    Raw,
    batches,
    comparison_groups,
    take_inventory,
)
from warehouse.dataset.consolidate.pairs import settled
from warehouse.dataset.consolidate.rows import Made, Row, is_first, labels, plain_row
from warehouse.dataset.consolidate.speed.settled import settled_speeds
from warehouse.dataset.k_curves import k_curves
from warehouse.dataset.tables import ATTEMPTS
from warehouse.ledger.lease import Attempt
from warehouse.ledger.placement import PlacementStory
from warehouse.ledger.runs import OddRun
from warehouse.ledger.store import Store
from warehouse.ledger.tables import COMMON_TABLES, Table
from warehouse.ledger.verdicts import Reason


class StepFile(Protocol):
    """What every `warehouse/dataset/steps/<step>.py` provides."""

    TABLES: tuple[Table, ...]  # raw tables that only this step writes

    def rows(self, group: Group, raw: Raw) -> Made:
        """Rows of the dataset, for all cells of one comparison group at once."""


def file_of(spec: MeasuredStep) -> StepFile:
    """The file that makes a step's rows. StepIncomplete: there is none."""
    return cast(StepFile, module_of("warehouse.dataset", spec))


def raw_tables() -> dict[str, Table]:
    """All tables that a node writes, by name."""
    files = [cast(StepFile, step_module("warehouse.dataset", name)) for name in step_names()]
    return {table.name: table for table in (*(table for file in files for table in file.TABLES), *COMMON_TABLES)}


BATCH_ROWS = 200_000
"""Raw rows reduced at a time, unless one comparison group has more; bounds memory whatever the store holds.

Rows of tables that are only kept (`Table.is_consolidated`) don't count, for nothing fetches them."""

BATCH_PARTS = 1_000  # parts read at a time

_CELL = ("model", "precision", "technique", "k")
_CURVE = ("model", "precision", "technique", "draft", "step", "concurrency", "condition", "mode", "run_id", "k")

ORDERS = {
    "results": (*_CELL, "step", "condition", "mode", "metric", "extractor", "run_id", "cell_key"),
    "pairs": (*_CELL, "kind", "step", "condition", "mode", "run_id", "cell_key"),
    "visits": (*_CELL, "step", "condition", "mode", "run_id", "machine", "position", "cell_key", "role", "visit",
               "complete"),
    "load": (*_CELL, "step", "concurrency", "category", "run_id", "cell_key"),
    "k_curves": _CURVE,
    "recommendations": _CURVE,
}  # fmt: skip
"""Order of each table's rows.

Run and cell come last, so that equal rows of several runs are neighbours; starts of one machine are as they were made.
"""


class Consolidated(NamedTuple):
    """Rows of the product tables, in their fixed order."""

    results: list[Row]
    pairs: list[Row]
    visits: list[Row]
    load: list[Row]
    k_curves: list[Row]
    recommendations: list[Row]
    attempts: list[Row]


def consolidate(store: Store, run_ids: Sequence[str], skip: Callable[[OddRun], None] | None = None) -> Consolidated:
    """Turn the commits and attempts of these runs into rows of the product tables.

    StoreError: a part is not what its commit says. OddRun: a run is none for this version; those whose records say so
    are told to `skip`, if there is one, and left out.
    """
    inventory = take_inventory(store, run_ids, skip)
    parts: list[Made] = []
    unread = [name for name, table in raw_tables().items() if not table.is_consolidated]
    for batch in batches(comparison_groups(inventory.steps), BATCH_ROWS, BATCH_PARTS, unread):
        raw = Raw(store, [step for group in batch for step in group])
        for file, steps in (each for group in batch for each in _by_kind(group)):
            if file is None:  # one row without a figure per cell of a step that this version can't measure
                parts.append(Made([plain_row(step, raw) for step in steps if is_first(step, raw)]))
            else:
                parts.append(file.rows(steps, raw))
    results = [result for each in parts for result in each.results]
    starts = [start for each in parts for start in each.visits]
    load = [row for each in parts for row in each.load]
    standings = {key: stands for each in parts for key, stands in each.standings.items()}
    failed = cells_that_fail_parity(results, lossless_cells(inventory.steps))  # only what is ok makes a claim
    speeds = settled_speeds(barred(results, failed), barred(starts, failed), standings)
    pairs = settled([pair for each in parts for pair in each.pairs], failed)
    dropped = {(step.run_id, step.cell_key) for step in inventory.steps if Reason.DROPPED in step.commit.reasons}
    curves = k_curves(inventory.plans, speeds.results, load, speeds.known, dropped)
    made = {
        "results": speeds.results,
        "pairs": [*pairs, *speeds.pairs],
        "visits": speeds.visits,
        "load": with_verdicts(load, speeds.results),
        **curves._asdict(),
    }
    attempts = [row for history in inventory.histories for row in attempt_rows(history)]
    return Consolidated(**{name: _ordered(rows, ORDERS[name]) for name, rows in made.items()}, attempts=attempts)


def _by_kind(group: Group) -> Iterator[tuple[StepFile | None, Group]]:
    """The group's steps by the file that knows their tables; None: this version can't measure the step."""
    kinds: dict[type | None, list[CommittedStep]] = {}
    for step in group:
        kinds.setdefault(None if step.spec is None else type(step.spec), []).append(step)
    for steps in map(tuple, kinds.values()):
        yield None if steps[0].spec is None else file_of(steps[0].spec), steps


def _ordered(rows: Sequence[Row], columns: Sequence[str]) -> list[Row]:
    """Sorted by nullable columns, nulls first."""
    return sorted(rows, key=lambda row: [(row.get(name) is not None, row.get(name)) for name in columns])


RECORDED = tuple(name for name in ATTEMPTS.column_names() if name in Attempt.model_fields)
"""Columns that an attempt's own record has."""


def attempt_rows(history: CellHistory) -> list[Row]:
    """A row per closed attempt and per machine that is down; one that is still up has no bill yet."""
    identity = {
        "run_id": history.run_id,
        "cell_key": history.planned.cell.cell_key,
        **labels(history.planned.cell, history.planned),
        "unmeasured": list(history.unmeasured),
    }
    return [identity | _row(line) for line in bill(history.placements, history.attempts)]


def _row(line: BillLine) -> Row:
    story = line.story
    if line.attempt is not None:
        # a record says "" where it has no words; in the dataset that would be taken for a reason or a log
        recorded = {name: getattr(line.attempt, name) for name in RECORDED}
        row = {name: None if value == "" else value for name, value in recorded.items()}
    else:  # its runner left no record: what is known is how its machine ended
        assert story is not None and story.end is not None, "a line without an attempt has a placement that ended"
        row = {
            "attempt": line.number,
            "outcome": story.end.outcome.row.outcome,
            "reason": story.end.detail or story.end.outcome,
            "started_at": story.asked.asked_at,
            "ended_at": story.end.at,
        }
    return row if story is None else row | _billed(line, story)


def _billed(line: BillLine, story: PlacementStory) -> Row:
    """Columns of the rented machine: which one, how it ended, what its seconds were spent on."""
    assert line.seconds is not None, "what was placed is billed"
    phases = line.seconds._asdict()
    return {
        **story.asked.offer.model_dump(),
        "cluster": story.asked.cluster,
        "tried": line.tried or None,
        "ended": None if story.end is None else story.end.outcome,
        "rented_s": line.rented_s,
        "estimated": (story.end is not None and story.end.estimated) or None,
        "charged": line.is_charged,
        "cost_usd": line.cost_usd,
        **{f"{phase}_s": seconds for phase, seconds in phases.items()},
        **{f"{phase}_usd": line.usd(seconds) for phase, seconds in phases.items()},
    }


def with_verdicts(load: Sequence[Row], results: Sequence[Row]) -> list[Row]:
    """Rows of `load` with the final verdict on those of `results_consolidated`, which depends on all rows of a run."""
    finals = ((row, {"verdict": row["verdict"], "reasons": row["reasons"]}) for row in results)
    said = {tuple(row.get(name) for name in _BESIDE): final for row, final in finals}
    return [row | said[tuple(row[name] for name in _BESIDE)] for row in load]


_BESIDE = ("run_id", "cell_key", "step", "condition")
"""What a row of `load` shares with its row of `results_consolidated`, and with no other."""
