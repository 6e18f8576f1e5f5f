"""The promise of a night that nobody watches: everything goes wrong, and its rows, its bill and its peace are calm's.

Four cells on the pocket cloud, as a deployment of Prefect's. The store is away for 90 s while they are launched, and
again while they measure; one machine is taken back with a notice and one without; SkyPilot's API server is killed, and
so is the orchestrator, which is started again after a pause; Prefect's server is restarted while they are launched, and
while they measure; one `sky down` hangs; another team, with a store of its own, measures beside.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from flows.clusters.answers import REQUEST_S
from flows.clusters.skypilot.server import SERVER
from lab.cloud import Lab
from lab.paths import REGIONS
from lab.startup import CATALOGS
from lab.weather.settings import set_weather
from tests.cloud.checks import nothing_left
from tests.cloud.deployed import Deployed
from tests.cloud.night import CANARY, CalmRun, Night, by_step, comparable, orchestrators
from tests.command_lines import command_of
from tests.rented_run import end
from warehouse.dataset.snapshot import read_current

pytestmark = [pytest.mark.cloud, pytest.mark.reclaimed, pytest.mark.slow(900)]

NOTICED, LOST, *UNHURT = range(4)
AWAY_S = 90.0
TOKEN_S = (0.015, 0.015, 0.04, 0.04)
"""Of each cell's engine until its blow has been dealt; the last two, held until then, still measure when the store goes
away again. One cell of a machine is timed at a time, so that each second of theirs is one of the night."""


def test_a_bad_night_gives_the_rows_the_bill_and_the_peace_of_a_calm_one(lab: Lab, tmp_path: Path) -> None:
    others = Night(lab, tmp_path / "others", 1, store="-others")
    night = Night(lab, tmp_path / "night", 4, token_s=TOKEN_S, concurrency=4)
    with Deployed(night) as flow:
        calm, beside = CalmRun(tmp_path / "calm"), others.start()
        try:
            _is_bad(night, others, flow)
            night.ends_well(flow)
            others.ends_well(beside)
        finally:
            end(beside, calm.process)
    _has_the_rows_of(calm, night, others)
    _asked_nothing_committed_again(night, others)
    for cell in UNHURT:
        assert night.ends(cell) == ["done"], "one cluster, launched once"
        assert [attempt.outcome for attempt in night.attempts(cell)] == ["completed"]
    _costs_what_the_cloud_says(night)
    _leaves_nothing(night, others)


def _is_bad(night: Night, others: Night, flow: Deployed) -> None:
    holds, weather = [night.hold_engine(cell) for cell in UNHURT], night.lab.weather
    least = random.randint(2, 4)
    rented = lambda: len([*filter(night.living, range(4))]) >= least and bool(others.living(0))  # noqa: E731
    night.wait(flow, rented, f"{least} machines are rented, and the neighbour's")
    flow.restart_server()
    set_weather(weather, "store", "away", lasts_s=AWAY_S)
    night.wait(flow, lambda: not weather.now(), "the store is back")
    assert all({*night.ends(cell)} <= {"open"} for cell in range(4)), f"they go down for a store\n{night.said()}"
    _two_machines_go(night, flow)
    for hold in holds:
        hold.unlink()
    _store_away_while_they_measure(night, flow)
    flow.come_back()
    if _goes_on_with_what_was_up(night, flow):
        _hangs_and_nobody_waits(night, flow)


def _two_machines_go(night: Night, flow: Deployed) -> None:
    """Two cells lose their machines as soon as they have windows in the store, one with a notice, one without."""
    strikes = {NOTICED: night.notice, LOST: night.reclaim}
    measuring = lambda: [cell for cell in strikes if night.parts(cell, "throughput")]  # noqa: E731
    while strikes:
        night.wait(flow, lambda: bool(measuring()), "one of them measures")
        for cell in measuring():
            strikes.pop(cell)(cell)
    gone = lambda: all({*night.ends(cell)} - {"open"} for cell in (NOTICED, LOST))  # noqa: E731
    night.wait(flow, gone, "both losses are on record")
    for cell in (NOTICED, LOST):
        night.hurry(cell)


def _store_away_while_they_measure(night: Night, flow: Deployed) -> None:
    """With it SkyPilot's server and the orchestrator: nobody is left but nodes, and they go on."""
    asked = [len(night.requests(cell)) for cell in UNHURT]
    set_weather(night.lab.weather, "store", "away", lasts_s=AWAY_S)
    (server,) = [pid for pid in night.lab.processes() if SERVER in command_of(pid)]
    os.kill(server, signal.SIGKILL)
    goes_on = lambda: all(len(night.requests(cell)) > asked[cell - UNHURT[0]] + 4 for cell in UNHURT)  # noqa: E731
    night.wait(flow, goes_on, "they go on measuring without the store")
    assert night.lab.weather.now(), "it is still away"
    flow.die()
    night.wait(None, lambda: not night.lab.weather.now(), "the store is back")


