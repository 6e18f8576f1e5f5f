"""Parity rows: are greedy outputs those of the AR cell, token for token, and does AR repeat itself?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from warehouse.consolidate.frames import Reduced
from warehouse.consolidate.inputs import CommittedStep
from warehouse.consolidate.rows import NO_BASELINE, Row, base_row, judged, verdict_columns

Outputs = dict[str, Sequence[int]]
"""Token ids by prompt."""


class Agreement(NamedTuple):
    """How far two sets of outputs agree."""

    equal: int
    compared: int
    first_divergence: int | None


def parity_row(step: CommittedStep, baseline: CommittedStep | None, reduced: Reduced) -> Row:
    """One row: a cell's first pass against the AR cell's; on the AR cell, its second pass against its first."""
    verdict = judged(step, reduced.verdicts.get(step.identity, []), None, None)
    row = base_row(step, reduced, verdict)
    if not reduced.parity.get(step.identity):
        return row  # no greedy decoding: the verdict says so
    against = step if step.is_baseline else baseline
    reference = {} if against is None else outputs(against, reduced, 0)
    if not reference:
        sentence = "the run has no AR cell with greedy outputs to compare with"
        return row | verdict_columns(verdict.worsened("suspect", NO_BASELINE, sentence))
    found = agreement(reference, outputs(step, reduced, 1 if step.is_baseline else 0))
    if not found.compared:
        return row
    return row | {
        "parity_equal": found.equal,
        "parity_n": found.compared,
        "first_divergence": found.first_divergence,
    }


def outputs(step: CommittedStep, reduced: Reduced, number: int) -> Outputs:
    """Outputs of one pass."""
    rows = [row for row in reduced.parity.get(step.identity, []) if row["pass"] == number]
    return {row["prompt_id"]: row["token_ids"] for row in rows if row["token_ids"] is not None}


def agreement(reference: Outputs, others: Outputs) -> Agreement:
    """Compare the prompts that both answered."""
    common = sorted(set(reference) & set(others))
    diverged = [at for prompt in common if (at := first_difference(reference[prompt], others[prompt])) is not None]
    return Agreement(len(common) - len(diverged), len(common), min(diverged, default=None))


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Index of the first token that differs; where one ends early, its length; none if they are equal."""
    if one == other:  # the usual case, and the fast one
        return None
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))
