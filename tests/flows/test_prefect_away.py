"""Prefect's server or worker goes while a run measures: nothing ends, nothing begins twice, and a cancel is heard.

A real server, a real worker, and the fake engine, which is slow until the fault is over.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from flows.terminal.prefect_session import DATABASE, PrefectSession
from tests.busy_machine import PATIENCE_S
from tests.fake_cloud import children
from tests.fake_run import FakeRun
from tests.flows.test_prefect import SELDOM_S, api, enter, state_of
from tests.tasks.test_cell import processes_with, wait_until
from warehouse.ledger.runs import run_ids

AWAY_S = 20.0
DEAF_S = 40.0  # after which Prefect's worker listens for no cancel any more


@contextmanager
def serving(run: FakeRun, token_s: float) -> Iterator[PrefectSession]:
    """A server and a worker whose flows' engine takes so long for a token, until the file `hurry` is there."""
    settings = {
        "SPECSWEEP_STORE": run.store_url,
        "SPECSWEEP_STATE": str(run.state),
        "FAKE_ENGINE_TOKEN_S": str(token_s),
        "FAKE_ENGINE_HURRY": str(run.folder / "hurry"),
        "FAKE_ENGINE_COUNT": str(run.counts),
    }
    with PrefectSession(run.folder / "prefect", settings) as session:
        session.start(lambda _: None)
        yield session


def begin(session: PrefectSession, run: FakeRun, deployment: str, run_id: str) -> str:
    """The id of a new flow run of the deployment, for the sweep of the fake engine."""
    return session.run(deployment, {"name": str(run.folder / "sweep.yaml"), "run_id": run_id})


def measuring(session: PrefectSession, run: FakeRun, deployment: str) -> str:
    """The id of the flow run `r1`, which has begun and whose node measures."""
    flow_run = begin(session, run, deployment, "r1")
    wait_until(lambda: run.leases.current() is not None, "the node's lease", PATIENCE_S)
    return flow_run


def is_in(session: PrefectSession, flow_run: str, state: str) -> bool:
    return answers(session) and bool(state_of(session, flow_run)["type"] == state)


def answers(session: PrefectSession) -> bool:
    try:
        return httpx.get(f"{session.url}/api/health", timeout=2, trust_env=False).is_success
    except httpx.TransportError:
        return False


def server_of(session: PrefectSession) -> list[int]:
    pid = session.pid_of("server")
    return [pid, *children(pid)]


@contextmanager
def killed(session: PrefectSession) -> Iterator[None]:
    for pid in server_of(session):
        os.kill(pid, signal.SIGKILL)
    yield
    session.spawn_server()


@contextmanager
def frozen(session: PrefectSession) -> Iterator[None]:
    pids = server_of(session)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def locked(session: PrefectSession) -> Iterator[None]:
    with closing(sqlite3.connect(session.home / DATABASE, timeout=120, isolation_level=None)) as database:
        database.execute("begin exclusive")
        try:
            yield
        finally:
            database.execute("rollback")


def lives_for(run: FakeRun, seconds: float) -> None:
    """Its runner does not end so soon."""
    over_s = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > over_s or run.attempts(), "the time to pass", seconds + PATIENCE_S)
    assert not run.attempts(), "the runner was ended, or was done before the fault was over"


def hears_a_cancel(run: FakeRun, session: PrefectSession, flow_run: str) -> None:
    def is_asked_for() -> bool:  # Prefect refuses it while the automations take the run for dead
        body = {"state": {"type": "CANCELLING", "name": "Cancelling"}, "force": False}
        answer = api(session, "POST", f"flow_runs/{flow_run}/set_state", body)
        return bool(answer["state"]["type"] in ("CANCELLING", "CANCELLED"))

    wait_until(is_asked_for, "Prefect to take it", PATIENCE_S, SELDOM_S)
    wait_until(run.attempts, "the run to hear it", PATIENCE_S, SELDOM_S)
    wait_until(lambda: is_in(session, flow_run, "CANCELLED"), "the run to say so", PATIENCE_S, SELDOM_S)
    assert [attempt.outcome for attempt in run.attempts()] == ["stopped"]


@pytest.mark.slow(180)
def test_a_server_that_is_killed_frozen_locked_and_restarted_ends_nothing_and_a_cancel_is_heard_afterwards(
    tmp_path: Path,
) -> None:
    run = FakeRun(tmp_path)
    with serving(run, token_s=0.2) as session:
        flow_run = measuring(session, run, "sweep/demo")
        for fault, for_s in ((killed, DEAF_S), (frozen, AWAY_S), (locked, AWAY_S), (killed, 0.0), (killed, 0.0)):
            with fault(session):
                lives_for(run, for_s)
            wait_until(lambda: answers(session), "the server", PATIENCE_S)
        assert run.ledger.read_commit(run.key, "smoke") is not None, "it measured meanwhile"
        hears_a_cancel(run, session, flow_run)
    assert processes_with(str(run.state)) == []


@pytest.mark.slow(108)
def test_a_run_whose_worker_was_killed_hears_a_cancel_denies_a_crash_and_a_second_night_ends_at_once(
    tmp_path: Path,
) -> None:
    run = FakeRun(tmp_path)
    with serving(run, token_s=0.2) as session:
        state_is = partial(is_in, session)
        first = measuring(session, run, "sweep/nightly")
        second = begin(session, run, "sweep/nightly", "r2")
        wait_until(lambda: state_is(second, "CANCELLED"), "the second night to end", PATIENCE_S, SELDOM_S)
        assert "an earlier night of sweep still runs" in state_of(session, second)["message"]
        assert state_is(first, "RUNNING") and run_ids(run.ledger.store) == ["r1"]

        os.kill(session.pid_of("worker"), signal.SIGKILL)
        enter(session, first, "CRASHED")
        wait_until(lambda: state_is(first, "RUNNING"), "the run to say that it lives", PATIENCE_S, SELDOM_S)
        assert not run.attempts()
        hears_a_cancel(run, session, first)
    assert processes_with(str(run.state)) == []
