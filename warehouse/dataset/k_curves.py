"""Rows of `k_curves` and `recommendations`, made once all speeds of a run are settled: theory next to measurement.

Every step is taken in units of a step of AR on its own machine, so that a curve whose cells ran on several machines is
one line. It is fitted per curve and condition: verifying K tokens and drafting them costs more in a batch.

Theory is of K tokens at every step. N-gram and suffix draft at some steps, dynamic K fewer tokens: of those there are
measured steps, and no theory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import exp
from typing import NamedTuple

from configs.schema import PlannedCell
from warehouse.dataset.consolidate.comparable import Cell
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.consolidate.speed.settled import Known
from warehouse.dataset.curves import (
    AR_K,
    Choice,
    Curve,
    Point,
    Points,
    choose,
    curves_of,
    points_of,
    shape_of,
    shapes_of,
)
from warehouse.dataset.statistics.speculation import (
    Decoding,
    Ratio,
    StepCost,
    acceptance_rate,
    expected_tokens,
    fitted_cost,
    geometric_tokens,
    step_ms,
    tok_s_of,
    without_prefill,
)

ROUNDING = 0.02
"""Share of steps, or of tokens, for which a draft may be missing. In addition it may be missing for one step of each
request, its prefill."""


class Step(NamedTuple):
    """A decoding step of one K, and AR's on the same machine."""

    measured: Decoding
    baseline: Decoding

    @property
    def relative(self) -> float:
        """Its time over that of a step of AR."""
        return step_ms(self.measured) / step_ms(self.baseline)


Prefills = Mapping[str, float]  # time to first token in ms, by cell key


def steps_of(points: Points, rows: Sequence[Row], load: Sequence[Row]) -> dict[int, Step]:
    """The steps of every K that is ok and has an AR to compare with; 0 is AR itself.

    Prefill is taken out of all of them or of none: where one lacks it, a line would show that as a cost. There are none
    where Little's law doesn't hold: on a schedule, and where a workload's seconds have ramp and tail.
    """
    concurrency = points.concurrency
    if concurrency is None or (points.shape[0] == "prompts" and concurrency > 1):
        return {}
    prefills, answers = _prefills(points, rows, load), _answers(points, load)
    found: dict[int, Step] = {}
    for k, point in points.by_k.items():
        tokens = 1.0 if k == AR_K else point.row.get("tokens_per_step")
        beside = point.starts if k == AR_K else point.baseline
        if not point.is_ok or not tokens or beside is None or not beside.is_ok:
            continue
        prefill = prefills.get(point.row["cell_key"])
        answer = answers.get(point.row["cell_key"], _fixed_length(point))
        measured = Decoding(point.row["tok_s"], concurrency, tokens, answer, prefill)
        of_ar = prefills.get(beside.served_cell_key)
        baseline = measured._replace(tok_s=beside.tok_s, tokens_per_step=1.0, prefill_ms=of_ar)
        found[k] = Step(measured, baseline)
    if all(without_prefill(each) for step in found.values() for each in step):
        return found
    return {k: Step(*(each._replace(prefill_ms=None) for each in step)) for k, step in found.items()}


def always_drafting(points: Points, load: Sequence[Row]) -> frozenset[int]:
    """The K that drafted K tokens at every step behind a prefill, so that theory is of them.

    Decoding steps are known by what they accepted: tokens per step less 1; nothing is known where nothing was accepted.
    Tokens accepted behind the end of an answer look like further steps: at most K + 1 per answer, divided by the tokens
    that a draft brings.
    """
    answers = _answers(points, load)
    found = set()
    for k, point in points.by_k.items():
        row, accepted, beyond = point.row, point.row.get("accepted_tokens"), (point.row.get("tokens_per_step") or 1) - 1
        if k == AR_K or not accepted or beyond <= 0 or not row.get("drafts"):
            continue
        steps = accepted / beyond
        answer = answers.get(row["cell_key"]) or row.get("answer_tokens") or _fixed_length(point)
        together = (row.get("repeats") or 0) * (row.get("concurrency") or 1)
        requests = (steps + accepted) / answer if answer else together
        drafted = k * row["drafts"] if row.get("drafted_tokens") is None else row["drafted_tokens"]
        behind_ends = requests * (k + 1) / (1 + accepted / row["drafts"])
        is_each_step = row["drafts"] >= (1 - ROUNDING) * steps - requests - behind_ends
        if is_each_step and drafted >= k * ((1 - ROUNDING) * row["drafts"] - requests):
            found.add(k)
    return frozenset(found)


