"""Guards over the steadiness of windows, on figures that were seen."""

from math import log, sqrt
from statistics import stdev
from typing import Any

import pytest

from tasks.guards.steadiness import client_behind, client_starved, half_width, unsteady
from tasks.timing.verdict import verdict
from warehouse.ledger.verdicts import Finding, Reason


def window(late_ms: float | None, share: float | None = 0.0, wall_s: float = 0.5, **more: Any) -> dict[str, Any]:
    row = {"mode": "fixed", "wall_s": wall_s, "requests": 1, "concurrency": 1, "tries": 3, "completion_tokens": 256}
    return {**row, "client_late_ms": late_ms, "client_late_share": share, **more}


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        # five windows on one host and four on an "H100 PCIe", which was published as ok
        ([70.0, 70.1, 70.2, 70.3, 70.4, 48.5, 48.6, 48.7, 48.8], "differ by 18.7%"),
        ([1438.0, 620.0, 1180.0], "differ by "),  # c=4 of a starved demo, cv above 35 %
        ([0.0, 70.0, 70.0], "1 of 3 repeats have no decoding steps"),
        ([1486.0, 1716.0, 1600.0], None),  # the same with the engine's group at nice 15
        ([462.0, 470.0, 458.0], None),
        ([70.0], None),
    ],
)
def test_repeats_that_differ_by_more_than_a_healthy_machine_s_are_suspect(rates: list[float], said: str | None) -> None:
    found = unsteady(rates, None)
    assert (found and (found.reason, found.severity)) == (said and (Reason.UNSTEADY, "suspect"))
    assert found is None or str(said) in found.sentence


def test_the_half_width_is_that_of_the_t_interval() -> None:
    """t(0.975, 2) = 4.303, of any published table."""
    rates = [100.0, 102.0, 104.0]
    assert half_width(rates) == pytest.approx(4.303 * stdev(map(log, rates)) / sqrt(3), rel=1e-3)
    assert half_width([0.0, 70.0]) == float("inf")
    assert unsteady(rates, 0.05) is None
    found = unsteady(rates, 0.02)
    assert found is not None and "3 repeats leave the decoding steps/s within ±4.9%, asked was ±2.0%" in found.sentence


@pytest.mark.parametrize(
    ("row", "starved"),
    [
        (window(9.0), False),  # a calm machine's largest gap
        (window(186.0), True),  # the least of the gaps that were seen on a starved one
        (window(20.0), False),  # less than a twentieth of the window
        (window(30.0), True),
        (window(30.0, wall_s=5.0), False),
        (window(1.0, share=0.3), True),  # many small waits
        (window(None, share=None), False),  # of before clients were watched
        (window(186.0, wall_s=6.0, mode="stream", requests=3), True),  # a stream's clock is one request's
        (window(186.0, wall_s=6.0), False),
        (window(240.0, wall_s=20.0, mode="stream", requests=3), False),  # of a time to first token that nobody knows
        (window(240.0, wall_s=20.0, mode="stream", requests=3, prefill_s=0.05), True),  # it makes 50 ms of it 290
        (window(9.0, wall_s=20.0, mode="stream", requests=3, prefill_s=0.05), False),
        (window(60.0, wall_s=20.0, mode="stream", requests=3, prefill_s=1.5), False),
    ],
)
def test_a_client_that_was_kept_waiting_is_told_from_a_slow_engine(row: dict[str, Any], starved: bool) -> None:
    found = client_starved([window(2.0), row])
    assert (found is not None) is starved
    if found is not None:
        assert (found.reason, found.severity) == (Reason.CLIENT_STARVED, "suspect")
        assert "1 of 2 windows" in found.sentence and "measured 3 times" in found.sentence


@pytest.mark.parametrize(("late_ms", "behind"), [(9.0, False), (45.0, True), (300.0, True)])
def test_a_schedule_is_kept_to_a_share_of_the_time_to_a_first_token(late_ms: float, behind: bool) -> None:
    """Latencies run from the moment that was due: 45 ms late nearly double a first token of 50 ms."""
    found = client_behind([late_ms] * 20, [50.0] * 20)
    assert (found is not None) is behind
    assert client_behind([45.0] * 20, [1000.0] * 20) is None and client_behind([9.0], []) is None


def test_a_starved_client_explains_a_burst_and_nothing_else() -> None:
    burst = Finding(Reason.STREAM_BURST, "rejected", "in one burst")
    short = Finding(Reason.SHORT_OUTPUT, "rejected", "too short")
    calm = verdict("c", "stream", [short, burst], [window(2.0, mode="stream")])
    starved = verdict("c", "stream", [short, burst], [window(400.0, mode="stream")])
    assert [each.reason for each in calm.findings] == [Reason.SHORT_OUTPUT, Reason.STREAM_BURST]
    assert [each.reason for each in starved.findings] == [Reason.SHORT_OUTPUT, Reason.CLIENT_STARVED]
