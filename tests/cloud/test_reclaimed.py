"""One night on the pocket cloud: every cell of a sweep loses its node in another phase, and all come out right.

What is lost with a node inside a step is in test_bracketed_night and test_bad_night.
Every process is looked at through the whole night, and every file after it: none shows a secret.
"""

from __future__ import annotations

import stat
import subprocess
from collections import Counter
from datetime import datetime
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from lab.cloud import Lab
from tests.cloud.checks import fine_again
from tests.cloud.night import CANARY, STORE_CANARY, Night, by_step
from tests.rented_run import end
from warehouse.ledger.placement import PlacementEnd

pytestmark = [pytest.mark.cloud, pytest.mark.reclaimed, pytest.mark.slow(750)]

PROVISIONING, SETUP, LOADING, BEFORE_COMMIT, GOING_DOWN = CELLS = range(5)
FULL_ZONE = "us-east-1a"
ZONES = ("us-east-1a", "us-east-1b", "us-west-2a")


class ReclaimedNight(Night):
    """The night, over. The cheapest zone is full all the time; at first no zone has room.

    All processes are looked at from its begin to its end. `node_files` is what lay on the node whose engine was being
    loaded, and `node_leaks` those of them that held a canary.
    """

    def __init__(self, lab: Lab, folder: Path) -> None:
        """Run it to its end, whatever becomes of it. AssertionError: it did not end well."""
        super().__init__(lab, folder, len(CELLS), token_s=0.002)
        self.node_files: list[Path] = []
        self.node_leaks: list[Path] = []
        hold = self.hold_engine(LOADING)
        for zone in ZONES:
            lab.capacity(zone, 0)
        process = self.start()
        try:
            with self.watch.watching():
                _blows(self, process, hold)
                self.ends_well(process)
        finally:
            end(process)

    def look_at_node(self, cell: int) -> None:
        for each in self.living(cell):
            home = self.lab.paths.fleet / each.instance_id / "home" / "ubuntu"
            self.node_files += [path for path in home.rglob("*") if path.is_file()]
        self.node_leaks += [path for path in self.node_files if holds(path, CANARY, STORE_CANARY)]


def holds(path: Path, *needles: str) -> bool:
    if not path.is_file() or path.is_symlink():
        return False
    data = path.read_bytes()
    return any(needle.encode() in data for needle in needles)


def _blows(night: ReclaimedNight, process: subprocess.Popen[bytes], hold: Path) -> None:
    lab, dealt, wait = night.lab, set[int](), partial(night.wait, process)
    wait(lambda: _refused(night) == {*ZONES}, "every zone was tried in vain")
    assert not any(each.alive for each in lab.instances())
    with lab.boots_held():
        for zone in ZONES:
            lab.capacity(zone, 0 if zone == FULL_ZONE else None)
        # before this line SkyPilot itself would ask for another instance
        wait(lambda: night.waits_for_ssh(PROVISIONING), "the first instance is up, and SkyPilot waits for its ssh")
        night.reclaim(PROVISIONING)
        wait(lambda: night.ends(PROVISIONING)[:1] == ["preempted"], "the launch is given up")
    with lab.writes_held(f"{night.keys[BEFORE_COMMIT]}/steps/parity/commit.json"):
        while dealt != {*CELLS} - {PROVISIONING}:
            wait(lambda: bool(_due(night, dealt)), f"a moment to strike; struck so far: {sorted(dealt)}")
            cell = _due(night, dealt)[0]
            if cell == LOADING:
                night.look_at_node(cell)
            night.reclaim(cell)
            dealt.add(cell)
            if cell == LOADING:
                hold.unlink()
            if cell == BEFORE_COMMIT:
                lab.paths.held_writes.unlink()


def _refused(night: Night) -> set[str | None]:
    stories = [story for cell in range(len(night.keys)) for story in night.stories(cell)]
    return {story.asked.offer.zone for story in stories if story.end and story.end.outcome == "no_capacity"}