def _goes_on_with_what_was_up(night: Night, flow: Deployed) -> bool:
    """Prefect itself starts the run again, whose host was away, and its server goes once more.

    False: that took so long that the nodes have measured all without it.
    """

    def is_followed(cell: int) -> bool:
        return f"adopted the cluster {night.cluster(cell)}" in night.flow_log or night.is_measured(cell)

    night.wait(flow, lambda: all(map(is_followed, UNHURT)), "the new flow follows both")
    if all(map(night.is_measured, UNHURT)):
        return False
    asked, more = _asked(night), random.randint(1, 8)
    night.wait(flow, lambda: _asked(night) >= asked + more, f"they have asked {more} times more")
    flow.restart_server()
    return True


def _asked(night: Night) -> int:
    return sum(len(night.requests(cell)) for cell in UNHURT)


def _hangs_and_nobody_waits(night: Night, flow: Deployed) -> None:
    """SkyPilot does not end one machine; it is ended all the same, is not paid for meanwhile, and the others go on."""
    hung = min(UNHURT, key=lambda cell: len(night.requests(cell)))
    with night.lab.looks_held(night.living(hung)[0].cluster):
        for cell in UNHURT:
            night.hurry(cell)
        night.wait(flow, lambda: night.ends(hung) == ["done"], "its flow waits no longer")
    assert f"no answer within {REQUEST_S:.0f} s" in night.flow_log


def _has_the_rows_of(calm: CalmRun, night: Night, others: Night) -> None:
    wanted = calm.rows()
    assert wanted.height > 0
    for each in (night, others):
        rows = read_current(each.ledger.store).filter(pl.col("run_id") == each.run_id)
        for key in each.keys:
            ours = comparable(rows.filter(pl.col("cell_key") == key))
            assert ours.equals(wanted), (each.run_id, key, ours, wanted)


def _asked_nothing_committed_again(night: Night, others: Night) -> None:
    once = [*(night.requests(cell) for cell in UNHURT), others.requests(0)]
    assert all(max(Counter(asked).values()) == 1 for asked in once), "where no machine was lost, nothing is asked twice"
    for cell in (NOTICED, LOST):
        asked, first = Counter(night.requests(cell)), min(attempt.attempt for attempt in night.attempts(cell))
        assert max(asked.values()) <= 2
        assert asked.total() - len(asked) < len(asked) / 2, "no more than the condition in flight is asked again"
        for step, prompts in by_step(night.requests(UNHURT[0])).items():
            commit = night.ledger.read_commit(night.keys[cell], step)
            assert commit is not None
            if commit.attempt == first:
                assert {asked[prompt] for prompt in prompts} == {1}, f"{step} of cell {cell} was committed already"


def _costs_what_the_cloud_says(night: Night) -> None:
    """EC2's list of machines, and the catalogue's prices, read without our code."""
    night.sweep("report", "--json")
    rows = night.published("attempts")
    catalog = pl.read_csv(CATALOGS / "v8" / "aws" / "vms.csv")
    zones = pl.read_csv(next((CATALOGS / "v8" / "aws").glob("az_mappings-*.csv")))
    priced = catalog.join(zones, on="AvailabilityZone")
    usd, machines = 0.0, 0
    clusters = tuple(night.cluster(cell) for cell in range(4))
    for region in REGIONS:
        for reservation in night.lab.client("ec2", region).describe_instances()["Reservations"]:
            for each in reservation["Instances"]:
                tags = {tag["Key"]: tag["Value"] for tag in each.get("Tags", [])}
                if not tags.get("ray-cluster-name", "").startswith(clusters):
                    continue
                machines += 1
                if each["StateReason"]["Code"] == "Server.SpotInstanceTermination":
                    continue  # in its first hour EC2 does not charge what it takes back
                ended = datetime.fromisoformat(each["StateTransitionReason"][-24:-5] + "+00:00")
                rented_s = (ended - each["LaunchTime"]).total_seconds()
                offer = priced.filter(
                    InstanceType=each["InstanceType"], AvailabilityZoneName=each["Placement"]["AvailabilityZone"]
                )
                usd += rented_s / 3600 * offer["SpotPrice"].item()
    assert machines >= 6
    assert rows["cost_usd"].sum() == pytest.approx(usd, abs=0.0005), f"{machines} machines\n{rows}"


def _leaves_nothing(night: Night, others: Night) -> None:
    nothing_left(night.lab)
    rented = [each for each in night.lab.instances() if night.lab.name_of(each) == others.cluster(0)]
    assert len(rented) == 1, "the neighbour's one machine"
    assert others.ends(0) == ["done"] and [each.outcome for each in others.attempts(0)] == ["completed"]
    assert [story.end is not None for cell in range(4) for story in night.stories(cell)].count(False) == 0
    assert orchestrators(night.folder) == orchestrators(others.folder) == []
    assert str(night.lab.paths.fleet) not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    needle, found = CANARY.encode(), list[str]()
    for folder in (night.folder / "state", others.folder / "state", night.lab.paths.home, night.lab.paths.fleet):
        found += [str(path) for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()]
    for each in (night, others):
        found += [key for key in each.ledger.store.list("") if needle in (each.ledger.store.get(key) or b"")]
    night.watch.look()
    found += night.watch.leaks
    assert found == [], "secrets"
