"""What drafts are worth in theory: tokens per step, the cost of a step, and the speed that follows from both.

Sources: Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding" (ICML 2023, arXiv
2211.17192), equation 1 and theorem 3.8, with their gamma as K here and their alpha as the acceptance rate. Their
cost coefficient c (a draft token over a step of the target) is assumed nowhere: it is estimated from measured steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt
from typing import NamedTuple

from warehouse.dataset.statistics.proportions import ALPHA
from warehouse.ledger.formulas.beta import student_quantile

FEWEST_POINTS = 3
"""Values of K, 0 (no drafts) among them, from which the cost of a step is fitted: two points fit any line."""


class Decoding(NamedTuple):
    """How fast one cell decodes under one condition."""

    tok_s: float
    """Of all requests in flight together."""
    concurrency: int
    tokens_per_step: float
    """Steps without a draft included; 1 without speculation."""
    answer_tokens: float | None = None
    """Mean output; None: not known, and prefill can't be taken out."""
    prefill_ms: float | None = None
    """Time to first token; None: not known, and a step is charged its share of the prefill."""


class StepCost(NamedTuple):
    """A straight line through the time of a step over K, in units of a step without drafts."""

    target: float
    """Verifying, at K = 0."""
    draft: float
    """What each drafted token adds: drafting it, and verifying it."""
    draft_error: float
    """Standard error of `draft`."""
    points: int

    @property
    def ratio(self) -> float:
        """Cost of a drafted token over that of a step of the target: c of Leviathan et al."""
        return self.draft / self.target

    @property
    def ratio_interval(self) -> tuple[float, float]:
        """Its 95 % interval by the error of the slope alone: Student's t with `points` - 2 degrees of freedom."""
        half = student_quantile(ALPHA / 2, self.points - 2) * self.draft_error / self.target
        return self.ratio - half, self.ratio + half

    def at(self, k: int) -> float:
        """Time of a step that drafts K tokens, in steps without drafts."""
        return self.target + k * self.draft


def expected_tokens(accepted_by_position: Sequence[float]) -> float:
    """Tokens per verification step, from the shares accepted at draft positions 1..K: 1 + their sum.

    Position i is accepted only with all before it, so the number accepted is the sum of K indicators, whatever they
    have to do with each other.
    """
    return 1 + fsum(accepted_by_position)


def acceptance_rate(accepted_by_position: Sequence[float]) -> float | None:
    """The one rate alpha that fits best if every draft token had the same chance: accepted over judged.

    Judged are the accepted ones and, in each step that wasn't accepted whole, the one that was refused; those behind
    it were never looked at. That is the maximum likelihood estimate of a geometric law cut off at K.

    Returns:
        0 to 1; None where nothing was drafted.
    """
    if not accepted_by_position:
        return None
    accepted = fsum(accepted_by_position)
    return accepted / (accepted + 1 - accepted_by_position[-1]) if accepted else 0.0


def geometric_tokens(rate: float, k: int) -> float:
    """Tokens per step where each draft token is accepted with the same chance: (1 - a^(K+1)) / (1 - a).

    Source: Leviathan et al. 2023, equation 1.
    """
    return k + 1.0 if rate >= 1 else (1 - rate ** (k + 1)) / (1 - rate)


def step_ms(measured: Decoding) -> float:
    """Time of one decoding step of one request, in ms.

    By Little's law a request takes concurrency x tokens / rate; less the prefill, that is spread over its steps, of
    which the prefill is one. Where length or prefill are not known, prefill stays in, spread over the steps.
    """
    slot_ms = 1000 * measured.concurrency / measured.tok_s
    if (decoding := without_prefill(measured)) is not None:
        length_ms, steps = decoding
        return length_ms / steps
    return slot_ms * measured.tokens_per_step


def tok_s_of(measured: Decoding, one_step_ms: float, tokens_per_step: float) -> float:
    """The rate, in tokens per second, that a cell would have with other steps and the same prefill: `step_ms` undone.

    Args:
        measured: has concurrency, length and prefill.
        one_step_ms: in place of the measured step.
        tokens_per_step: in place of the measured ones.
    """
    answer, prefill_ms = measured.answer_tokens, measured.prefill_ms
    if without_prefill(measured) is None or answer is None or prefill_ms is None:
        return 1000 * measured.concurrency * tokens_per_step / one_step_ms
    steps = max(answer / tokens_per_step - 1, 0.0)
    return 1000 * measured.concurrency * answer / (prefill_ms + steps * one_step_ms)


def fitted_cost(steps: Sequence[tuple[int, float]]) -> StepCost | None:
    """Least squares through (K, time of a step over that of a step without drafts).

    Args:
        steps: of every K that was measured, with (0, 1) for the target alone.

    Returns:
        None: fewer than `FEWEST_POINTS` values of K, or a line on which the target takes no time.
    """
    if len({k for k, _ in steps}) < FEWEST_POINTS:
        return None
    n = len(steps)
    mean_k, mean = fsum(k for k, _ in steps) / n, fsum(time for _, time in steps) / n
    squares = fsum((k - mean_k) ** 2 for k, _ in steps)
    draft = fsum((k - mean_k) * (time - mean) for k, time in steps) / squares
    target = mean - draft * mean_k
    left = fsum((time - target - draft * k) ** 2 for k, time in steps)
    error = sqrt(left / (n - 2) / squares)
    return StepCost(target, draft, error, n) if target > 0 else None


def without_prefill(measured: Decoding) -> tuple[float, float] | None:
    """Time of decoding one answer in ms, and its steps; None: length or prefill aren't known, or leave nothing."""
    if measured.answer_tokens is None or measured.prefill_ms is None:
        return None
    length_ms = 1000 * measured.concurrency * measured.answer_tokens / measured.tok_s - measured.prefill_ms
    steps = measured.answer_tokens / measured.tokens_per_step - 1
    return (length_ms, steps) if length_ms > 0 and steps > 0 else None
