"""Which cells break their own promise: lossless by their method, yet their outputs leave AR's where AR repeats itself.

Verification accepts a drafted token only where the target would have written it, so a technique that is lossless may
part from AR at near ties, which rounding decides, and nowhere else. One that does is broken, and the usual break (an
fp8 kernel that accepts whatever was drafted) is the fastest of all: so none of its figures is `ok`, its speed least.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from warehouse.dataset.consolidate.inputs import CommittedStep
from warehouse.dataset.consolidate.rows import Row, verdict_columns, verdict_of
from warehouse.dataset.statistics.divergence import NEAR_TIE_NATS
from warehouse.ledger.verdicts import Reason, worst

Cell = tuple[str, str]
"""Run and key."""

BENCH = ("run_id", "model", "precision", "engine", "gpu")
"""What a cell shares with the AR cell whose second pass is its control."""

EARLY_TOKENS = 16
"""Where no gap between the two best tokens was recorded: no output equals AR's, and one of them parts within so many
tokens. Rounding also parts many outputs (the demo's draft model: 11 of 12, all at near ties), but leaves some equal or
is late; what accepts wrong tokens is neither. Less than that is no finding, because nobody knows whether it was a tie.
"""


def lossless_cells(steps: Iterable[CommittedStep]) -> frozenset[Cell]:
    """Cells whose technique claims AR's outputs; AR itself is the control."""
    return frozenset(
        (step.run_id, step.cell_key) for step in steps if step.planned.cell.technique.lossless and not step.is_baseline
    )


def cells_that_fail_parity(results: Sequence[Row], lossless: Collection[Cell]) -> dict[Cell, str]:
    """Cells that are lossless by their method and aren't in these rows, with the sentence that says what was seen.

    Args:
        results: rows of `results_consolidated`; those of parity are looked at.
        lossless: which cells promise it.
    """
    shown = [row for row in results if row["step"] == "parity" and row.get("parity_n")]
    controls: dict[tuple[Any, ...], list[Row]] = {}
    for row in shown:
        if row["technique"] == "ar":
            controls.setdefault(_bench(row), []).append(row)
    found: dict[Cell, str] = {}
    for row in shown:
        cell = (row["run_id"], row["cell_key"])
        beside = controls.get(_bench(row), [])
        if cell in lossless and beside and all(map(_holds, beside)) and (sentence := failure(row)) is not None:
            control = beside[0]
            found[cell] = f"{sentence}; AR repeats itself in {control['parity_equal']} of {control['parity_n']}"
    return found


def with_parity(row: Row, sentence: str) -> Row:
    """A row of a cell that fails: suspect, whatever it measured, and without a speedup, which only ok rows have."""
    verdict = verdict_of(row)
    if Reason.PARITY_FAILED in verdict.reasons:
        return row
    barred = row | verdict_columns(verdict.worsened("suspect", Reason.PARITY_FAILED, sentence))
    return barred | {name: None for name in ("speedup", "speedup_lo", "speedup_hi") if name in row}


def barred(results: Sequence[Row], failed: Mapping[Cell, str]) -> list[Row]:
    """The rows in their order, all those of cells that fail parity with that on them."""
    cells = [(row, failed.get((row["run_id"], row["cell_key"]))) for row in results]
    return [row if sentence is None else with_parity(row, sentence) for row, sentence in cells]


def barred_visits(visits: Sequence[Row], failed: Mapping[Cell, str]) -> list[Row]:
    """Rows of `visits` in their order; how a broken cell's starts differ says nothing of the others'. Controls do."""
    return [
        row | {"verdict": worst((row["verdict"], "suspect")), "reasons": [*row["reasons"], Reason.PARITY_FAILED.value]}
        if row["role"] == "cell" and (row["run_id"], row["cell_key"]) in failed
        else row
        for row in visits
    ]


def _bench(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in BENCH)


def _holds(control: Row) -> bool:
    """Whether AR's second pass is its first, but for near ties."""
    equal, margin = control["parity_equal"] == control["parity_n"], control.get("divergence_margin")
    return control["verdict"] == "ok" and (equal or (margin is not None and margin <= NEAR_TIE_NATS))


def failure(row: Row) -> str | None:
    """What no rounding explains; None: nothing, or nothing that these figures show."""
    parted, margin = row["parity_n"] - row["parity_equal"], row.get("divergence_margin")
    if not parted:
        return None
    if margin is not None:
        if margin <= NEAR_TIE_NATS:
            return None
        sure = parted - (row.get("parity_near_ties") or 0)
        return f"{sure} of {row['parity_n']} greedy outputs leave AR's where it was sure (by up to {margin:.2g} nats)"
    first = row["first_divergence"]
    if row["parity_equal"] or first is None or first >= EARLY_TOKENS:
        return None
    return f"none of {row['parity_n']} greedy outputs is AR's, the first one parts at token {first}"
