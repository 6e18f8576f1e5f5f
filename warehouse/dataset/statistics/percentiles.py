"""Percentiles of a sample, where it is large enough to say anything about them.

Whatever the distribution, the number of values below its percentile p is binomial (n, p). So order statistics bound the
percentile with 95 % confidence where one exists on either side: neither all n values may be expected below it, nor all
above, each with a probability of 2.5 % at most. That takes 6 values for the median, 36 for p90, 72 for p95 and 368 for
p99. Source: Hahn and Meeker, "Statistical Intervals" (1991), section 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from warehouse.dataset.statistics.bootstrap import quantile
from warehouse.dataset.statistics.proportions import ALPHA


def fewest_for(percent: float) -> int:
    """Independent values from which order statistics bound a percentile, 0 to 100, on both sides."""
    share = max(percent, 100 - percent) / 100
    return math.ceil(math.log(ALPHA / 2) / math.log(share))


def certified(values: Sequence[float], percent: float, independent: int | None = None) -> float | None:
    """A percentile, interpolated linearly between neighbours; None: there are too few values to bound it.

    Args:
        values: of any order.
        percent: 0 to 100.
        independent: how many of the values tell something of their own, where that is fewer: a prompt that was asked
            twice takes about the same time twice. None: all.
    """
    if min(len(values), len(values) if independent is None else independent) < fewest_for(percent):
        return None
    return quantile(sorted(values), percent / 100)
