"""Through a real Prefect server and worker: the deployment runs, Ctrl-C leaves nothing, a lost host heals.

On a server that others use, too, our automations leave their flows alone, and deploying leaves schedules alone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from configs.checkout import ROOT
from flows.automations import DEFAULT_HEARTBEAT_S, MAX_FLOW_RUNS
from flows.terminal.prefect_session import WORK_POOL, PrefectSession, SessionFailed, output_of
from tasks.host import process_group
from tests.busy_machine import BUSY_MACHINE, PATIENCE_S
from tests.command_lines import run_python
from tests.fake_cloud import children
from tests.fake_run import FakeRun
from tests.flows.conftest import Sweep
from tests.loopback import Answering, serving
from tests.tasks.test_cell import processes_with, wait_until

SELDOM_S = 0.5
"""Between two looks at what takes half a minute: each costs the server 10 ms, on the cores that the thing needs."""

_CLIENT = httpx.Client(timeout=120, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))


def api(session: PrefectSession, method: str, path: str, body: object = None) -> Any:
    """By one client, as `httpx.get` loads all certificates for each look (17 ms)."""
    for _ in range(20):
        answer = _CLIENT.request(method, f"{session.url}/api/{path}", json=body)
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:  # while its database is busy Prefect's own asks again
            break
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def prefect(session: PrefectSession, *arguments: str) -> str:
    """What a Prefect command of a user's says to this server; it has to succeed."""
    return output_of(["-m", "prefect", *arguments], session.env)


def committed_once(run: FakeRun) -> None:
    """Every step has one commit, and no row of it was measured twice."""
    for step in ("smoke", "throughput", "parity", "eval-tiny"):
        commit = run.commit(step)
        assert commit.verdict == "ok" or set(commit.reasons) <= set(BUSY_MACHINE), commit.reasons
    requests = [row["request_id"] for row in run.rows("throughput", "requests")]
    assert len(requests) == len(set(requests))


@pytest.mark.slow(198)
def test_ctrl_c_leaves_no_process_and_the_next_start_goes_on(tmp_path: Path, start_sweep: Sweep) -> None:
    run = FakeRun(tmp_path)
    arguments = ("demo", "--sweep", "sweep.yaml", "--run-id", "r1")  # the flow's process works in the clone
    first = start_sweep(*arguments, cwd=tmp_path, FAKE_ENGINE_TOKEN_S="0.01")
    wait_until(lambda: run.ledger.read_commit(run.key, "smoke") is not None, "the smoke step", PATIENCE_S)
    first.send_signal(signal.SIGINT)
    said, _ = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 130, said
    assert "run the same command again" in said
    assert processes_with(str(tmp_path / "state")) == []
    assert [attempt.outcome for attempt in run.attempts()] == ["stopped"]

    second = start_sweep(*arguments, cwd=tmp_path, FAKE_ENGINE_TOKEN_S="0.004")
    said, _ = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, said
    assert any(line.startswith("page:") and line.endswith("report.html") for line in said.splitlines())
    committed_once(run)
    assert processes_with(str(tmp_path / "state")) == []

    third = start_sweep(*arguments, cwd=tmp_path)
    said, _ = third.communicate(timeout=PATIENCE_S)
    assert third.returncode == 0 and "is measured" in said


@pytest.mark.slow(132)
def test_a_host_that_dies_heals_without_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun(tmp_path)
    settings = {
        "SPECSWEEP_STORE": run.store_url,
        "SPECSWEEP_STATE": str(tmp_path / "state"),
        "FAKE_ENGINE_TOKEN_S": "0.05",
        "FAKE_ENGINE_COUNT": str(run.counts),
        "TMPDIR": str(tmp_path / "temporary"),
    }
    (tmp_path / "temporary").mkdir()
    with PrefectSession(tmp_path / "prefect", settings, silence_s=35) as session:
        session.start(lambda _: None)
        flow_run = session.run("sweep/demo", {"name": str(tmp_path / "sweep.yaml"), "run_id": "r1"})
        nightly = api(session, "GET", "deployments/name/sweep/nightly")["schedules"][0]
        assert (nightly["active"], nightly["schedule"]["timezone"]) == (False, "Europe/Berlin")
        seen = lambda: api(session, "GET", f"flow_runs/{flow_run}")  # noqa: E731
        wait_until(lambda: run.ledger.read_commit(run.key, "smoke") is not None, "the smoke step", PATIENCE_S)
        wait_until(lambda: seconds_running(seen()) > 35, "a heartbeat: none, no silence", PATIENCE_S, SELDOM_S)

        kill_everything_but_the_server(session)
        assert seen()["state"]["type"] == "RUNNING", "nobody is left to say that the run is dead"
        session.spawn_worker({"FAKE_ENGINE_TOKEN_S": "0.004"})
        wait_until(lambda: seen()["state"]["type"] == "COMPLETED", "the run to heal", PATIENCE_S, SELDOM_S)
        assert seen()["run_count"] == 2
    committed_once(run)
    assert [attempt.outcome for attempt in run.attempts()] == ["lost", "completed"]
    assert processes_with(str(tmp_path / "state")) == []
    left = list(tmp_path.rglob("workspace.json"))
    assert not left, "Prefect's worker writes a flow's variables there, keys too; this one was killed"


