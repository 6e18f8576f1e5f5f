"""How the lab's user sets the weather, and what is refused."""

from __future__ import annotations

import time

from lab.errors import LabError
from lab.weather.conditions import KINDS, Condition, Conditions


def set_weather(
    conditions: Conditions, where: str, what: str, amount: float | None = None, lasts_s: float | None = None
) -> Condition:
    """Add some weather, or change what is there of its kind. Raises LabError: there is no such weather.

    `where` is store, cloud, machines or a region. `amount` is in seconds or a share; None: the kind's own. After
    `lasts_s` it clears by itself; None: it stays.
    """
    if where not in KINDS:
        raise LabError(_no_such_place(where))
    if what not in KINDS[where]:
        raise LabError(f"there is no weather {what!r} at {where}. Remedy: one of {', '.join(KINDS[where])}")
    if lasts_s is not None and not lasts_s > 0:
        raise LabError(f"weather can't last {lasts_s:g} s. Remedy: a time such as 90s (--for)")
    kind = KINDS[where][what]
    if not kind.unit and amount is not None:
        raise LabError(f"{where} {what} has no amount, and {amount:g} was given. Remedy: leave it out")
    chosen = kind.default if amount is None else amount
    if chosen is None:
        raise LabError(f"{where} {what} needs an amount in seconds. Remedy: weather {where} {what} 2")
    if not 0 < chosen <= (1.0 if kind.unit == "share" else 3600.0):
        unit = "a share, more than 0 and at most 1" if kind.unit == "share" else "seconds, more than 0, at most 3600"
        raise LabError(f"{where} {what} can't be {chosen:g}. Remedy: {unit}")
    condition = Condition(where, what, chosen, None if lasts_s is None else time.time() + lasts_s)
    others = [each for each in conditions.now() if (each.where, each.what) != (where, what)]
    conditions.write([*others, condition])
    return condition


def clear_weather(conditions: Conditions, where: str | None = None) -> None:
    """Fine weather, everywhere or in one place. Raises LabError: there is no such place."""
    if where is not None and where not in KINDS:
        raise LabError(_no_such_place(where))
    conditions.write([each for each in conditions.now() if where not in (None, each.where)])


def _no_such_place(where: str) -> str:
    return f"there is no weather at {where!r}. Remedy: one of {', '.join(KINDS)}"