def _due(night: Night, dealt: set[int]) -> list[int]:
    """Cells that are in the phase in which they are to lose their node."""
    beat = night.heartbeat(LOADING)
    is_due = {
        SETUP: any(story.up for story in night.stories(SETUP)),
        LOADING: beat is not None and beat.phase == "engine",
        BEFORE_COMMIT: any("verdicts-" in key for key in night.parts(BEFORE_COMMIT, "parity")),
        GOING_DOWN: bool(night.attempts(GOING_DOWN)),
    }
    return [cell for cell, due in is_due.items() if due and cell not in dealt]


@pytest.fixture(scope="module")
def survived(session_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> ReclaimedNight:
    night = ReclaimedNight(session_lab, tmp_path_factory.mktemp("night"))
    fine_again(session_lab)  # its full zone is nobody else's
    return night


@pytest.mark.parametrize("cell", CELLS)
def test_every_step_is_committed_once(survived: ReclaimedNight, cell: int) -> None:
    assert survived.is_measured(cell)


@pytest.mark.parametrize(("cell", "reason"), [(PROVISIONING, "taken away"), (SETUP, ""), (LOADING, "preempted")])
def test_reclaimed_before_it_measures(survived: ReclaimedNight, cell: int, reason: str) -> None:
    assert survived.ends(cell) == ["preempted", "done"]
    first, second = survived.attempts(cell)
    assert (first.outcome, second.outcome) == ("lost", "completed")
    assert reason in first.reason and first.price_usd_h is not None
    if cell != PROVISIONING:
        assert first.measure_s == 0 and _asked_as_often(survived, cell)


def test_reclaimed_between_the_last_part_and_the_commit(survived: ReclaimedNight) -> None:
    assert survived.ends(BEFORE_COMMIT) == ["preempted", "done"]
    parity = survived.ledger.read_commit(survived.keys[BEFORE_COMMIT], "parity")
    assert parity is not None and parity.attempt == 2
    assert any("-0001-" in part.key for part in parity.parts), "rows of the lost node are in the commit"
    # A node whose commit hangs for long measures on, so what it asks for its last step may be lost with it.
    assert _asked_as_often(survived, BEFORE_COMMIT, but="eval-tiny"), "nothing was measured again"


def test_reclaimed_while_it_goes_down(survived: ReclaimedNight) -> None:
    assert survived.ends(GOING_DOWN) == ["done"]
    assert [attempt.outcome for attempt in survived.attempts(GOING_DOWN)] == ["completed"]


def test_a_zone_that_always_fails_is_left_alone(survived: ReclaimedNight) -> None:
    stories = [story for cell in CELLS for story in survived.stories(cell)]
    used = {story.asked.offer.zone for story in stories if story.end and story.end.outcome == "done"}
    assert FULL_ZONE not in used
    refused = [story for story in stories if story.end and story.end.outcome == "no_capacity"]
    assert sum(story.asked.offer.zone == FULL_ZONE for story in refused) <= 8, "not asked again by every cell"


def test_a_lost_node_is_not_replaced_in_the_same_zone(survived: ReclaimedNight) -> None:
    for cell in (SETUP, LOADING, BEFORE_COMMIT):
        lost, done = [s.asked.offer for s in survived.stories(cell) if s.end and s.end.outcome != "no_capacity"]
        nothing_else = f": trying {done.where} again"
        assert lost.zone != done.zone or nothing_else in survived.flow_log


def test_no_instance_is_left_in_any_region(survived: ReclaimedNight) -> None:
    assert [each for each in survived.lab.instances() if each.alive] == []
    assert survived.lab.body_processes() == []


def test_the_attempts_tell_what_it_cost(survived: ReclaimedNight) -> None:
    survived.sweep("report", "--json")
    frame = survived.published("attempts")
    assert frame.height == sum(len(survived.attempts(cell)) for cell in CELLS) == 9
    phases = ("provision", "setup", "load", "smoke", "measure", "idle", "lost")
    sums = frame.select(pl.sum_horizontal([f"{phase}_s" for phase in phases]) - pl.col("rented_s")).to_series()
    assert sums.abs().max() < 0.01  # type: ignore[operator]
    taken_back = [end for end in _ends(survived) if end.interrupted]
    assert frame.filter(~pl.col("charged")).height == len(taken_back) in (4, 5), (
        "AWS does not charge what it takes back"
    )
    assert not frame.filter(ended="preempted")["charged"].any()
    assert [usd > 0 for usd in frame["cost_usd"]] == frame["charged"].to_list()


def test_a_machine_costs_from_its_launch_by_the_clouds_word(survived: ReclaimedNight) -> None:
    launches = {each.launched_at for each in survived.lab.instances()}
    ups = [story.up for cell in range(len(survived.keys)) for story in survived.stories(cell) if story.up]
    assert len(ups) >= 6
    assert all(up.rented_at and datetime.fromisoformat(up.rented_at) in launches for up in ups)


def test_a_machine_costs_until_its_end_by_the_clouds_word(survived: ReclaimedNight) -> None:
    dated = [end for end in _ends(survived) if end.machine_ended_at is not None]
    assert len(dated) >= len(CELLS) - 1
    assert all((end.machine_ended_at or "") < end.at and end.outcome == "done" for end in dated)


def _ends(night: Night) -> list[PlacementEnd]:
    return [story.end for cell in range(len(night.keys)) for story in night.stories(cell) if story.end]


def _asked_as_often(night: Night, cell: int, but: str = "") -> bool:
    """Whether what a cell and the undisturbed one were both asked was asked of both as often, but for one step.

    Either may have been asked more besides: a window whose client was starved is measured again, with new prompts.
    """
    asked = night.requests(GOING_DOWN)
    ours, calm, left_out = Counter(night.requests(cell)), Counter(asked), by_step(asked).get(but, set())
    return all(ours[prompt] == calm[prompt] for prompt in ours.keys() & calm.keys() - left_out)


@pytest.mark.parametrize("phase", ["bin/node setup", "bin/node run", "tasks.cell", "fake_engine.py"])
def test_each_phase_was_seen(survived: ReclaimedNight, phase: str) -> None:
    assert any(phase in command for command in survived.watch.commands)


def test_no_process_shows_a_secret(survived: ReclaimedNight) -> None:
    assert survived.watch.leaks == set()


def test_skypilots_server_has_no_token(survived: ReclaimedNight) -> None:
    shown = survived.watch.of_users
    assert any(needle == STORE_CANARY and "sky.server" in command for needle, command in shown), "it rents with the key"
    assert not [command for needle, command in shown if needle == CANARY and "sky.server" in command]


def test_the_engine_finds_the_token_in_a_file_of_its_own(survived: ReclaimedNight) -> None:
    assert survived.watch.token_files == {(0o600, CANARY)}


def test_the_node_had_no_file_with_one_and_no_credentials_of_the_users(survived: ReclaimedNight) -> None:
    names = [path.name for path in survived.node_files]
    assert any(name.startswith("sky_job_") for name in names), "SkyPilot's own script of the job is among them"
    assert survived.node_leaks == []
    assert "credentials" not in names and ".specsweep-secrets" not in names


def test_no_file_and_no_object_is_left_with_one(survived: ReclaimedNight) -> None:
    found = [str(path) for path in survived.lab.paths.root.rglob("*") if holds(path, CANARY)]
    found += [str(path) for path in survived.folder.rglob("*") if holds(path, CANARY, STORE_CANARY)]
    store = survived.ledger.store
    found += [key for key in store.list("") if CANARY.encode() in (store.get(key) or b"")]
    assert found == []
    private = survived.lab.paths.home / ".sky" / "api_server"
    kept = [path for path in survived.lab.paths.root.rglob("*") if holds(path, STORE_CANARY)]
    assert all(path.is_relative_to(private) for path in kept), "SkyPilot's own records of requests, in a folder of 0700"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
