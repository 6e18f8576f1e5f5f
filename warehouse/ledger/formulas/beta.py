"""The incomplete beta function and what follows from it: Student's t and the binomial distribution.

In plain Python, because nothing else here needs scipy. Relative error below 1e-10 where these are used (checked against
published tables in the tests).
"""

from __future__ import annotations

import math
from statistics import NormalDist

_TERMS = 400
"""Most terms of the continued fraction; it converges in O(sqrt(max(a, b))), 12 000 items need about 100."""

_TINY = 1e-300
"""Replaces a zero denominator in Lentz's method."""


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularized incomplete beta function I_x(a, b), 0 ... 1.

    Source: continued fraction DLMF 8.17.22, evaluated by the modified Lentz method (Press et al., Numerical Recipes,
    3rd ed., section 6.4); I_x(a, b) = 1 - I_(1-x)(b, a) keeps it where it converges fast.
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / ((1 + term * d) or _TINY)
            c = (1 + term / c) or _TINY
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return value


def student_tail(t: float, degrees: float) -> float:
    """P(T > t) of Student's t: for t >= 0 it is I_x(degrees / 2, 1 / 2) / 2 at x = degrees / (degrees + t^2).

    Source: Abramowitz and Stegun 26.7.1.
    """
    tail = incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2
    return tail if t >= 0 else 1 - tail


def student_quantile(tail: float, degrees: float) -> float:
    """The t > 0 with P(T > t) = tail, for a tail below 1/2.

    Newton's method from the normal quantile, which lies below: the tail is convex there, so no step goes too far.
    """
    t = NormalDist().inv_cdf(1 - tail)
    log_front = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    for _ in range(_TERMS):
        density = math.exp(log_front - (degrees + 1) / 2 * math.log1p(t * t / degrees))
        step = (student_tail(t, degrees) - tail) / density
        t += step
        if step <= 1e-12 * t:
            break
    return t


def binomial_at_most(hits: int, n: int, p: float) -> float:
    """P(Bin(n, p) <= hits) = 1 - I_p(hits + 1, n - hits) (Abramowitz and Stegun 26.5.24)."""
    return 1.0 if hits >= n else incomplete_beta(n - hits, hits + 1, 1 - p)
