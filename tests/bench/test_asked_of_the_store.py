"""What a flow asks of its store, counted over a simulated night: the real flow, clouds and nodes that are simulated."""

from __future__ import annotations

import pytest

from bench.orchestrate_spot import live
from bench.simulated_cloud import Weather


@pytest.mark.slow(8)
def test_a_flow_asks_its_store_at_most_200_times_an_hour_and_cell() -> None:
    night = live(6, 1, Weather(reclaimed_per_hour=0.2, launch_s=300.0), None, 8, 6)
    assert night.measured == night.cells == 6
    assert night.requests_cell_h <= 200, night.requests
