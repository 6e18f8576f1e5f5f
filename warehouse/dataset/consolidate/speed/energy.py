"""Energy of windows: what a token took, and the power meanwhile, by the cards' own figures.

    energy_j_per_token  sum of energy_j / sum of completion tokens
    power_w             sum of energy_j / sum of the seconds that it was taken in

Both over the windows that have an energy: those of a fraction of a second have none. Ramp and tail are in both sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any


def energy_of(windows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The columns of results that say it; nothing where no card told."""
    said = [row["throttle_reasons"] for row in windows if row.get("throttle_reasons") is not None]
    throttled = {"throttle_reasons": sorted({reason for each in said for reason in each})} if said else {}
    known = [row for row in windows if row.get("energy_j") and row.get("power_w")]
    tokens = sum(row["completion_tokens"] for row in known)
    if not tokens:
        return throttled
    joules, seconds = fsum(row["energy_j"] for row in known), fsum(row["energy_j"] / row["power_w"] for row in known)
    return throttled | {"energy_j_per_token": joules / tokens, "power_w": joules / seconds}
