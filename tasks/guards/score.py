"""Guards over scores: could guessing have done that?"""

from __future__ import annotations

from math import comb

from tasks.guards.finding import Finding
from warehouse.verdicts import Reason

SMOKE_CHANCE_P = 0.15
"""With five items of four choices, 3 right pass (p = 0.10) and 2 do not (p = 0.37)."""

EVAL_CHANCE_P = 0.01
"""With a whole evaluation there is no excuse for a score that guessing reaches one time in a hundred."""


def chance_p(correct: int, n: int, chance: float) -> float:
    """Probability that guessing scores at least `correct` of `n`: P(Bin(n, chance) >= correct)."""
    return sum(comb(n, i) * chance**i * (1 - chance) ** (n - i) for i in range(correct, n + 1))


def at_chance(correct: int, n: int, chance: float, level: float) -> Finding | None:
    """Guessing must reach a score with a probability of at most `level`."""
    p = chance_p(correct, n, chance)
    if p <= level:
        return None
    sentence = f"{correct} of {n} right: guessing (chance {chance:g}) does as well with p = {p:.2f}"
    return Finding(Reason.AT_CHANCE, "rejected", sentence)