def kill_everything_but_the_server(session: PrefectSession) -> None:
    """What the loss of the host that runs worker and flows looks like to a server elsewhere."""
    server = session.pid_of("server")
    for _ in range(3):  # what was forked meanwhile, too
        for pid in process_group.members(session.group):
            if pid not in (server, *children(server)):
                os.kill(pid, signal.SIGKILL)


def seconds_running(flow_run: dict[str, Any]) -> float:
    started = str(flow_run["start_time"])
    return (datetime.now(UTC) - datetime.fromisoformat(started.replace("Z", "+00:00"))).total_seconds()


SILENCE_S = 12  # shorter than any heartbeat, so that each flow run looks dead: who is acted on is the question

INNOCENT = """
import time
from prefect import flow

@flow(name="innocent")
def innocent():
    time.sleep(600)

innocent()
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectSession]:
    with PrefectSession(tmp_path_factory.mktemp("prefect")) as session:
        session.start(lambda _: None)
        prefect(session, "work-pool", "pause", WORK_POOL)  # nobody runs what the tests below only pretend to run
        yield session


def deployment(session: PrefectSession, name: str) -> Any:
    return api(session, "GET", f"deployments/name/{name}")


def state_of(session: PrefectSession, flow_run: str) -> Any:
    return api(session, "GET", f"flow_runs/{flow_run}")["state"]


def enter(session: PrefectSession, flow_run: str, state: str, message: str = "") -> None:
    body = {"state": {"type": state, "name": state.title(), "message": message}, "force": False}
    answer = api(session, "POST", f"flow_runs/{flow_run}/set_state", body)
    assert answer["status"] == "ACCEPT", answer


def beat(session: PrefectSession, flow_run: str) -> None:
    """What Prefect's engine says on behalf of a flow run with our tag."""
    event = {
        "event": "prefect.flow-run.heartbeat",
        "occurred": datetime.now(UTC).isoformat(),
        "id": str(uuid4()),
        "resource": {"prefect.resource.id": f"prefect.flow-run.{flow_run}"},
        "related": [{"prefect.resource.id": "prefect.tag.specsweep", "prefect.resource.role": "tag"}],
    }
    api(session, "POST", "events", [event])


def within_s(session: PrefectSession) -> float:
    automations = api(session, "POST", "automations/filter", {})
    return next(each["trigger"]["within"] for each in automations if each["name"] == "specsweep: silent runs crash")


def replace_automations(session: PrefectSession, silence_s: int) -> None:
    code = f"import asyncio, flows.automations as a; asyncio.run(a.replace({silence_s}))"
    done = run_python("-c", code, env=session.env)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow(99)
def test_only_our_flow_runs_are_taken_for_dead_and_they_are_started_again_a_few_times(
    session: PrefectSession, tmp_path: Path
) -> None:
    replace_automations(session, SILENCE_S)
    (tmp_path / "innocent.py").write_text(INNOCENT)
    with subprocess.Popen([sys.executable, tmp_path / "innocent.py"], env=session.env, cwd=tmp_path) as team:
        try:
            innocent = theirs(session)
            silent = new_run(session, "sweep/full")
            start(session, silent)
            beat(session, silent)
            continued(session, silent)
            assert state_of(session, innocent)["type"] == "RUNNING", "it was silent for longer than ours"

            enter(session, silent, "PENDING")
            enter(session, silent, "CRASHED")  # before it ran: as when its checkout is broken
            looping = new_run(session, "sweep/demo")
            for _ in range(MAX_FLOW_RUNS - 1):
                crash(session, looping)
                continued(session, looping)
            assert state_of(session, silent)["name"] == "Crashed", "what can't start would be scheduled for ever"
            crash(session, looping)
            witness = new_run(session, "sweep/rehearsal")
            crash(session, witness)
            continued(session, witness)
            assert state_of(session, looping)["name"] == "Crashed", "it has been started often enough"
            assert state_of(session, innocent)["type"] == "RUNNING"
        finally:
            team.kill()


