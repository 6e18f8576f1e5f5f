"""One night on the pocket cloud in which every cell of a sweep loses its node in another phase."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.cloud import Lab
from tests.cloud.night import CANARY, STORE_CANARY, Night
from tests.rented_run import wait_for

PROVISIONING, SETUP, LOADING, IN_STEP, BEFORE_COMMIT, GOING_DOWN = CELLS = range(6)
FULL_ZONE = "us-east-1a"
ZONES = ("us-east-1a", "us-east-1b", "us-west-2a")
PATIENCE_S = 1800.0


class ReclaimedNight(Night):
    """The night, over. The cheapest zone is full all the time; at first no zone has room.

    All processes are looked at from its begin to its end. `node_files` is what lay on the node whose engine was being
    loaded, and `node_leaks` those of them that held a canary.
    """

    def __init__(self, lab: Lab, folder: Path) -> None:
        """Run it to its end, whatever becomes of it.

        Raises:
            AssertionError: it did not end well.
        """
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
                process.wait(PATIENCE_S)
            assert process.returncode == 0, self.said()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(120)

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
    lab, dealt = night.lab, set[int]()

    def wait(true: object, what: str) -> None:
        assert callable(true)
        wait_for(true, what, night, process, PATIENCE_S)

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
        while dealt != {SETUP, LOADING, IN_STEP, BEFORE_COMMIT, GOING_DOWN}:
            wait(lambda: bool(_due(night, dealt)), f"a moment to strike; struck so far: {sorted(dealt)}")
            cell = _due(night, dealt)[0]
            if cell == LOADING:
                night.look_at_node(cell)
            night.reclaim(cell)
            dealt.add(cell)
            if cell == LOADING:
                hold.unlink()
            if cell == BEFORE_COMMIT:
                night.lab.paths.held_writes.unlink()


def _refused(night: Night) -> set[str | None]:
    stories = [story for cell in range(len(night.keys)) for story in night.stories(cell)]
    return {story.asked.offer.zone for story in stories if story.end and story.end.outcome == "no_capacity"}


def _due(night: Night, dealt: set[int]) -> list[int]:
    """Cells that are in the phase in which they are to lose their node."""
    due = []
    if SETUP not in dealt and any(story.up for story in night.stories(SETUP)):
        due.append(SETUP)
    beat = night.heartbeat(LOADING)
    if LOADING not in dealt and beat is not None and beat.phase == "engine":
        due.append(LOADING)
    beat = night.heartbeat(IN_STEP)
    if IN_STEP not in dealt and beat is not None and beat.step == "throughput":
        due.append(IN_STEP)
    if BEFORE_COMMIT not in dealt and any("verdicts-" in key for key in night.parts(BEFORE_COMMIT, "parity")):
        due.append(BEFORE_COMMIT)
    if GOING_DOWN not in dealt and night.attempts(GOING_DOWN):
        due.append(GOING_DOWN)
    return due
