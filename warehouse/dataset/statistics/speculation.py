"""What drafts are worth in theory, and which of several K to take.

Theory: tokens per step, the cost of a step, and the speed that follows from both. Source: Leviathan, Kalman and Matias,
"Fast Inference from Transformers via Speculative Decoding" (ICML 2023, arXiv 2211.17192), equation 1 and theorem 3.8.
Their gamma is K here, and their alpha the acceptance rate. Their c is estimated from measured steps, never assumed.

The K to take is the smallest that is as fast as the fastest, as far as its measurement can tell. The rule follows
vLLM's own tuner (vllm/benchmarks/sweep/tune_speculative_k.py, after 0.32), which refuses too few or too noisy runs,
takes the smallest K whose conservative objective is within 1 % of the best, and extrapolates to no load that it didn't
see. Here noise is the 95 % interval of a ratio over engine starts of one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, fsum, log, log1p, sqrt
from typing import NamedTuple

from warehouse.dataset.statistics.proportions import ALPHA
from warehouse.dataset.statistics.starts import Estimate
from warehouse.ledger.formulas import student_quantile

TOLERANCE = 0.01
"""Loss that isn't worth a larger candidate even if it is certain, as a share of the best; vLLM's tuner has the same."""

MOST_HIDDEN = 0.10
"""Largest loss that noise may hide behind a recommendation: beyond, the measurement can't tell, and none is made. What
vLLM's tuner allows for the deviation of its runs."""


class Ratio(NamedTuple):
    """Log of one rate over another, with its 95 % interval."""

    log: float
    lo: float
    hi: float

    @property
    def is_within_noise(self) -> bool:
        """Whether the first may be as fast as the second, or loses too little to matter."""
        return self.hi >= 0 or self.log >= log1p(-TOLERANCE)


class Smallest(NamedTuple):
    """What was chosen, or why nothing was."""

    chosen: int | None
    fastest: int
    ratios: Mapping[int, Ratio]  # of every candidate over the fastest, as far as known; the fastest's own is exactly 0
    refusal: str = ""


SAME = Ratio(0.0, 0.0, 0.0)


def apart(one: Estimate, other: Estimate) -> Ratio:
    """The difference of two independent log ratios, e.g. of two speedups that were measured on two machines.

    Source: Zou and Donner, Statistics in Medicine 27 (2008) 1693-1702: each end's distances add up as squares.
    """
    log_ratio = one.log - other.log
    below = sqrt((one.log - one.lo) ** 2 + (other.hi - other.log) ** 2)
    above = sqrt((one.hi - one.log) ** 2 + (other.log - other.lo) ** 2)
    return Ratio(log_ratio, log_ratio - below, log_ratio + above)


def smallest_within_noise(
    rates: Mapping[int, float], compare: Callable[[int, int], Ratio | None], name: Callable[[int], str]
) -> Smallest:
    """The smallest of these candidates within noise of the fastest; `compare` gives a log ratio, None if unknown."""
    fastest = max(rates, key=lambda each: (rates[each], -each))
    known = {each: SAME if each == fastest else compare(each, fastest) for each in sorted(rates)}
    ratios = {each: ratio for each, ratio in known.items() if ratio is not None}
    missing = [name(each) for each in known if each not in ratios]
    if missing:
        refusal = f"nothing says how far noise goes between {name(fastest)} and {', '.join(missing)}"
        return Smallest(None, fastest, ratios, refusal)
    chosen = next(each for each, ratio in ratios.items() if ratio.is_within_noise)
    hidden = 1 - exp(ratios[chosen].lo)
    if ratios[chosen].lo < log(1 - MOST_HIDDEN):
        refusal = (
            f"too noisy: {name(chosen)} is within noise of {name(fastest)}, and may yet be {hidden:.0%} slower "
            f"(decided up to {MOST_HIDDEN:.0%}): more starts or repeats would tell"
        )
        return Smallest(None, fastest, ratios, refusal)
    return Smallest(chosen, fastest, ratios)


FEWEST_POINTS = 3
"""Values of K, 0 (no drafts) among them, from which the cost of a step is fitted: two points fit any line."""


class Decoding(NamedTuple):
    """How fast one cell decodes under one condition."""

    tok_s: float  # of all requests in flight together
    concurrency: int
    tokens_per_step: float  # steps without a draft included; 1 without speculation
    answer_tokens: float | None = None  # mean output; None: not known, and prefill can't be taken out
    prefill_ms: float | None = None
    """Time to first token; None: not known, and a step is charged its share of the prefill."""


class StepCost(NamedTuple):
    """A straight line through the time of a step over K, in units of a step without drafts."""

    target: float  # verifying, at K = 0
    draft: float  # what each drafted token adds: drafting it, and verifying it
    draft_error: float  # standard error of `draft`
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
    """Tokens per verification step: 1 + the shares accepted at positions 1..K, however they depend on each other."""
    return 1 + fsum(accepted_by_position)


def acceptance_rate(accepted_by_position: Sequence[float]) -> float | None:
    """The one rate alpha that fits best if every draft token had the same chance; None: nothing was drafted.

    Accepted over judged: those accepted and, in each step that wasn't accepted whole, the one that was refused. That is
    the maximum likelihood estimate of a geometric law cut off at K.
    """
    if not accepted_by_position:
        return None
    accepted = fsum(accepted_by_position)
    return accepted / (accepted + 1 - accepted_by_position[-1]) if accepted else 0.0


def geometric_tokens(rate: float, k: int) -> float:
    """Tokens per step at one chance a per draft token: (1 - a^(K+1)) / (1 - a) (Leviathan et al., equation 1)."""
    return k + 1.0 if rate >= 1 else (1 - rate ** (k + 1)) / (1 - rate)


def step_ms(measured: Decoding) -> float:
    """Time of one decoding step of one request, in ms, by Little's law: a request takes concurrency x tokens / rate.

    Less the prefill, that is spread over its steps. Where length or prefill are not known, prefill stays in.
    """
    slot_ms = 1000 * measured.concurrency / measured.tok_s
    if (decoding := without_prefill(measured)) is not None:
        length_ms, steps = decoding
        return length_ms / steps
    return slot_ms * measured.tokens_per_step


def tok_s_of(measured: Decoding, one_step_ms: float, tokens_per_step: float) -> float:
    """The rate in tokens per second that other steps would give with the same prefill: `step_ms` undone."""
    answer, prefill_ms = measured.answer_tokens, measured.prefill_ms
    if without_prefill(measured) is None or answer is None or prefill_ms is None:
        return 1000 * measured.concurrency * tokens_per_step / one_step_ms
    steps = max(answer / tokens_per_step - 1, 0.0)
    return 1000 * measured.concurrency * answer / (prefill_ms + steps * one_step_ms)


def fitted_cost(steps: Sequence[tuple[int, float]]) -> StepCost | None:
    """Least squares through (K, time of a step over that of a step without drafts); (0, 1) is the target alone.

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
