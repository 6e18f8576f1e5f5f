"""Which machine a cell gets next, or how long it waits. Pure: everything that is known goes in, a decision comes out.

    Spot, cheapest first, in a place that has not failed lately.
    On demand once the cell has lost `cloud.on_demand_after` machines, or if its deadline asks.
    No place is clear: one that failed and has rested since. The place that the cell lost last comes only if there is
    no other.
    None has rested: wait, and say what was tried, when it failed, and when the next try is.

SkyPilot's own recovery is not used: its EAGER_NEXT_REGION was seen to return to a zone right after losing it.

After a failure a capacity pool is avoided while another can be had, for longer with each failure in a row. At first
it rests, for a shorter while: then it is not asked at all.

A deadline asks for on-demand machines by Uniform Progress: Wu, Chiang, Mao, Yang, Friedman, Shenker, Stoica, "Can't Be
Late: Optimizing Spot Instance Savings under Deadlines", NSDI 2024, sections 3.3, 5.2.2 and A.8. C(0) seconds of work
are due in R(0) seconds; C(t) and R(t) are left of both; cp(t) = C(0) - C(t) is the progress. A changeover takes d s:

    expected progress    ep(t) = t * C(0) / R(0)                                                                (5)
    Uniform Progress     idle, cp(t) < ep(t): on-demand, to catch up
    Taking Risks         but spot whenever it is available, also when behind; stay on it until it is preempted
    Hysteresis           on on-demand: stay on it until cp(t) >= ep(t + 2d)
    Safety Net           idle, R(t) < C(t) + 2d: on-demand until the end
    Loose Deadline       spot only, until C(t) / R(t) = 0.7; t = 0 is then                                     (A.8)

Where we deviate:

- The paper sees whether spot is available; we only learn it by asking. A place without recent failures counts as
  available.
- A cell is never moved off a running node, neither from spot nor back to it. Rules apply when it needs a new one.
  So hysteresis matters only when an on-demand node was lost.
- The job is the cell in hand together with its place's share of the cells that still wait: the deadline is the run's.
- Progress is counted in committed steps, so an unfinished step counts as work left.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from configs.schema import Cloud
from flows.clusters.protocol import CellNeed, Decision, Launch, Wait
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import Offer

AVOID_MOST_S = 4 * 3600.0  # longest that a pool is avoided, however often it failed: spot follows the time of day
PROVEN_S = 1800.0  # a node that lived this long shows that its pool works; a failure after that starts the count anew
FORGOTTEN_S = 2 * AVOID_MOST_S  # a failure this old says nothing any more; the next one starts the count anew
FIRST_REST_S, MOST_REST_S = 30.0, 600.0  # bounds of a rest; at first, all zones are asked in half a minute
JITTER = 0.5  # largest share of a rest that is added at random, so that cells don't all come back in the same second
TIGHT = 0.7  # work left over time left from which progress is watched (the paper's A.8)
SHORTEST_WAIT_S = 1.0  # keeps a deadline that is due right now from making a loop without a pause
NAMED_PLACES = 4  # how many places the sentence about a wait names: those that failed last


class CapacityPool(NamedTuple):
    """What is remembered: an instance type in a zone, spot and on-demand apart."""

    cloud: str
    region: str | None
    zone: str | None
    instance_type: str | None
    spot: bool


class Event(NamedTuple):
    """A placement that ended; `loss` is None if its pool is not to blame. `lived_s`: since it was asked for."""

    cell_key: str
    pool: CapacityPool
    loss: Ended | None
    at_s: float
    lived_s: float


class Trouble(NamedTuple):
    """The last failure of a pool, and how many there were in a row."""

    kind: Ended
    at_s: float
    in_a_row: int

    @property
    def avoid_s(self) -> float:
        """How long the pool is avoided: twice as long with each failure in a row, up to `AVOID_MOST_S`."""
        return min(AVOID_MOST_S, self.kind.row.avoided_s * 2.0 ** min(self.in_a_row - 1, 16))

    @property
    def avoided_until_s(self) -> float:
        """From when on the pool is as good as any other (seconds since 1970)."""
        return self.at_s + self.avoid_s

    @property
    def rest_s(self) -> float:
        """Seconds in which the pool is not asked, even if there is no better one; with `JITTER`, `MOST_REST_S`."""
        return min(MOST_REST_S / (1 + JITTER), FIRST_REST_S * 2.0 ** min(self.in_a_row - 1, 16))


class Failures(NamedTuple):
    """Pools in trouble, and the pool that each cell lost last."""

    troubles: Mapping[CapacityPool, Trouble] = MappingProxyType({})
    lost_by: Mapping[str, CapacityPool] = MappingProxyType({})

    def is_clear(self, pool: CapacityPool, now_s: float) -> bool:
        """Whether a pool is not being avoided."""
        trouble = self.troubles.get(pool)
        return trouble is None or now_s >= trouble.avoided_until_s


def pool_of(offer: Offer) -> CapacityPool:
    """What is remembered of an offer: everything but its price."""
    return CapacityPool(offer.cloud, offer.region, offer.zone, offer.instance_type, offer.spot)


def remember(memory: Failures, event: Event) -> Failures:
    """The memory after a placement has ended.

    A failure counts as one more in a row if its machine was asked for after the failure before it. One that was asked
    for earlier (a wave of reclaims, several cells that asked the same zone at once) tells the same thing again. A
    placement that did its work, or lived long, ends the row.
    """
    troubles, lost_by = dict(memory.troubles), dict(memory.lost_by)
    known = troubles.get(event.pool)
    asked_s = event.at_s - event.lived_s
    if event.loss is None:
        if known is not None and asked_s >= known.at_s:
            del troubles[event.pool]
        return Failures(troubles, lost_by)
    lost_by[event.cell_key] = event.pool
    new_row = known is None or event.lived_s >= PROVEN_S or event.at_s > known.at_s + FORGOTTEN_S
    in_a_row = 1 if known is None or new_row else known.in_a_row + (asked_s >= known.at_s)
    troubles[event.pool] = Trouble(event.loss, event.at_s, in_a_row)
    return Failures(troubles, lost_by)


class WatchedFrom(NamedTuple):
    """When a job's progress was first watched: C(0) and R(0), in seconds."""

    work_s: float
    whole_s: float


