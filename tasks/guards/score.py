"""Guards over scores: could guessing have done that?"""

from __future__ import annotations

from math import exp, fsum, lgamma, log, log1p

from tasks.guards.finding import Finding
from warehouse.verdicts import Reason

SMOKE_CHANCE_P = 0.15
"""With five items of four choices, 3 right pass (p = 0.10) and 2 do not (p = 0.37)."""

GATE_CHANCE_P = 0.5
"""For the first few items of an evaluation: no better than guessing usually does. At 0.15 a cell with 65 % would
be stopped for good by one suite in four; at 0.5 by one in 18, and the second few items save most of those."""

EVAL_CHANCE_P = 0.01
"""With a whole evaluation there is no excuse for a score that guessing reaches one time in a hundred."""


def chance_p(correct: int, n: int, chance: float) -> float:
    """Probability that guessing scores at least `correct` of `n`: P(Bin(n, chance) >= correct).

    Summed from logarithms: with thousands of items the binomial coefficients are beyond any float.
    """
    if correct <= 0:
        return 1.0
    if chance <= 0:
        return 0.0
    odds = log(chance), log1p(-chance)
    whole = lgamma(n + 1)
    terms = (
        exp(whole - lgamma(i + 1) - lgamma(n - i + 1) + i * odds[0] + (n - i) * odds[1]) for i in range(correct, n + 1)
    )
    return min(1.0, fsum(terms))


def at_chance(correct: int, n: int, chance: float, level: float) -> Finding | None:
    """Guessing must reach a score with a probability of at most `level`."""
    p = chance_p(correct, n, chance)
    if p <= level:
        return None
    sentence = f"{correct} of {n} right: guessing (chance {chance:g}) does as well with p = {p:.2f}"
    return Finding(Reason.AT_CHANCE, "rejected", sentence)
