"""Speeds and their ratios, whose unit is a *visit*: one start of an engine on a machine.

`arms` is what was measured, `variance` how a run's starts and repeats scatter, `intervals` what follows for a rate or
a ratio.

Sources: Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time" (ISMM 2013) and arXiv 2007.10899: levels of
repetition, the variance of each by differences of mean squares, the interval of a ratio, and how many repetitions at
which level are worth their cost. Here on logs, so that a ratio is a difference. Degrees of freedom of a sum of mean
squares: Satterthwaite, Biometrics Bulletin 2 (1946) 110-114.
"""

from warehouse.dataset.statistics.visits.arms import Arm, VisitRates
from warehouse.dataset.statistics.visits.intervals import (
    Estimate,
    placebo_interval,
    rate_interval,
    ratio_interval,
    smallest_seen,
)
from warehouse.dataset.statistics.visits.variance import (
    FEWEST_REPEATS,
    MOST_REPEATS,
    Components,
    best_repeats,
    components,
)

__all__ = [
    "FEWEST_REPEATS", "MOST_REPEATS", "Arm", "Components", "Estimate", "VisitRates", "best_repeats", "components",
    "placebo_interval", "rate_interval", "ratio_interval", "smallest_seen",
]  # fmt: skip
