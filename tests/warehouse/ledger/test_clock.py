"""Clocks that jump or disagree: nothing takes less than no time, or costs less than nothing."""

from __future__ import annotations

import time

import pytest

from tests.warehouse.synthetic import demo_plan
from warehouse.ledger.clock import SYSTEM, iso_of
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Heartbeat, Leases, gone_attempt
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.store import Store


@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_a_process_s_moments_go_on_evenly_whatever_the_wall_clock_does(
    monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    before_s, wall_s = SYSTEM.now_s(), time.time()
    assert abs(before_s - wall_s) < 60, "they are the wall clock's, as it was when the process began"
    monkeypatch.setattr(time, "time", lambda: wall_s + jump_s)
    assert 0 <= SYSTEM.now_s() - before_s < 60


def test_an_attempt_is_never_shorter_than_what_its_runner_counted(local: Store) -> None:
    """Its start is by the node's clock, its end by that of the flow that found it gone."""
    cell = demo_plan().cells[0].cell.cell_key
    leases = Leases(Ledger(local, "one"), cell)
    lease = leases.acquire("a node whose clock is an hour ahead")
    beat = Heartbeat(
        attempt=1, phase="measuring", load_s=40, smoke_s=5, measure_s=50, at_risk_s=10, at=lease.granted_at
    )
    ended_at = iso_of(SYSTEM.now_s() - 3600)
    assert leases.close(gone_attempt(lease, beat, Ended.SILENT, "silent", ended_at, price_usd_h=3.6))
    [attempt] = leases.attempts()
    assert attempt.wall_s == 95
    assert attempt.cost_usd == pytest.approx(0.095)
