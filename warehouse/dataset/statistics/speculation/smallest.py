"""The smallest candidate that is as fast as the fastest, as far as its measurement can tell.

Modelled on the manners of vLLM's own tuner (`vllm bench sweep tune_speculative_k`,
vllm/benchmarks/sweep/tune_speculative_k.py, of after 0.32): it raises on failed or too few runs (3) and where the
median absolute deviation exceeds 10 % of the median; takes the smallest K whose conservative objective (median less
1.4826 MAD) is within 1 % of the best; and extrapolates to no load that it didn't see. Here noise is the 95 % interval
of a ratio over engine starts of one machine, instead of the spread of repeats within a start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, log, log1p, sqrt
from typing import NamedTuple

from warehouse.dataset.statistics.visits import Estimate

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
    ratios: Mapping[int, Ratio]
    """Of every candidate over the fastest, as far as known; the fastest's own is exactly 0."""
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
    """The smallest candidate within noise of the fastest.

    Args:
        rates: tokens per second of each candidate; at least one.
        compare: log of the first one's rate over the second's; None: nothing is known of it.
        name: of a candidate, for the sentence.
    """
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