class Pace(NamedTuple):
    """A job on its way to a deadline, in seconds; `start` is None while that is loose.

    `left_s`: C(t); `time_left_s`: R(t); `changeover_s`: d, from asking for a machine until it measures.
    """

    start: WatchedFrom | None
    left_s: float
    time_left_s: float
    changeover_s: float

    @property
    def is_tight(self) -> bool:
        """Whether progress has to be watched from now on."""
        return self.left_s >= TIGHT * self.time_left_s

    @property
    def is_behind(self) -> bool:
        """Uniform Progress: cp(t) < ep(t)."""
        return self.start is not None and self._ahead_s(self.start, 0.0) < 0

    @property
    def has_caught_up(self) -> bool:
        """Hysteresis: cp(t) >= ep(t + 2d)."""
        return self.start is None or self._ahead_s(self.start, 2 * self.changeover_s) >= 0

    @property
    def is_last_call(self) -> bool:
        """Safety Net: R(t) < C(t) + 2d."""
        return self.time_left_s < self.left_s + 2 * self.changeover_s

    @property
    def until_due_s(self) -> float:
        """Seconds until another rule applies if nothing is measured meanwhile; 0 if one does now."""
        until_last_call_s = self.time_left_s - self.left_s - 2 * self.changeover_s
        if self.start is None:
            until_watched_s = self.time_left_s - self.left_s / TIGHT
        else:
            until_watched_s = self._ahead_s(self.start, 0.0) * self.start.whole_s / max(self.start.work_s, 1.0)
        return max(0.0, min(until_last_call_s, until_watched_s))

    def _ahead_s(self, start: WatchedFrom, later_s: float) -> float:
        """cp(t) - ep(t + later)."""
        passed_s = start.whole_s - self.time_left_s + later_s
        expected_s = start.work_s if start.whole_s <= 0 else min(start.work_s, passed_s * start.work_s / start.whole_s)
        return start.work_s - self.left_s - expected_s