@pytest.mark.slow(11)
def test_a_silence_that_prefect_finds_twice_does_not_end_a_sweep(session: PrefectSession) -> None:
    """A busy server of Prefect's does, and the second crash meets a run that already waits for its next start."""
    silence_s = 3600  # none of these runs may be found silent by the server itself
    replace_automations(session, silence_s)
    twice, broken = new_run(session, "sweep/full"), new_run(session, "sweep/demo")
    for flow_run in (twice, broken):
        crash(session, flow_run)
        continued(session, flow_run)
    enter(session, broken, "CRASHED", "its worker could not start it")
    for _ in range(2):
        enter(session, twice, "CRASHED", f"no heartbeat for {silence_s} s")
        continued(session, twice)
    assert state_of(session, broken)["name"] == "Crashed", "what can't start would be scheduled for ever"


@pytest.mark.slow(45)
def test_a_lost_host_with_many_flow_runs_has_each_of_them_started_again(session: PrefectSession) -> None:
    """Their crashes arrive at once, in a database that Prefect finds locked. A lost one stays Crashed."""
    replace_automations(session, SILENCE_S)
    silent = [new_run(session, "sweep/full") for _ in range(20)]
    for flow_run in silent:
        start(session, flow_run)
    for flow_run in silent:
        beat(session, flow_run)
    are_continued = lambda: all(state_of(session, each)["name"] == "AwaitingRetry" for each in silent)  # noqa: E731
    wait_until(are_continued, "all to be continued", PATIENCE_S, SELDOM_S)


@pytest.mark.slow(6)
def test_the_automations_wait_for_the_slowest_of_our_heartbeats(session: PrefectSession) -> None:
    automate = partial(run_python, "-m", "flows.automations", env=session.env)
    done = automate()
    assert done.returncode == 0, done.stderr
    assert within_s(session) == 90
    full = deployment(session, "sweep/full")
    api(session, "PATCH", f"deployments/{full['id']}", {"job_variables": {}})  # then Prefect's default holds
    try:
        widened = automate()
        assert widened.returncode == 0 and "540 s" in widened.stdout, widened.stderr
        assert within_s(session) == 3 * DEFAULT_HEARTBEAT_S == 540
        refused = automate("90")
        assert refused.returncode == 1
        assert "90 s would crash live flows: sweep/full beats every 180 s" in refused.stderr
        assert within_s(session) == 540
    finally:
        api(session, "PATCH", f"deployments/{full['id']}", {"job_variables": full["job_variables"]})


@pytest.mark.slow(13)
@pytest.mark.parametrize(
    ("name", "first", "wanted"),
    [
        ("sweep/nightly", ("0 2 * * *", "Europe/Berlin", False), ("30 4 * * *", "Asia/Seoul", True)),
        ("reap/hourly", ("17 * * * *", "Etc/UTC", True), ("47 * * * *", "Etc/UTC", False)),
    ],
)
def test_a_schedule_stays_as_it_was_set(
    session: PrefectSession, name: str, first: tuple[str, str, bool], wanted: tuple[str, str, bool]
) -> None:
    found = deployment(session, name)
    assert schedule_of(found) == first
    cron, timezone, active = wanted
    body = {"active": active, "schedule": {"cron": cron, "timezone": timezone}}
    api(session, "PATCH", f"deployments/{found['id']}/schedules/{found['schedules'][0]['id']}", body)
    prefect(session, "--no-prompt", "deploy", "--name", name)
    assert schedule_of(deployment(session, name)) == wanted


@pytest.mark.slow(13)
def test_deploying_leaves_no_limit_whose_lease_a_running_flow_would_have_to_renew(session: PrefectSession) -> None:
    names = ("sweep/demo", "sweep/full", "sweep/rehearsal", "sweep/nightly", "reap/hourly")
    full = deployment(session, "sweep/full")["id"]
    api(session, "PATCH", f"deployments/{full}", {"concurrency_limit": 1})  # as earlier versions deployed it
    prefect(session, "--no-prompt", "deploy", "--name", "sweep/full")
    assert [deployment(session, name)["global_concurrency_limit"] for name in names] == [None] * 5