def theory_columns(k: int, point: Point, step: Step | None, cost: StepCost | None, *, is_always: bool) -> Row:
    """What theory expects of one K, and how far off it is; nothing of one not drafted at every step."""
    columns: Row = {"step_ms": None if step is None else step_ms(step.measured)}
    if k == AR_K:
        return columns
    columns["tokens_per_step"] = point.row.get("tokens_per_step")
    if not is_always:
        return columns
    shares = point.row.get("acceptance_by_position") or ()
    rate, length = acceptance_rate(shares), point.row.get("acceptance_length")
    tokens = expected_tokens(shares) if shares else length
    columns |= {
        "tokens_expected": tokens,
        "acceptance_rate": rate,
        "tokens_geometric": None if rate is None else geometric_tokens(rate, k),
    }
    if step is None:
        return columns
    speedup = step.measured.tok_s / step.baseline.tok_s
    columns["theory_share"] = speedup / tokens if tokens else None
    if cost is None or not tokens or cost.at(k) <= 0:
        return columns
    fitted_ms = cost.at(k) * step_ms(step.baseline)
    expected = tok_s_of(step.measured, fitted_ms, tokens)
    return columns | {
        "step_ms_fitted": fitted_ms,
        "tok_s_expected": expected,
        "speedup_expected": expected / step.baseline.tok_s,
        "residual": step.measured.tok_s / expected - 1,
    }


def _fixed_length(point: Point) -> float | None:
    """Tokens of an answer where all are equally long; None: they end by themselves."""
    asked: float | None = point.row.get("output_tokens") if point.row["mode"] == "fixed" else None
    return asked


def _prefills(points: Points, rows: Sequence[Row], load: Sequence[Row]) -> Prefills:
    """Of the streamed twins of the condition, or of a prompt suite's own streams."""
    step, condition, _ = points.shape
    streamed = {
        row["cell_key"]: row["ttft_ms"]
        for row in rows
        if shape_of(row) == (step, condition, "stream") and row["verdict"] == "ok"
    }
    suite = {row["cell_key"]: row["ttft_p50_ms"] for row in _here(points, load)}
    return {cell: ttft for cell, ttft in (streamed | suite).items() if ttft is not None}


def _answers(points: Points, load: Sequence[Row]) -> dict[str, float | None]:
    return {row["cell_key"]: row["answer_tokens"] for row in _here(points, load)}


def _here(points: Points, load: Sequence[Row]) -> list[Row]:
    return [row for row in load if (row["step"], row["condition"]) == points.shape[:2]]


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
    """The curves of all runs under all conditions; `dropped` cells were not started again because their K was out."""
    made, measured, latencies = Curves([], []), _by_run(results), _by_run(load)
    for run_id, planned in plans.items():
        gone = {cell for run, cell in dropped if run == run_id}
        for curve in curves_of(run_id, planned):
            keys = {each.cell.cell_key for each in curve.cells.values()}
            beside = keys if curve.baseline is None else keys | {curve.baseline.cell.cell_key}
            rows = [row for row in measured.get(run_id, ()) if row["cell_key"] in beside]
            streams = [row for row in latencies.get(run_id, ()) if row["cell_key"] in beside]
            for shape in shapes_of(row for row in rows if row["cell_key"] in keys):
                _add(made, points_of(curve, shape, rows, known), rows, streams, gone)
    return made


def _by_run(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["run_id"], []).append(row)
    return found


def _add(made: Curves, points: Points, rows: Sequence[Row], load: Sequence[Row], dropped: Collection[str]) -> None:
    """Add a curve under one condition."""
    choice, steps, always = choose(points, rows, dropped), steps_of(points, rows, load), always_drafting(points, load)
    drafting = [(k, step.relative) for k, step in steps.items() if k in always]
    cost = fitted_cost([(AR_K, 1.0), *drafting]) if drafting else None
    shape = dict(zip(("step", "condition", "mode"), points.shape, strict=True))
    shared = points.curve.identity() | shape | {"concurrency": points.concurrency}
    for k, point in sorted(points.by_k.items()):
        theory = theory_columns(k, point, steps.get(k), cost, is_always=k in always)
        made.k_curves.append(shared | _measured(k, point, choice) | theory)
    baselines = [step_ms(step.baseline) for step in steps.values()]
    target_ms = sum(baselines) / len(baselines) if baselines else None
    made.recommendations.append(shared | _recommended(points.curve, choice) | _cost(cost, target_ms))


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
