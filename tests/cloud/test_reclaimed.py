"""One night on the pocket cloud: every cell of a sweep loses its node in another phase, and all come out right."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from lab.cloud import Lab
from tests.cloud.night import CANARY, Night, wait_for
from warehouse.placement import PlacementEnd

pytestmark = [pytest.mark.cloud, pytest.mark.slow]

PROVISIONING, SETUP, LOADING, IN_STEP, BEFORE_COMMIT, GOING_DOWN = range(6)
FULL_ZONE = "us-east-1a"
ZONES = ("us-east-1a", "us-east-1b", "us-west-2a")
PATIENCE_S = 900.0


@pytest.fixture(scope="module")
def survived(session_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    """The night, over. The cheapest zone is full all the time; at first no zone has room."""
    night = Night(session_lab, tmp_path_factory.mktemp("night"), 6, token_s=0.002)
    holds = {cell: night.hold_engine(cell) for cell in (LOADING,)}
    for zone in ZONES:
        session_lab.capacity(zone, 0)
    process = night.start()
    try:
        _blows(night, process, holds[LOADING])
        process.wait(PATIENCE_S)
        assert process.returncode == 0, night.said()
        yield night
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(120)


def _blows(night: Night, process: subprocess.Popen[bytes], hold: Path) -> None:
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
            night.reclaim(cell)
            dealt.add(cell)
            if cell == LOADING:
                hold.unlink()
            if cell == BEFORE_COMMIT:
                night.lab.places.held_writes.unlink()


def _refused(night: Night) -> set[str | None]:
    """Zones that had no capacity."""
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


@pytest.mark.parametrize("cell", range(6))
def test_every_step_is_committed_once(survived: Night, cell: int) -> None:
    assert survived.is_measured(cell)


def test_reclaimed_while_it_is_provisioned(survived: Night) -> None:
    assert survived.ends(PROVISIONING) == ["preempted", "done"]
    first, second = survived.attempts(PROVISIONING)
    assert (first.outcome, second.outcome) == ("lost", "completed")
    assert "taken away" in first.reason
    assert first.price_usd_h is not None


def test_reclaimed_in_setup(survived: Night) -> None:
    assert survived.ends(SETUP) == ["preempted", "done"]
    first, second = survived.attempts(SETUP)
    assert (first.outcome, second.outcome) == ("lost", "completed")
    assert first.measure_s == 0 and _asked_as_often(survived, SETUP)


def test_reclaimed_before_the_engine_is_healthy(survived: Night) -> None:
    assert survived.ends(LOADING) == ["preempted", "done"]
    first, second = survived.attempts(LOADING)
    assert (first.outcome, second.outcome) == ("lost", "completed")
    assert first.reason.startswith("preempted") and first.measure_s == 0
    assert _asked_as_often(survived, LOADING)


def test_reclaimed_in_a_step_no_more_than_the_condition_in_flight_is_measured_again(survived: Night) -> None:
    assert survived.ends(IN_STEP) == ["preempted", "done"]
    smoke = survived.ledger.read_commit(survived.keys[IN_STEP], "smoke")
    throughput = survived.ledger.read_commit(survived.keys[IN_STEP], "throughput")
    assert smoke is not None and smoke.attempt == 1
    assert throughput is not None and throughput.attempt == 2
    undisturbed = len(survived.requests(GOING_DOWN))
    again = len(survived.requests(IN_STEP)) - undisturbed
    # a condition is one start's: the larger of the two is a third of all requests
    assert 0 <= again < undisturbed / 2
    assert _most(survived.requests(IN_STEP)) <= 2


def test_reclaimed_between_the_last_part_and_the_commit(survived: Night) -> None:
    assert survived.ends(BEFORE_COMMIT) == ["preempted", "done"]
    parity = survived.ledger.read_commit(survived.keys[BEFORE_COMMIT], "parity")
    assert parity is not None and parity.attempt == 2
    assert any("-0001-" in part.key for part in parity.parts), "rows of the lost node are in the commit"
    assert _asked_as_often(survived, BEFORE_COMMIT), "nothing was measured again"


def test_reclaimed_while_it_goes_down(survived: Night) -> None:
    assert survived.ends(GOING_DOWN) == ["done"]
    assert [attempt.outcome for attempt in survived.attempts(GOING_DOWN)] == ["completed"]


def test_a_zone_that_always_fails_is_left_alone(survived: Night) -> None:
    stories = [story for cell in range(6) for story in survived.stories(cell)]
    used = {story.asked.offer.zone for story in stories if story.end and story.end.outcome == "done"}
    assert FULL_ZONE not in used
    refused = [story for story in stories if story.end and story.end.outcome == "no_capacity"]
    assert sum(story.asked.offer.zone == FULL_ZONE for story in refused) <= 8, "not asked again by every cell"


def test_a_lost_node_is_not_replaced_in_the_same_zone(survived: Night) -> None:
    for cell in (SETUP, LOADING, IN_STEP, BEFORE_COMMIT):
        lost, done = [s.asked.offer.zone for s in survived.stories(cell) if s.end and s.end.outcome != "no_capacity"]
        assert lost != done


def test_no_instance_is_left_in_any_region(survived: Night) -> None:
    assert [each for each in survived.lab.instances() if each.alive] == []
    assert survived.lab.body_processes() == []


def test_the_attempts_tell_what_it_cost(survived: Night) -> None:
    said = survived.sweep("report", "--json")
    assert said.returncode == 0, said.stderr
    frame = _attempts(survived)
    assert frame.height == sum(len(survived.attempts(cell)) for cell in range(6)) == 11
    phases = ("provision", "setup", "load", "smoke", "measure", "idle", "lost")
    sums = frame.select(pl.sum_horizontal([f"{phase}_s" for phase in phases]) - pl.col("rented_s")).to_series()
    assert sums.abs().max() < 0.01  # type: ignore[operator]
    taken_back = [end for end in _ends(survived) if end.interrupted]
    assert frame.filter(~pl.col("charged")).height == len(taken_back) in (5, 6), (
        "AWS does not charge what it takes back"
    )
    assert not frame.filter(ended="preempted")["charged"].any()
    assert [usd > 0 for usd in frame["cost_usd"]] == frame["charged"].to_list()


def test_a_machine_costs_from_its_launch_by_the_clouds_word(survived: Night) -> None:
    launches = {each.launched_at for each in survived.lab.instances()}
    ups = [story.up for cell in range(len(survived.keys)) for story in survived.stories(cell) if story.up]
    assert len(ups) >= 6
    assert all(up.rented_at and datetime.fromisoformat(up.rented_at) in launches for up in ups)


def test_a_machine_costs_until_its_end_by_the_clouds_word(survived: Night) -> None:
    dated = [end for end in _ends(survived) if end.machine_ended_at is not None]
    assert len(dated) >= 5
    assert all((end.machine_ended_at or "") < end.at and end.outcome == "done" for end in dated)


def _ends(night: Night) -> list[PlacementEnd]:
    return [story.end for cell in range(len(night.keys)) for story in night.stories(cell) if story.end]


def test_a_secret_is_nowhere_but_in_environments(survived: Night) -> None:
    needle, found = CANARY.encode(), []
    folders = [survived.folder / "state", survived.lab.places.home, survived.lab.places.root / "daemon.log"]
    for folder in folders:
        for path in folder.rglob("*") if folder.is_dir() else [folder]:
            if path.is_file() and needle in path.read_bytes():
                found.append(str(path))
    store = survived.ledger.store
    found += [key for key in store.list("") if needle in (store.get(key) or b"")]
    found += [str(path) for path in Path("/proc").glob("[0-9]*/cmdline") if needle in _bytes(path)]
    assert found == []


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""  # it has ended meanwhile


def _asked_as_often(night: Night, cell: int) -> bool:
    """Whether what a cell and the undisturbed one were both asked was asked of both as often.

    Either may have been asked more besides: a window whose client was starved is measured again, with new prompts.
    """
    ours, calm = Counter(night.requests(cell)), Counter(night.requests(GOING_DOWN))
    return all(ours[prompt] == calm[prompt] for prompt in ours.keys() & calm.keys())


def _most(requests: list[str]) -> int:
    """How often the most frequent request was made."""
    return max(requests.count(request) for request in set(requests))


def _attempts(night: Night) -> pl.DataFrame:
    store = night.ledger.store
    newest = [key for key in store.list("snapshots") if key.endswith("attempts.parquet")]
    frames = [pl.read_parquet(store.get(key) or b"") for key in newest]
    frame = max(frames, key=lambda each: each.height)
    return frame.filter(pl.col("run_id") == night.run_id)
