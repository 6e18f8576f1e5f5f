"""Theory beside measurement: what the acceptance that was measured is worth at the cost of a step that was measured.

Every step is taken in units of a step of AR on its own machine, so that a curve whose cells ran on several machines is
one line. The line is fitted per curve and condition: verifying K tokens and drafting them is dearer in a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from warehouse.consolidate.rows import Row
from warehouse.speculation.curves import AR_K, shape_of
from warehouse.speculation.points import Point, Points
from warehouse.statistics.speculation.theory import (
    Decoding,
    StepCost,
    acceptance_rate,
    expected_tokens,
    fitted_cost,
    geometric_tokens,
    step_ms,
    tok_s_of,
)


class Step(NamedTuple):
    """A decoding step of one K, and AR's on the same machine."""

    measured: Decoding
    baseline: Decoding

    @property
    def relative(self) -> float:
        """Its time over that of a step of AR."""
        return step_ms(self.measured) / step_ms(self.baseline)


Prefills = Mapping[str, float]
"""Time to first token in ms, by cell key."""


def steps_of(points: Points, rows: Sequence[Row], load: Sequence[Row]) -> dict[int, Step]:
    """The steps of every K that is ok and stands beside AR; 0 is AR itself.

    Args:
        points: of a curve under one condition.
        rows: of the curve's cells and of AR, streamed ones included: those know the prefill.
        load: rows of `load` of the same cells: those know the length of answers, too.
    """
    prefills, answers = _prefills(points, rows, load), _answers(points, load)
    found: dict[int, Step] = {}
    for k, point in points.by_k.items():
        tokens = 1.0 if k == AR_K else point.row.get("tokens_per_step")
        beside = point.starts if k == AR_K else point.baseline
        if not point.is_ok or not tokens or beside is None or not beside.is_ok:
            continue
        prefill = prefills.get(point.row["cell_key"])
        answer = answers.get(point.row["cell_key"], _fixed_length(point))
        measured = Decoding(point.row["tok_s"], points.concurrency or 1, tokens, answer, prefill)
        of_ar = prefills.get(beside.rows[0]["served_cell_key"], prefill)
        baseline = measured._replace(tok_s=beside.tok_s, tokens_per_step=1.0, prefill_ms=of_ar)
        found[k] = Step(measured, baseline)
    return found


def cost_of(steps: Mapping[int, Step]) -> StepCost | None:
    """What a drafted token costs, from all K; None: too few of them."""
    drafting = [(k, step.relative) for k, step in steps.items() if k != AR_K]
    return fitted_cost([(AR_K, 1.0), *drafting]) if drafting else None


def theory_columns(k: int, point: Point, step: Step | None, cost: StepCost | None) -> Row:
    """Columns of `k_curves` that say what theory expects of one K, and how far off it is.

    Args:
        k: tokens drafted per step.
        point: its row has the acceptance.
        step: its measured step; None: not known.
        cost: of a step over K; None: not fitted.
    """
    if k == AR_K:
        return {"step_ms": None if step is None else step_ms(step.measured)}
    shares = point.row.get("acceptance_by_position") or ()
    rate, length = acceptance_rate(shares), point.row.get("acceptance_length")
    tokens = expected_tokens(shares) if shares else length
    columns: Row = {
        "tokens_per_step": point.row.get("tokens_per_step"),
        "tokens_expected": tokens,
        "acceptance_rate": rate,
        "tokens_geometric": None if rate is None else geometric_tokens(rate, k),
    }
    if step is None:
        return columns
    speedup = step.measured.tok_s / step.baseline.tok_s
    columns |= {"step_ms": step_ms(step.measured), "theory_share": speedup / tokens if tokens else None}
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
