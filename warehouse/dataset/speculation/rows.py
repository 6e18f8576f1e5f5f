"""Rows of `k_curves` and `recommendations`, made once all speeds of a run are settled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import exp
from typing import NamedTuple

from configs.schema import PlannedCell
from warehouse.dataset.consolidate.parity_bar import Cell
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.consolidate.speed.settled import Known
from warehouse.dataset.speculation.choice import Choice, choose
from warehouse.dataset.speculation.curves import AR_K, Curve, curves_of, shapes_of
from warehouse.dataset.speculation.points import Point, Points, points_of
from warehouse.dataset.speculation.theory import always_drafting, cost_of, steps_of, theory_columns
from warehouse.dataset.statistics.speculation.smallest import Ratio
from warehouse.dataset.statistics.speculation.theory import StepCost, step_ms


class Curves(NamedTuple):
    """Rows of the two tables."""

    k_curves: list[Row]
    recommendations: list[Row]


def k_curves(
    plans: Mapping[str, Sequence[PlannedCell]],
    results: Sequence[Row],
    load: Sequence[Row],
    known: Known,
    dropped: Collection[Cell] = (),
) -> Curves:
    """The curves of all runs under all conditions that any of their cells was measured under.

    Args:
        plans: cells of each run, as planned.
        results: rows of `results_consolidated`, settled.
        load: rows of `load`.
        known: what the runs' visits say together.
        dropped: cells that were not visited again because their K was out.
    """
    made, measured, latencies = Curves([], []), _by_run(results), _by_run(load)
    for run_id, planned in plans.items():
        gone = {cell for run, cell in dropped if run == run_id}
        for curve in curves_of(run_id, planned):
            add_curve(made, curve, measured.get(run_id, ()), latencies.get(run_id, ()), known, gone)
    return made


def add_curve(
    made: Curves, curve: Curve, results: Sequence[Row], load: Sequence[Row], known: Known, dropped: Collection[str] = ()
) -> None:
    """Add one curve under all conditions that any of its cells was measured under, from rows that may be of others."""
    keys = {each.cell.cell_key for each in curve.cells.values()}
    beside = keys if curve.baseline is None else keys | {curve.baseline.cell.cell_key}
    rows, streams = ([row for row in each if row["cell_key"] in beside] for each in (results, load))
    for shape in shapes_of(row for row in rows if row["cell_key"] in keys):
        _add(made, points_of(curve, shape, rows, known), rows, streams, dropped)


def _by_run(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["run_id"], []).append(row)
    return found


def _add(made: Curves, points: Points, rows: Sequence[Row], load: Sequence[Row], dropped: Collection[str]) -> None:
    choice, steps = choose(points, rows, dropped), steps_of(points, rows, load)
    always = always_drafting(points, load)
    cost = cost_of(steps, always)
    shared = _shared(points)
    for k, point in sorted(points.by_k.items()):
        theory = theory_columns(k, point, steps.get(k), cost, is_always=k in always)
        made.k_curves.append(shared | _measured(k, point, choice) | theory)
    baselines = [step_ms(step.baseline) for step in steps.values()]
    target_ms = sum(baselines) / len(baselines) if baselines else None
    made.recommendations.append(shared | _recommended(points.curve, choice) | _cost(cost, target_ms))


def _shared(points: Points) -> Row:
    step, condition, mode = points.shape
    return points.curve.identity() | {
        "step": step, "condition": condition, "mode": mode, "concurrency": points.concurrency,
    }  # fmt: skip


def _measured(k: int, point: Point, choice: Choice) -> Row:
    row, ratio = point.row, choice.ratios.get(k)
    return {
        "k": k,
        "measured_in": row["run_id"],
        **{name: row.get(name) for name in ("cell_key", "tok_s", "tok_s_lo", "tok_s_hi", "speedup", "visits")},
        **_of_best(ratio),
        "verdict": row["verdict"],
        "reasons": list(row["reasons"]),
    }


def _of_best(ratio: Ratio | None) -> Row:
    if ratio is None:
        return {}
    return {"of_best": exp(ratio.log), "of_best_lo": exp(ratio.lo), "of_best_hi": exp(ratio.hi)}


def _recommended(curve: Curve, choice: Choice) -> Row:
    return {
        "k_candidates": [AR_K, *curve.cells],
        "k": choice.k,
        "fastest_k": choice.fastest,
        **_of_best(None if choice.k is None else choice.ratios[choice.k]),
        "excluded": list(choice.excluded),
        "refusal": choice.refusal or None,
        "wording": choice.wording,
    }


def _cost(cost: StepCost | None, target_ms: float | None) -> Row:
    if cost is None or target_ms is None:
        return {}
    low, high = cost.ratio_interval
    return {
        "target_step_ms": cost.target * target_ms,
        "draft_token_ms": cost.draft * target_ms,
        "draft_cost": cost.ratio,
        "draft_cost_lo": low,
        "draft_cost_hi": high,
        "points": cost.points,
    }
