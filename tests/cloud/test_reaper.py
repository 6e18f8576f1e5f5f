"""`sweep reap` with the real SkyPilot on the pocket cloud: what nobody owns goes down, whoever knows of it."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from configs.checkout import ROOT
from flows.clusters.protocol import cluster_name
from lab.cloud import Lab
from tests.busy_machine import PATIENCE_S
from tests.cloud.checks import BodyShell, run_sky, wait_until
from tests.command_lines import run_python
from tests.fake_cloud import OFFER
from tests.fake_run import FakeRun
from warehouse.ledger.claims import FlowHeartbeat
from warehouse.ledger.commits import Ledger
from warehouse.ledger.owner import owner_name
from warehouse.ledger.placement import Placements
from warehouse.ledger.store.identity import store_id

pytestmark = [pytest.mark.cloud, pytest.mark.slow(140)]

TASK = """
resources: {accelerators: "H100:1", use_spot: true, infra: aws/us-east-1/us-east-1a}
run: echo working
"""

LONG_AGO = "2026-11-20T10:00:00.000+00:00"

Reap = Callable[..., "dict[str, Any]"]


class RentedCell:
    def __init__(self, run: FakeRun, run_id: str) -> None:
        ledger = Ledger(run.ledger.store, run_id)
        ledger.write_plan(run.ledger.plan())
        self.store_url, self.name = run.store_url, cluster_name(store_id(ledger.store), run_id, run.key)
        self.placements = Placements(ledger, run.key)

    def ask(self, region: str, zone: str) -> None:
        offer = OFFER.model_copy(update={"region": region, "zone": zone})
        self.placements.ask(self.name, offer, owner_name(), LONG_AGO)

    def flow_beats(self, *, alive: bool) -> None:
        where, tick = owner_name().rsplit("/", 1)
        owner = f"{where}/{tick if alive else 1}"  # another process once had this id
        said = FlowHeartbeat(owner=owner, at=LONG_AGO, epoch=1)
        self.placements.store.put(f"{self.placements.root}/flow.json", said.model_dump_json().encode())

    def ended(self) -> str | None:
        end = self.placements.stories()[-1].end
        return None if end is None else f"{end.outcome}: {end.detail}"


@pytest.fixture
def run(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRun]:
    for name, value in lab.env.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    yield FakeRun(tmp_path, store_url=f"{lab.store_url}-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def reap(lab: Lab, run: FakeRun) -> Reap:
    def go(*arguments: str) -> dict[str, Any]:
        env = os.environ | lab.env | {"PYTHONPATH": str(ROOT)}
        done = run_python("-m", "flows.terminal", "reap", "--store", run.store_url, "--json", *arguments, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return document

    return go


def test_a_cluster_left_by_its_flow_and_one_that_skypilot_forgot(
    lab: Lab, boot: Callable[..., BodyShell], run: FakeRun, reap: Reap, tmp_path: Path
) -> None:
    left, forgotten = RentedCell(run, "r1"), RentedCell(run, "r2")
    (tmp_path / "task.yaml").write_text(TASK)
    left.ask("us-east-1", "us-east-1a")
    launched = run_sky(lab, "launch", "-y", "-c", left.name, str(tmp_path / "task.yaml"))
    assert launched.returncode == 0, launched.stdout + launched.stderr
    forgotten.ask("us-west-2", "us-west-2a")
    body, names = boot("us-west-2a"), ("Name", "ray-cluster-name", "skypilot-cluster-name")
    tags = [{"Key": name, "Value": f"{forgotten.name}-12ab34cd"} for name in names]  # as SkyPilot's, which knows none
    lab.client("ec2", body.region).create_tags(Resources=[body.instance_id], Tags=tags)
    left.flow_beats(alive=True)

    found = {each["cluster"]: each for each in reap("--dry-run")["clusters"]}
    assert (found[left.name]["status"], found[left.name]["done"]) == ("UP", "left")
    assert (found[forgotten.name]["status"], found[forgotten.name]["done"]) == ("not in SkyPilot", "would go down")
    assert sum(each.alive for each in lab.instances()) == 2

    left.flow_beats(alive=False)
    report = reap()
    assert [each["done"] for each in report["clusters"]] == ["down", "down"]
    assert report["saved_usd_h"] > 2.5 and report["asked"] == ["SkyPilot", "aws"]
    assert not any(each.alive for each in lab.instances())
    wait_until(lambda: not lab.body_processes(), "the bodies are gone")
    assert left.name not in run_sky(lab, "status").stdout
    assert (left.ended(), forgotten.ended()) == ("stopped: reaped", "stopped: reaped")
    assert reap()["clusters"] == []


def test_a_cluster_stuck_in_init_goes_down_while_its_launch_still_waits(
    lab: Lab, run: FakeRun, reap: Reap, tmp_path: Path
) -> None:
    stuck = RentedCell(run, "r1")
    (tmp_path / "task.yaml").write_text(TASK)
    stuck.ask("us-east-1", "us-east-1a")
    with ThreadPoolExecutor(1) as pool, lab.boots_held():
        launch = pool.submit(run_sky, lab, "launch", "-y", "-c", stuck.name, str(tmp_path / "task.yaml"))
        wait_until(lambda: any(each.alive for each in lab.instances()), "the machine is rented")
        (found,) = [each for each in reap()["clusters"] if each["cluster"] == stuck.name]
        assert (found["status"], found["done"], found["owner"]) == ("INIT", "down", "nobody")
        assert launch.result(timeout=PATIENCE_S).returncode != 0
    assert not any(each.alive for each in lab.instances()), "the launch did not rent again"
    assert stuck.ended() == "stopped: reaped"
