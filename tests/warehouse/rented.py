"""Rented machines in a store, written as a flow and its node would write them; times are seconds after `START`."""

from typing import Any

from warehouse.ledger.clock import Clock, iso_of
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Attempt, Leases
from warehouse.ledger.placement import MachineEnd, Offer, PlacementEnd, Placements

START_S = 1_795_176_000.0  # 2026-11-20 12:00 UTC
ZONE_A = Offer(
    cloud="aws", region="us-east-1", zone="us-east-1a", instance_type="p5.4xlarge", spot=True, price_usd_h=3.6,
    price_source="a test's catalogue",
)  # fmt: skip
"""0.001 USD a second."""

ZONE_B = ZONE_A.model_copy(update={"zone": "us-east-1b"})
ON_DEMAND = ZONE_A.model_copy(update={"spot": False, "price_usd_h": 7.2})
NO_PRICE = ZONE_A.model_copy(update={"cloud": "slurm", "region": None, "zone": None, "price_usd_h": None})


class StandingClock(Clock):
    """Stands still until it is moved."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.s = START_S + seconds

    def now_s(self) -> float:
        return self.s


def at(seconds: float) -> str:
    return iso_of(START_S + seconds)


def rent(
    ledger: Ledger,
    cell_key: str,
    asked: float,
    up: float | None,
    down: float | None,
    outcome: Any = "done",
    offer: Offer = ZONE_A,
    attempt: int | None = None,
    rented: float | None = None,
    ended: float | None = None,
    interrupted: bool = False,
) -> None:
    """One placement; `down` none: it is still up; `rented`, `ended` none: the cloud did not say from or until when."""
    placements = Placements(ledger, cell_key)
    number = placements.ask(f"cluster-{cell_key[:4]}", offer, "host/boot/1/1", at(asked)).number
    if up is not None:
        placements.up(number, at(up), None if rented is None else START_S + rented)
    if down is not None:
        ended_s, rented_s = (None if each is None else START_S + each for each in (ended, rented))
        word = MachineEnd(ended_s, interrupted, rented_s)
        placements.end(number, PlacementEnd(at=at(down), outcome=outcome, detail="", attempt=attempt), word)


def close(ledger: Ledger, cell_key: str, number: int, start: float, end: float, **facts: Any) -> None:
    """What a node runner recorded of its attempt."""
    record = {"outcome": "completed", "price_usd_h": 3.6} | facts
    Leases(ledger, cell_key).close(
        Attempt.model_validate({"attempt": number, "started_at": at(start), "ended_at": at(end), **record})
    )


def rent_a_bad_night(ledger: Ledger, cell_key: str) -> None:
    """Twice no capacity, then preempted in the middle of a step, then a setup that failed, then done."""
    rent(ledger, cell_key, 0, None, 30, "no_capacity")
    rent(ledger, cell_key, 40, None, 70, "no_capacity")
    rent(ledger, cell_key, 100, 200, 1000, "preempted", ZONE_B, 1)
    spent = {"load_s": 120.0, "smoke_s": 20.0, "measure_s": 500.0, "lost_s": 40.0}
    close(ledger, cell_key, 1, 260, 990, outcome="lost", reason="preempted: reclaimed", **spent)
    rent(ledger, cell_key, 1100, 1150, 1400, "setup_failed", ON_DEMAND)
    rent(ledger, cell_key, 1500, 1600, 2500, "done", ZONE_A, 2)
    close(ledger, cell_key, 2, 1650, 2480, load_s=100.0, smoke_s=0.0, measure_s=700.0, lost_s=0.0)
