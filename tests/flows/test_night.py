"""A night of reclaims: everything is measured, little is lost, and the flow asks little of its store."""

from __future__ import annotations

import pytest

from tests.flows.simulated_night import STORED_EVERY_S, night


@pytest.mark.slow(8)
def test_a_night_of_reclaims_costs_a_part_each_and_200_requests_an_hour_and_cell() -> None:
    found = night(6, reclaimed_per_hour=0.2)
    assert found.measured == 6
    assert found.lost_s and max(lost or 0.0 for lost in found.lost_s) <= STORED_EVERY_S
    assert sum(found.requests.values()) <= 200 * found.hours, found.requests
