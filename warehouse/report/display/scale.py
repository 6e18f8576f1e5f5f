"""From data to places on a drawing: one linear scale with round ticks."""

from __future__ import annotations

import math
from typing import NamedTuple

TICKS = 5
"""About this many ticks; more would crowd a phone."""


class Scale(NamedTuple):
    """Maps low ... high of the data to start ... end of the drawing, in drawing units."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Place of a value; one outside the scale is put on its edge."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values inside the scale: 1, 2 or 5 times a power of ten apart."""
        rough = (self.high - self.low) / TICKS
        magnitude = 10.0 ** math.floor(math.log10(rough))
        step = magnitude * min((factor for factor in (1, 2, 5, 10) if factor * magnitude >= rough), default=10)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def tick_label(value: float) -> str:
    """A tick without needless zeros; thousands as k."""
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:g}"


def apart(places: list[float], gap: float, low: float, high: float) -> list[float]:
    """The same places, in the same order, moved so that neighbours are `gap` apart and all lie in low ... high."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    floor = low
    for index in order:
        moved[index] = floor = max(moved[index], floor)
        floor += gap
    ceiling = high
    for index in reversed(order):
        moved[index] = ceiling = min(moved[index], ceiling)
        ceiling -= gap
    return moved
