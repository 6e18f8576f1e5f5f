"""Parity: are greedy outputs those of the AR cell, token for token, and does AR repeat itself?"""

from __future__ import annotations

import polars as pl

from configs.visits import FIRST
from warehouse.dataset.consolidate.comparable import NEAR_TIE_NATS, Agreement, Output, agreement
from warehouse.dataset.consolidate.inputs import STEP, CommittedStep, Group, Raw, baseline_of
from warehouse.dataset.consolidate.rows import Made, Result, base_row, joined, judged, step_seconds
from warehouse.dataset.consolidate.speed.rows import counted_acceptance
from warehouse.ledger.steps import PARITY_OUTPUTS
from warehouse.ledger.verdicts import Reason

TABLES = (PARITY_OUTPUTS,)


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell; parity makes no pairs. What a second start answered is AR's control, no row of its own."""
    return Made([_row(step, baseline_of(step, group), raw) for step in group if step.visit == FIRST])


def _row(step: CommittedStep, baseline: CommittedStep | None, raw: Raw) -> Result:
    """A cell's first pass against the AR cell's; on the AR cell, its second pass, of any start, against its first."""
    beside = (other for other in raw.beside(step) if other.name == step.name)
    visits = sorted(beside, key=lambda each: each.visit, reverse=True)  # the newest first
    verdict = joined([judged(visit, raw) for visit in visits])
    result = Result(base_row(step, raw, step_seconds(step, raw)), verdict)
    if not raw.rows(step, PARITY_OUTPUTS, _ids):
        return result  # no greedy decoding: the verdict says so
    against = step if step.is_baseline else baseline
    reference = {} if against is None else outputs(against, raw, 0)
    if not reference:
        sentence = "the run has no AR cell with greedy outputs to compare with"
        return result.worsened("suspect", Reason.NO_BASELINE, sentence)
    again = (outputs(visit, raw, 1) for visit in visits)
    found = agreement(reference, next(filter(None, again), {}) if step.is_baseline else outputs(step, raw, 0))
    if not found.compared:
        return result
    odd = _not_a_tie(found)
    if step.planned.cell.technique.lossless and odd is not None:
        result = result.worsened("suspect", Reason.PARITY_NOT_A_TIE, odd)
    return result.plus(counted_acceptance(step, raw)).plus(
        {
            "parity_equal": found.equal,
            "parity_n": found.compared,
            "first_divergence": found.first_divergence,
            "parity_near_ties": found.near_ties,
            "divergence_margin": found.margin,
        }
    )


def _not_a_tie(found: Agreement) -> str | None:
    """What is odd about the places where outputs parted; None: nothing, or it isn't known."""
    if found.near_ties is None or found.margin is None or found.margin <= NEAR_TIE_NATS:
        return None
    parted = found.compared - found.equal
    return (
        f"{parted - found.near_ties} of {parted} outputs parted where the model was sure: up to "
        f"{found.margin:.2g} nats between the two best tokens; rounding explains {NEAR_TIE_NATS:.2g} at most"
    )


def _ids(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The outputs without their texts, which aren't compared."""
    return frame.select(*STEP, "prompt_id", "pass", "token_ids", "top2_gap").sort("pass", "prompt_id")


def outputs(step: CommittedStep, raw: Raw, number: int) -> dict[str, Output]:
    """Outputs of one pass, 0 or 1, by prompt; prompts without token ids are left out."""
    kept = [row for row in raw.rows(step, PARITY_OUTPUTS, _ids) if row["pass"] == number]
    return {row["prompt_id"]: Output(row["token_ids"], row["top2_gap"]) for row in kept if row["token_ids"] is not None}
