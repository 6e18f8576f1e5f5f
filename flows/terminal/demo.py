"""`sweep demo`: everything on this machine, through a Prefect server and worker of our own."""

from __future__ import annotations

import json
import time

import httpx
from rich.console import Console

from configs.load import named_anywhere
from configs.schema import Plan
from flows.terminal.live_view import RunWatcher
from flows.terminal.prefect_server.session import PrefectSession, SessionFailed, default_home
from flows.terminal.prepare import prepare
from flows.terminal.run import code_of_rows, open_run, show_if_measured, show_results
from warehouse.ledger.commits import Ledger

DEPLOYED = ("demo", "full", "nightly")
"""Sweeps with a deployment of their own in `prefect.yaml`."""

SERVER_SILENCE_S = 300.0
"""Silence of the Prefect server after which the command gives up; its database was seen locked for half a minute."""

FINAL_STATES = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")


def demo(name: str, store_url: str, run_id: str | None, console: Console) -> int:
    """Prepare, deploy, run the sweep's deployment, show it live, print table and report; returns the exit code."""
    started = time.monotonic()
    ledger, plan = open_run(name, store_url, run_id)
    if show_if_measured(ledger, plan, console):
        return code_of_rows(ledger, console)
    prepare(plan, console)
    code = _through_prefect(ledger, plan, name, console)
    if code == 0:
        show_results(ledger, console, f"took {time.monotonic() - started:.0f} s")
    return code or code_of_rows(ledger, console)


def _through_prefect(ledger: Ledger, plan: Plan, name: str, console: Console) -> int:
    settings = {"SPECSWEEP_STORE": ledger.store.url}
    with PrefectSession(default_home() / "demo", settings) as session:
        with console.status("starting Prefect") as status:
            session.start(status.update)
            status.update(f"prefect deployment run sweep/{deployment_of(name)}")
            flow_run_id = _start_run(session, name, ledger.run_id)
        console.print(f"Prefect UI while this runs: {session.url}/runs/flow-run/{flow_run_id}", soft_wrap=True)
        follower = _FlowRun(session, flow_run_id)
        RunWatcher(ledger, plan, console).watch(follower.ended)
        if follower.state != "COMPLETED":
            console.print(f"the flow run ended {follower.state}: {follower.message}", style="red")
            return 1
    return 0


def deployment_of(name: str) -> str:
    """The deployment that runs a sweep: its own, else `demo`, which takes any name."""
    return name if name in DEPLOYED else "demo"


def _start_run(session: PrefectSession, name: str, run_id: str) -> str:
    parameters = ["--param", f"name={json.dumps(named_anywhere(name))}", "--param", f"run_id={json.dumps(run_id)}"]
    said = session.prefect(["deployment", "run", f"sweep/{deployment_of(name)}", *parameters])
    for line in said.splitlines():
        if "UUID:" in line:
            return line.split("UUID:")[1].strip()
    raise SessionFailed(f"`prefect deployment run` named no flow run: {said.strip()[-300:]}")


class _FlowRun:
    """The flow run, as the server sees it."""

    def __init__(self, session: PrefectSession, flow_run_id: str) -> None:
        self._session = session
        self._url = f"{session.url}/api/flow_runs/{flow_run_id}"
        self._heard = time.monotonic()
        self.state = "SCHEDULED"
        self.message = ""

    def ended(self) -> bool:
        """Whether the run is over.

        Raises:
            SessionFailed: the server or the worker is gone, or the server has not answered for `SERVER_SILENCE_S`.
        """
        self._session.raise_if_dead()
        try:
            answer = httpx.get(self._url, timeout=10, trust_env=False).raise_for_status().json()
        except httpx.HTTPError as error:
            # a server whose database is locked for a while stops nothing: the flow and the ledger go on without it
            silent_s = time.monotonic() - self._heard
            if silent_s > SERVER_SILENCE_S:
                raise SessionFailed(f"the Prefect server has not answered for {silent_s:.0f} s: {error!r}") from error
            return False
        self._heard = time.monotonic()
        self.state = answer["state"]["type"]
        self.message = answer["state"].get("message") or ""
        return self.state in FINAL_STATES
