"""The build: groups of comparable steps in, rows of the product tables out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from warehouse.consolidate.attempts import attempt_rows
from warehouse.consolidate.frames import Reduced, reduce_parts
from warehouse.consolidate.inputs import (
    CommittedStep,
    Group,
    baseline_of,
    batches,
    comparison_groups,
    take_inventory,
)
from warehouse.consolidate.pairs import accuracy_pair, speed_pair
from warehouse.consolidate.parity import parity_row
from warehouse.consolidate.rows import Row, base_row, judged
from warehouse.consolidate.scores import PairedScores, count_items, eval_rows, smoke_row
from warehouse.consolidate.speed import add_speedups, speed_rows
from warehouse.store import Store
from warehouse.tables import EVAL_ITEMS, PARITY_OUTPUTS, WINDOWS

BATCH_ROWS = 200_000
"""Raw rows reduced at a time, unless a single comparison group has more: bounds memory, whatever the store holds."""

BATCH_PARTS = 1_000
"""Parts read at a time."""

ROW_ORDER = (
    "model", "precision", "technique", "k", "step", "condition", "mode", "metric", "extractor", "run_id", "cell_key",
)  # fmt: skip
"""Order of `results_consolidated`; run and cell come last, so that equal rows of several runs stand together."""

PAIR_ORDER = ("model", "precision", "technique", "k", "kind", "step", "condition", "mode", "run_id", "cell_key")
"""Order of `pairs`."""


class Consolidated(NamedTuple):
    """Rows of the product tables, in their fixed order."""

    results: list[Row]
    pairs: list[Row]
    attempts: list[Row]


def consolidate(store: Store, run_ids: Sequence[str]) -> Consolidated:
    """Everything that commits of these runs name, as rows of the product tables.

    Raises:
        StoreError: a record or a part can't be read, or is not what its commit says.
    """
    inventory = take_inventory(store, run_ids)
    results: list[Row] = []
    pairs: list[Row] = []
    for batch in batches(comparison_groups(inventory.steps), BATCH_ROWS, BATCH_PARTS):
        reduced = reduce_parts(store, [step for group in batch for step in group])
        counts, paired = count_items(reduced), PairedScores(reduced)
        for group in batch:
            fresh = _GroupRows(group, reduced)
            fresh.add_speed()
            for step in group:
                fresh.add_other(step, counts.get(step.identity), paired)
            results += fresh.results
            pairs += fresh.pairs
    return Consolidated(
        results=sorted(results, key=lambda row: _order(row, ROW_ORDER)),
        pairs=sorted(pairs, key=lambda row: _order(row, PAIR_ORDER)),
        attempts=[row for history in inventory.histories for row in attempt_rows(history)],
    )


class _GroupRows:
    """Rows of one comparison group, as they are made."""

    def __init__(self, group: Group, reduced: Reduced) -> None:
        self.group, self.reduced = group, reduced
        self.results: list[Row] = []
        self.pairs: list[Row] = []

    def add_speed(self) -> None:
        """Rows of the steps that have windows; the AR cells' first, which the others are divided by."""
        timed = [step for step in self.group if has_table(step, WINDOWS.name)]
        by_identity = {step.identity: speed_rows(step, self.reduced) for step in timed}
        for step in timed:
            baseline = baseline_of(step, self.group)
            under = None if baseline is None else by_identity.get(baseline.identity)
            ours = by_identity[step.identity]
            add_speedups(step, ours, under)
            for shape, (row, _) in ours.items():
                self.results.append(row)
                if under is not None and row.get("speedup") is not None:
                    self.pairs.append(speed_pair(row, under[shape].row))

    def add_other(self, step: CommittedStep, counts: Any, paired: PairedScores) -> None:
        """Rows of a step without windows."""
        if has_table(step, WINDOWS.name):
            return
        baseline = baseline_of(step, self.group)
        if step.commit.step == "smoke":
            self.results.append(smoke_row(step, counts, self.reduced))
        elif step.commit.step == "parity" or has_table(step, PARITY_OUTPUTS.name):
            self.results.append(parity_row(step, baseline, self.reduced))
        elif has_table(step, EVAL_ITEMS.name) and counts is not None:
            self._add_eval(step, baseline, eval_rows(step, counts, self.reduced), paired)
        else:
            verdict = judged(step, self.reduced.verdicts.get(step.identity, []), None, None)
            self.results.append(base_row(step, self.reduced, verdict))

    def _add_eval(
        self, step: CommittedStep, baseline: CommittedStep | None, rows: list[Row], paired: PairedScores
    ) -> None:
        self.results += rows
        if baseline is None or rows[0]["verdict"] != "ok" or self._verdict(baseline) != "ok":
            return
        compared = paired.compare(step, baseline)
        if compared is not None:
            self.pairs.append(accuracy_pair(rows[0], {"cell_key": baseline.cell_key}, compared))

    def _verdict(self, step: CommittedStep) -> str:
        return judged(step, self.reduced.verdicts.get(step.identity, []), None, None).verdict


def has_table(step: CommittedStep, name: str) -> bool:
    """Whether the step's commit names a part of that table."""
    return any(part.table == name for part in step.commit.parts)


def _order(row: Row, columns: Sequence[str]) -> tuple[tuple[bool, Any], ...]:
    """Sort key over nullable columns: nulls first."""
    values = [row.get(name) for name in columns]
    return tuple((value is not None, 0 if value is None else value) for value in values)