class Known(NamedTuple):
    """What has been learnt so far: no `pace` without a deadline; `was_on_demand`: the cell's last machine."""

    memory: Failures
    pace: Pace | None
    was_on_demand: bool


def decide(
    offers: Sequence[Offer], need: CellNeed, cloud: Cloud, known: Known, now_s: float, rng: random.Random
) -> Decision:
    """Where to rent a cell's next machine, or when to ask again. `rng` breaks ties of price and spreads waits."""
    choices = list(_preferred(offers, need, cloud, known))
    for wanted, why in choices:
        clear = [offer for offer in wanted if known.memory.is_clear(pool_of(offer), now_s)]
        if clear:
            return Launch(min(clear, key=lambda offer: (*_rank(offer, known.memory, now_s), rng.random())), why)
    lost = known.memory.lost_by.get(need.cell_key)
    for wanted, why in choices:
        rested = [offer for offer in wanted if _rested_s(offer, known) <= now_s]
        if rested:
            offer = min(rested, key=lambda offer: (pool_of(offer) == lost, _rested_s(offer, known)))
            return Launch(offer, f"{why or 'every place failed lately'}: trying {offer.where} again")
    return _wait([offer for wanted, _ in choices for offer in wanted], known, now_s, rng)


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


def _preferred(
    offers: Sequence[Offer], need: CellNeed, cloud: Cloud, known: Known
) -> Iterator[tuple[list[Offer], str]]:
    """Offers of each preference, and the reason to give if one of them is taken."""
    spot = [offer for offer in offers if offer.spot]
    on_demand = [offer for offer in offers if not offer.spot]
    urgent = why_on_demand(need, cloud, known)
    if not spot:
        yield on_demand, ""
    elif urgent is None:
        yield spot, ""
        if known.pace is not None and known.pace.is_behind:
            yield on_demand, "on demand: behind cloud.finish_by_h, and no spot to be had"
    elif not on_demand:
        yield spot, f"{urgent}, but nothing can be rented on demand: spot"
    else:
        yield on_demand, f"on demand: {urgent}"
        yield spot, f"{urgent}, but there is no on-demand capacity: spot"


def _rank(offer: Offer, memory: Failures, now_s: float) -> tuple[float, bool]:
    """Cheapest first; at one price, zones where nothing of ours failed lately. Machines without a price are owned."""
    zone = (offer.cloud, offer.region, offer.zone)
    shaken = any(place[:3] == zone and now_s < trouble.avoided_until_s for place, trouble in memory.troubles.items())
    return offer.price_usd_h or 0.0, shaken


def _rested_s(offer: Offer, known: Known) -> float:
    """From when on a place that failed may be asked again, if there is no better one (seconds since 1970)."""
    trouble = known.memory.troubles[pool_of(offer)]
    return trouble.at_s + trouble.rest_s


def _wait(offers: Sequence[Offer], known: Known, now_s: float, rng: random.Random) -> Wait:
    """Wait until the first place has rested, and a random while longer; at most until a deadline rule applies."""
    first = min(offers, key=lambda offer: _rested_s(offer, known))
    jitter_s = rng.uniform(0, JITTER) * known.memory.troubles[pool_of(first)].rest_s
    until_s = _rested_s(first, known) + jitter_s
    if known.pace is not None and not known.pace.is_last_call and not known.pace.is_behind:
        until_s = min(until_s, now_s + known.pace.until_due_s)
    until_s = max(until_s, now_s + SHORTEST_WAIT_S)
    said = _failures(offers, known.memory, now_s)
    at = datetime.fromtimestamp(until_s, UTC).strftime("%H:%M:%S")
    return Wait(until_s, f"nothing to be had: {said}; next try in {_span(until_s - now_s)}, at {at} UTC")


def _failures(offers: Sequence[Offer], memory: Failures, now_s: float) -> str:
    tried = sorted(((memory.troubles[pool_of(offer)], offer.where) for offer in offers), key=lambda one: -one[0].at_s)
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
