"""Zones that exist on paper only, and a cell that lives through their reclaims, for tests of the policy."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from configs.schema import Cloud
from flows.clusters.protocol import CellNeed, Launch, Wait
from flows.renting.site import PolicySite
from tests.fake_cloud import OFFER
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import Offer

START_S = 1_800_000_000.0
"""The first moment of every simulation."""

ASKING_S = 2.0
"""How long a cloud takes to say that it has no capacity."""


def offer(zone: str, *, spot: bool = True, price_usd_h: float | None = None) -> Offer:
    """An H100 in a zone named like `us-east-1a`."""
    price = price_usd_h if price_usd_h is not None else 2.5 if spot else 7.0
    return OFFER.model_copy(update={"region": zone[:-1], "zone": zone, "spot": spot, "price_usd_h": price})


def cloud(**fields: object) -> Cloud:
    return Cloud.model_validate({"task": "lab", **fields})


def need(cell_key: str = "c1", **fields: Any) -> CellNeed:
    """A cell with an hour of work left that has just begun."""
    return CellNeed(cell_key, losses=0, remaining_s=3600.0, elapsed_s=0.0)._replace(**fields)


class Hands:
    """The clock of a test, moved by hand."""

    def __init__(self) -> None:
        self.at_s = START_S

    def now_s(self) -> float:
        return self.at_s


def site_of(offers: list[Offer], hands: Hands, settings: Cloud | None = None, seed: int = 1, **more: Any) -> PolicySite:
    """A site whose clusters nobody launches."""

    def no_cluster(cell_key: str, offer: Offer | None) -> Any:
        raise AssertionError("no test of the policy launches anything")

    rng = random.Random(seed)
    return PolicySite(lambda: offers, no_cluster, settings or cloud(), [], hands.now_s, rng, **more)


class Life(NamedTuple):
    """What became of a cell: every launch with its moment and end, seconds waited, and when it was done."""

    launches: list[tuple[float, Offer, Ended | None]]
    waits: list[Wait]
    done_s: float

    def zones(self) -> list[str | None]:
        return [offer.zone for _, offer, _ in self.launches]


class World(NamedTuple):
    """What clouds do: whether an offer has capacity at a moment, and after how many seconds a machine is lost."""

    has_capacity: Callable[[Offer, float], bool]
    lost_after_s: Callable[[Offer], tuple[float, Ended] | None]


def live(
    site: PolicySite, hands: Hands, world: World, work_s: float, changeover_s: float, cell_key: str = "c1"
) -> Life:
    """One cell from its first choice until its work is done; progress starts a changeover after each launch."""
    done_s, losses, began_s = 0.0, 0, hands.at_s
    launches: list[tuple[float, Offer, Ended | None]] = []
    waits: list[Wait] = []
    end: Ended | None
    while True:
        assert len(launches) + len(waits) < 10_000, "the policy never gets anywhere"
        decision = site.choose(CellNeed(cell_key, losses, work_s - done_s, hands.at_s - began_s))
        if isinstance(decision, Wait):
            waits.append(decision)
            hands.at_s = decision.until_s
            continue
        assert isinstance(decision, Launch) and decision.offer is not None
        rented, at_s = decision.offer, hands.at_s
        needs_s = changeover_s + work_s - done_s
        takes_s, end = needs_s, None
        if not world.has_capacity(rented, at_s):
            takes_s, end = ASKING_S, Ended.NO_CAPACITY
        elif (lost := world.lost_after_s(rented)) and lost[0] < needs_s:
            takes_s, end = lost
            losses += 1
            done_s += max(0.0, takes_s - changeover_s)
        hands.at_s += takes_s
        launches.append((at_s, rented, end))
        site.ended(cell_key, rented, end)
        if end is None:
            return Life(launches, waits, hands.at_s)
