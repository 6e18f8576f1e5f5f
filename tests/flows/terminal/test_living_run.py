"""A run that lives already, fails, or loses its terminal: what its command and a second one say and do."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from rich.console import Console

from configs.checkout import ROOT, version
from configs.errors import LONGEST
from flows.flow_heartbeat import HeldCells
from flows.terminal import run as terminal_run
from flows.terminal.cli import STOP_SIGNALS, main
from flows.terminal.prefect_session import PrefectSession, SessionFailed
from flows.terminal.progress import RunWatcher
from flows.terminal.run import CRASHED_S, FlowRun, naming_another
from tasks.host import process_group
from tests.busy_machine import PATIENCE_S
from tests.fake_run import FakeRun
from tests.flows.terminal.test_flow_process import left_of
from tests.tasks.test_cell import wait_until
from warehouse.ledger.claims import Claims
from warehouse.ledger.lease import Attempt
from warehouse.ledger.owner import owner_name

HERE = f"process {os.getpid()} on {socket.gethostname()}"


def told_while(run: FakeRun, looks: Callable[[], bool]) -> str:
    """What a command says of other flows at the run until `looks` is true."""
    console = Console(width=1000, file=io.StringIO(), color_system=None)
    own = process_group.new_group(process_group.SESSION_VARIABLE)
    look = naming_another(looks, run.ledger, run.ledger.plan(), own, console)
    while not look():
        pass
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_second_command_says_once_who_runs_it_and_what_its_ctrl_c_ends(run: FakeRun) -> None:
    with ExitStack() as stack:
        held = stack.enter_context(HeldCells(run.ledger, print))
        moments = iter((lambda: None, lambda: stack.enter_context(held.managing(run.key)), lambda: None))

        def has_ended() -> bool:
            if (moment := next(moments, None)) is not None:
                moment()
            return moment is None

        said = told_while(run, has_ended)
        claim = Claims(run.ledger, run.key).holder()
    assert claim is not None and said.count(HERE) == 1
    assert claim.granted_at[:16].replace("T", " ") in said and "Ctrl-C ends this command alone" in said
    assert told_while(run, lambda: True) == "", "it was released"


@pytest.mark.parametrize("looks_before", [0, 1])
def test_another_flow_is_named_also_where_ours_holds_an_earlier_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks_before: int
) -> None:
    run = FakeRun(tmp_path, "ar ngram")
    plan = run.ledger.plan().model_copy(update={"concurrency": 2})
    monkeypatch.setattr(process_group, "members", lambda _: [os.getpid()])
    Claims(run.ledger, run.key).take(owner_name(), "ours")
    console = Console(width=1000, file=io.StringIO(), color_system=None)
    own = process_group.new_group(process_group.SESSION_VARIABLE)
    look = naming_another(lambda: False, run.ledger, plan, own, console)
    for _ in range(looks_before):
        look()
    Claims(run.ledger, run.cells[1].cell.cell_key).take("elsewhere/machine/boot/1/2/3", "theirs")
    for _ in range(2):
        look()
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("by process 2 on elsewhere") == 1 and HERE not in console.file.getvalue()


def test_a_flow_run_is_crashed_once_it_was_said_to_be_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was away says so of a flow that lives, which denies it; and what was silent is no long crash."""
    clock = iter((0.0, *(moment for moment, _, _ in ANSWERS)))
    monkeypatch.setattr(terminal_run, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    session = cast(PrefectSession, SimpleNamespace(url="http://prefect", raise_if_dead=lambda: None))
    flow_run = FlowRun(session, "1")
    for _, state, has_ended in ANSWERS:
        answer = httpx.Response(200 if state else 503, json={"state": {"type": state}})
        answer.request = httpx.Request("GET", "http://prefect")
        monkeypatch.setattr(httpx, "get", lambda *_, answer=answer, **__: answer)
        assert flow_run.ended() is has_ended


ANSWERS = [
    (2.0, "RUNNING", False),
    (300.0, "", False),
    (302.0, "CRASHED", False),
    (320.0, "RUNNING", False),
    (330.0, "CRASHED", False),
    (600.0, "", False),
    (602.0, "CRASHED", False),
    (602.0 + CRASHED_S, "CRASHED", False),
    (603.0 + CRASHED_S, "CRASHED", True),
]
"""Seconds, the state that Prefect's server tells (empty: it can't answer), and whether the run is over."""


def test_a_flow_that_died_runs_nothing(run: FakeRun) -> None:
    with subprocess.Popen(["true"]) as over:
        over.wait()
    where, _, tick = owner_name().rsplit("/", 2)
    Claims(run.ledger, run.key).take(f"{where}/{over.pid}/{tick}", "pulse")
    assert told_while(run, lambda: True) == ""


def test_a_second_prefect_of_ours_leaves_the_first_one_alone_and_names_it(tmp_path: Path) -> None:
    home = tmp_path / "prefect"
    with PrefectSession(home):
        with pytest.raises(SessionFailed, match=re.escape(f"{HERE} runs a sweep")), PrefectSession(home):
            pass
        assert list(home.glob("*.group.json")), "the first one's record is still there"
    with PrefectSession(home):
        pass


TABLE = "No launchable resource found for task Task(run='x').\nTo fix: relax its resource requirements.\n" + "".join(
    f"| aws | p5.{number}xlarge | H100:1 | not enabled |\n" for number in range(40)
)
"""As SkyPilot's optimizer says it."""


@pytest.mark.parametrize(("outcome", "how"), [("failed", ""), ("lost", "killed: ")])
def test_an_error_of_many_lines_is_one_line_and_is_told_once(run: FakeRun, outcome: str, how: str) -> None:
    lease = run.leases.acquire("host/machine/boot/1/1/1")
    ended = {"attempt": lease.epoch, "outcome": outcome, "ended_at": "2026-11-26T10:00:00.000+00:00"}
    run.leases.close(Attempt.model_validate(ended | {"reason": f"{how}{TABLE}"}))
    console = Console(width=2 * LONGEST, file=io.StringIO(), color_system=None)
    progress = RunWatcher(run.ledger, run.ledger.plan(), console).watch(lambda: True)
    assert isinstance(console.file, io.StringIO)
    [line] = console.file.getvalue().splitlines()
    label = run.planned.cell.label
    assert line.startswith(f"{label}: {how}No launchable resource found") and f"attempt 1 {outcome}" in line
    assert len(line) < len(label) + LONGEST + 30
    said = " ".join(TABLE.split())  # as `FlowProcess` and Prefect's message have it of SweepIncomplete
    final = f"2 of 2 cells failed; {label}: {said}; other: {said} too"
    assert progress.without_failures(final) == f"2 of 2 cells failed; {label}; other: {said} too"


@pytest.mark.slow(20)
def test_closing_the_terminal_ends_a_run_as_ctrl_c_does(run: FakeRun, tmp_path: Path) -> None:
    own = {"SPECSWEEP_STORE": run.store_url, "SPECSWEEP_STATE": str(tmp_path / "state"), "PYTHONPATH": str(ROOT)}
    own |= {"FAKE_ENGINE_COUNT": str(run.counts), "FAKE_ENGINE_TOKEN_S": "0.05"}
    argv = [sys.executable, "-P", "-m", "flows.terminal", "run", str(tmp_path / "sweep.yaml"), "--run-id", "r1"]
    terminal, inside = os.openpty()
    os.set_blocking(terminal, False)
    argv = ["setsid", "--ctty", *argv]
    heeds = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)  # these tests may run under `nohup`
    command = subprocess.Popen(
        argv, cwd=ROOT, env=os.environ | own, stdin=inside, stdout=inside, stderr=inside, preexec_fn=heeds
    )
    os.close(inside)

    def measures() -> bool:
        with suppress(BlockingIOError):
            os.read(terminal, 1 << 16)  # a terminal that nobody reads stops who writes to it
        return run.ledger.read_commit(run.key, "smoke") is not None

    try:
        wait_until(measures, "the smoke step")
    finally:
        os.close(terminal)
    assert command.wait(PATIENCE_S) == 128 + signal.SIGHUP
    assert left_of(tmp_path) == [] and [attempt.outcome for attempt in run.attempts()] == ["stopped"]


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_nohup_keeps_a_command_alive(before: signal.Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    monkeypatch.setattr(sys, "argv", ["sweep", "--version"])
    try:
        signal.signal(signal.SIGHUP, before)
        with pytest.raises(SystemExit):
            main()
        assert (signal.getsignal(signal.SIGHUP) == signal.SIG_IGN) is (before == signal.SIG_IGN)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_the_command_runs_its_own_clone_from_a_folder_with_packages_of_the_same_names(tmp_path: Path) -> None:
    for name in ("flows", "configs", "tasks", "warehouse"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('somebody else')")
    argv: list[str | Path] = [ROOT / "bin" / "sweep", "--version"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0 and version() in done.stdout, done.stdout + done.stderr
