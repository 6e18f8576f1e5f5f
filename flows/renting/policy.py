"""Which machine a cell gets next, or how long it waits. Pure: everything that is known goes in, a decision comes out.

    spot, cheapest first, in a place that has not failed lately (`flows.renting.failures`)
    on demand once the cell has lost `cloud.on_demand_after` machines, or if its deadline asks (`deadline.py`)
    no clear place: one that failed and has rested since; the place that the cell lost last only if there is no other
    none has rested: wait, and say what was tried, when it failed, and when the next try is

SkyPilot's own recovery is not used: its EAGER_NEXT_REGION was seen to return to a zone right after losing it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from configs.schema import Cloud
from flows.clusters.protocol import CellNeed, Decision, Launch, Wait
from flows.renting.deadline import Pace
from flows.renting.failures import JITTER, Backoff, Memory, place_of
from warehouse.placement import Offer

SHORTEST_WAIT_S = 1.0
"""Keeps a deadline that is due right now from making a loop without a pause."""

NAMED_PLACES = 4
"""How many places the sentence about a wait names: those that failed last."""


class Known(NamedTuple):
    """What has been learnt so far.

    `pace` is None without a deadline; `was_on_demand` says whether the cell's last machine was.
    """

    memory: Memory
    backoff: Backoff
    pace: Pace | None
    was_on_demand: bool


class _Choice(NamedTuple):
    """Offers of one preference, and the reason to give if one is taken."""

    offers: list[Offer]
    why: str


def decide(
    offers: Sequence[Offer], need: CellNeed, cloud: Cloud, known: Known, now_s: float, rng: random.Random
) -> Decision:
    """Where to rent a cell's next machine, or when to ask again.

    Args:
        offers: what can be rented, at least one.
        need: what the cell still has to do, and what it has lost.
        cloud: how the sweep is rented.
        known: what has been learnt so far.
        now_s: seconds since 1970.
        rng: breaks ties between places of one price, and spreads the waits of several cells.
    """
    choices = list(_preferred(offers, need, cloud, known))
    for choice in choices:
        clear = [offer for offer in choice.offers if known.memory.is_clear(place_of(offer), now_s)]
        if clear:
            return Launch(min(clear, key=lambda offer: (*_rank(offer, known.memory, now_s), rng.random())), choice.why)
    lost = known.memory.lost_by.get(need.cell_key)
    for choice in choices:
        rested = [offer for offer in choice.offers if _rested_s(offer, known) <= now_s]
        if rested:
            offer = min(rested, key=lambda offer: (place_of(offer) == lost, _rested_s(offer, known)))
            return Launch(offer, f"{choice.why or 'every place failed lately'}: trying {offer.where} again")
    return _wait([offer for choice in choices for offer in choice.offers], known, now_s, rng)


def why_on_demand(need: CellNeed, cloud: Cloud, known: Known) -> str | None:
    """Why to rent on demand even where spot can be had; None if there is no reason."""
    if need.losses >= cloud.on_demand_after:
        return f"lost {need.losses} machines (cloud.on_demand_after: {cloud.on_demand_after})"
    pace = known.pace
    if pace is None:
        return None
    if pace.is_last_call:
        return f"{_hours(pace.left_s)} of work left, {_hours(pace.time_left_s)} to cloud.finish_by_h"
    if known.was_on_demand and not pace.has_caught_up:
        return "was on demand and has not caught up with cloud.finish_by_h"
    return None


def _preferred(offers: Sequence[Offer], need: CellNeed, cloud: Cloud, known: Known) -> Iterator[_Choice]:
    """Kinds of offers, best first."""
    spot = [offer for offer in offers if offer.spot]
    on_demand = [offer for offer in offers if not offer.spot]
    urgent = why_on_demand(need, cloud, known)
    if not spot:
        yield _Choice(on_demand, "")
    elif urgent is None:
        yield _Choice(spot, "")
        if known.pace is not None and known.pace.is_behind:
            yield _Choice(on_demand, "on demand: behind cloud.finish_by_h, and no spot to be had")
    elif not on_demand:
        yield _Choice(spot, f"{urgent}, but nothing can be rented on demand: spot")
    else:
        yield _Choice(on_demand, f"on demand: {urgent}")
        yield _Choice(spot, f"{urgent}, but there is no on-demand capacity: spot")


def _rank(offer: Offer, memory: Memory, now_s: float) -> tuple[float, bool]:
    """Cheapest first; at one price, zones where nothing of ours failed lately. Machines without a price are owned."""
    zone = (offer.cloud, offer.region, offer.zone)
    shaken = any(place[:3] == zone and now_s < trouble.avoided_until_s for place, trouble in memory.troubles.items())
    return offer.price_usd_h or 0.0, shaken


def _rested_s(offer: Offer, known: Known) -> float:
    """From when on a place that failed may be asked again."""
    return known.backoff.rested_s(known.memory.troubles[place_of(offer)])


def _wait(offers: Sequence[Offer], known: Known, now_s: float, rng: random.Random) -> Wait:
    """Wait until the first place has rested, and a random while longer; at most until a deadline rule applies."""
    first = min(offers, key=lambda offer: _rested_s(offer, known))
    jitter_s = rng.uniform(0, JITTER) * known.backoff.rest_s(known.memory.troubles[place_of(first)])
    until_s = _rested_s(first, known) + jitter_s
    if known.pace is not None and not known.pace.is_last_call and not known.pace.is_behind:
        until_s = min(until_s, now_s + known.pace.until_due_s)
    until_s = max(until_s, now_s + SHORTEST_WAIT_S)
    said = _failures(offers, known.memory, now_s)
    at = datetime.fromtimestamp(until_s, UTC).strftime("%H:%M:%S")
    return Wait(until_s, f"nothing to be had: {said}; next try in {_span(until_s - now_s)}, at {at} UTC")


def _failures(offers: Sequence[Offer], memory: Memory, now_s: float) -> str:
    """What was tried and when it failed, the latest first."""
    tried = sorted(((memory.troubles[place_of(offer)], offer.where) for offer in offers), key=lambda one: -one[0].at_s)
    named = [
        f"{where} {trouble.kind} {_span(now_s - trouble.at_s)} ago"
        + (f" ({trouble.in_a_row} in a row)" if trouble.in_a_row > 1 else "")
        for trouble, where in tried[:NAMED_PLACES]
    ]
    more = len(tried) - len(named)
    return ", ".join(named) + (f" and {more} more places" if more else "")


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else _hours(seconds)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h"
