"""Prefect's server is away for longer than any lease, and nobody ends a run for it.

In a file of its own: it waits for six minutes, beside which other tests of the server can run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_run import FakeRun
from tests.flows.test_prefect import PATIENCE_S, SELDOM_S
from tests.flows.test_prefect_away import is_in, killed, lives_for, measuring, serving
from tests.tasks.test_cell import processes_with, wait_until

LEASE_S = 300.0  # of Prefect's deployment limits, renewed every 225 s
STEPS = ("smoke", "throughput", "parity", "eval-tiny")


@pytest.mark.slow(420, busy=0.15)
def test_a_run_is_measured_and_published_while_the_server_is_away_for_longer_than_any_lease_and_says_so_later(
    tmp_path: Path,
) -> None:
    run = FakeRun(tmp_path)
    with serving(run, token_s=0.3) as session:
        flow_run = measuring(session, run, "sweep/demo")
        with killed(session):
            lives_for(run, LEASE_S + 30)
            (run.folder / "hurry").touch()
            wait_until(lambda: run.ledger.store.list("reports"), "the report", PATIENCE_S, SELDOM_S)
        wait_until(lambda: is_in(session, flow_run, "COMPLETED"), "the run to say so", PATIENCE_S, SELDOM_S)
    assert all(run.commit(step) for step in STEPS)
    assert [attempt.outcome for attempt in run.attempts()] == ["completed"], "one runner measured all"
    assert processes_with(str(run.state)) == []