def test_a_run_is_asked_for_again_while_the_servers_database_is_locked(tmp_path: Path) -> None:
    statuses, keys = [503, 200, 503, 503, 201], set[str]()

    class Locked(Answering):
        def do_GET(self) -> None:
            self.reply(statuses.pop(0), b'{"id": "its-id"}')

        def do_POST(self) -> None:
            keys.add(json.loads(self.received())["idempotency_key"])
            self.do_GET()

    session = PrefectSession(tmp_path)
    with serving(Locked) as address:
        session.url = f"http://{address}"
        assert session.run("sweep/demo", {"name": "mine"}) == "its-id"
    assert not statuses and len(keys) == 1, "it is one run, however often it is asked for"


@pytest.mark.slow(1)
def test_a_run_that_the_server_refuses_says_why(session: PrefectSession) -> None:
    with pytest.raises(SessionFailed, match=r"sweep/none.*not found"):
        session.run("sweep/none", {})
    with pytest.raises(SessionFailed, match="field 'name'"):
        session.run("sweep/demo", {"name": 3})  # type: ignore[dict-item]


def new_run(session: PrefectSession, name: str) -> str:
    flow_run = session.run(name, {})
    assert api(session, "GET", f"flow_runs/{flow_run}")["tags"] == ["specsweep"]
    return flow_run


def start(session: PrefectSession, flow_run: str) -> None:
    enter(session, flow_run, "PENDING")
    enter(session, flow_run, "RUNNING")


def crash(session: PrefectSession, flow_run: str) -> None:
    start(session, flow_run)
    enter(session, flow_run, "CRASHED")


def continued(session: PrefectSession, flow_run: str) -> None:
    is_continued = lambda: state_of(session, flow_run)["name"] == "AwaitingRetry"  # noqa: E731
    wait_until(is_continued, "a crashed run to be continued", PATIENCE_S, SELDOM_S)


def schedule_of(found: dict[str, Any]) -> tuple[str, str, bool]:
    (only,) = found["schedules"]
    return only["schedule"]["cron"], only["schedule"]["timezone"], only["active"]


def theirs(session: PrefectSession) -> str:
    """The other team's flow run, once it runs and has sent its first heartbeat."""
    body = {"flows": {"name": {"any_": ["innocent"]}}, "flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
    wait_until(lambda: api(session, "POST", "flow_runs/filter", body), "the other team's flow", PATIENCE_S, SELDOM_S)
    found: str = api(session, "POST", "flow_runs/filter", body)[0]["id"]
    of_it = {"resource": {"id": [f"prefect.flow-run.{found}"]}, "event": {"name": ["prefect.flow-run.heartbeat"]}}
    is_heard = lambda: api(session, "POST", "events/filter", {"filter": of_it})["total"]  # noqa: E731
    wait_until(is_heard, "its first heartbeat", PATIENCE_S, SELDOM_S)
    return found


def automations(home: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env |= {"PREFECT_HOME": str(home), "PYTHONPATH": str(ROOT), "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false"}
    return run_python("-m", "flows.automations", *arguments, env=env | settings, cwd=home)


@contextmanager
def closed() -> Iterator[str]:
    """An address where nobody listens, and nobody will meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def no_prefect() -> AbstractContextManager[str]:
    """A web server that answers every POST with 501."""
    return serving(BaseHTTPRequestHandler)


@pytest.mark.slow(1)
@pytest.mark.parametrize(("where", "said"), [(closed, "connection attempts failed"), (no_prefect, "status 501")])
def test_a_server_that_does_not_answer_is_one_line_with_its_address_and_no_password(
    tmp_path: Path, where: Callable[[], AbstractContextManager[str]], said: str
) -> None:
    with where() as host:
        address = f"{host}/api"
        done = automations(tmp_path, PREFECT_API_URL=f"http://somebody:open-sesame@{address}")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"flows.automations: PREFECT_API_URL: no Prefect server answers at http://{address} (")
    assert said in line and "`prefect server start`" in line and "sesame" not in line


@pytest.mark.slow(3)
def test_no_server_and_no_number_of_seconds_are_one_line_each(tmp_path: Path) -> None:
    unnamed = automations(tmp_path)
    assert unnamed.returncode == 1
    (line,) = unnamed.stderr.splitlines()
    assert line.startswith("flows.automations: PREFECT_API_URL names no Prefect server: start one")
    wrong = automations(tmp_path, "ninety")
    said = "flows.automations: silence 'ninety': give whole seconds, or leave it out\n"
    assert (wrong.returncode, wrong.stderr) == (1, said)
