"""Everybody who could take a machine down dies in the middle of its launch: it ends itself, and nothing is left.

It kills SkyPilot's server, so it comes behind the nights that need it: whoever starts it next gives it other secrets.
`python -m tests.cloud.test_time_to_live SWEEP STORE RUN CELL`: a flow's launch of one cell of a recorded run, and
nothing else: no Prefect, no heartbeat, nobody who follows it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from configs.checkout import ROOT
from flows.clock import StoppableClock
from flows.clusters.protocol import CellJob, CellNeed, Launch
from flows.clusters.skypilot.server import SERVER, end_leftovers
from flows.plans import make_plan, record_run
from flows.renting.sky_site import sky_site
from flows.run_context import purse_of
from lab.cloud import Lab
from lab.paths import INSIDE
from tests.cloud.night import Night
from tests.command_lines import command_of
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store

pytestmark = [pytest.mark.cloud, pytest.mark.slow(60)]

TIME_TO_LIVE_S = 90.0
"""Of a machine that is launched here: long enough for SkyPilot to reach it, also where two cores are busy."""


@pytest.fixture
def launches() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def _has(night: Night, cell: int, name: str) -> bool:
    """Whether something lies in the home of the cell's machine by now."""
    inside = INSIDE.home.relative_to("/")
    return any((night.lab.paths.fleet / each.instance_id / inside / name).exists() for each in night.living(cell))


def _kill_skypilot(lab: Lab) -> None:
    """The API server with all that it started: nobody finishes a launch, or sets its autostop."""
    for pid in lab.processes():
        if SERVER in command_of(pid):
            os.kill(pid, signal.SIGKILL)
    end_leftovers(lab.paths.home)


def test_no_machine_outlives_those_who_launched_it(
    lab: Lab, tmp_path: Path, launches: list[subprocess.Popen[bytes]]
) -> None:
    night = Night(lab, tmp_path, 2, budget=f", unattended_h: {TIME_TO_LIVE_S / 3600}")
    sweep = str(tmp_path / "sweep.yaml")
    record_run(night.ledger, make_plan(sweep))
    wait = partial(night.wait, every_s=0.2)
    for cell in (0, 1):
        argv = [
            sys.executable,
            "-m",
            "tests.cloud.test_time_to_live",
            sweep,
            lab.store_url,
            night.run_id,
            night.keys[cell],
        ]
        with night.log.open("ab") as log:
            launches.append(subprocess.Popen(argv, cwd=ROOT, env=night.env, stdout=log, stderr=log))
    wait(None, lambda: all(night.living(cell) for cell in (0, 1)), "both machines are rented")
    wait(None, lambda: any(_has(night, cell, ".sky") for cell in (0, 1)), "SkyPilot has reached the first of them")
    for process in launches:
        process.kill()
        process.wait()
    _kill_skypilot(lab)
    assert [len(night.living(cell)) for cell in (0, 1)] == [1, 1], "both are billed, and nobody knows of them"
    wait(None, lambda: not any(each.alive for each in lab.instances()), "no machine is left, and nobody ended one")
    ours = [each for each in lab.instances() if each.cluster.startswith((night.cluster(0), night.cluster(1)))]
    assert {each.state for each in ours} == {"terminated"}


def only_launch() -> None:
    sweep, store_url, run_id, cell_key = sys.argv[1:]
    plan, ledger, clock = make_plan(sweep), Ledger(open_store(store_url), run_id), StoppableClock()
    assert plan.cloud is not None
    site = sky_site(ledger, plan, plan.cloud, clock, purse_of(ledger, plan, plan.cloud, clock))
    decision = site.choose(CellNeed(cell_key, losses=0, remaining_s=60.0, elapsed_s=0.0))
    assert isinstance(decision, Launch)
    site.cluster(cell_key, decision.offer).launch(CellJob(store_url, run_id, cell_key))
    signal.pause()


if __name__ == "__main__":
    only_launch()
