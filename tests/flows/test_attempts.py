"""One cell on a cloud that takes nodes away: the flow's own code, the real node runner, a fake control plane."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from configs.schema import Cloud
from flows.cell import CellOutcome, measure_cell
from flows.clock import FlowStopped, StoppableClock
from flows.clusters.protocol import CellJob, CellNeed, Decision, Ending, Launch, LaunchFailed, Wait
from flows.flow_heartbeat import HeldCells
from flows.renting.site import PolicySite
from flows.run_context import RunContext
from tests.busy_machine import PATIENCE_S
from tests.fake_cloud import FakeCluster, FakeSite, JumpingClock, context, offer
from tests.fake_run import FakeRun
from tests.tasks.test_cell import wait_until
from tests.warehouse.ledger.test_ledger import elsewhere
from warehouse.ledger.claims import Claims
from warehouse.ledger.clock import SYSTEM
from warehouse.ledger.commits import Commit
from warehouse.ledger.lease import Attempt
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.owner import owner_name
from warehouse.ledger.placement import MachineEnd
from warehouse.ledger.store import StoreAway

SLOW = {"FAKE_ENGINE_TOKEN_S": "0.003"}


def measured(run: FakeRun, hands: RunContext, committed: Callable[[Commit], None] = lambda _: None) -> CellOutcome:
    return measure_cell(run.ledger, run.planned, hands, committed)


def test_what_fails_on_this_machine_before_its_runner_begins_is_a_row_too(run: FakeRun) -> None:
    site = FakeSite([FakeCluster(run, Path("python"), LaunchFailed("no node environment"))], [Launch(None)])
    outcome = measured(run, context(run, site))
    assert (outcome.ended, outcome.attempts) == ("failed", 2)
    row = ("lost", "launch_failed: no node environment")
    assert [(each.outcome, each.reason) for each in run.attempts()] == [row] * 2


@pytest.mark.core
@pytest.mark.slow(18)
def test_a_reclaimed_node_is_replaced_and_nothing_committed_is_measured_again(run: FakeRun, node_python: Path) -> None:
    first, second = FakeCluster(run, node_python, **SLOW), FakeCluster(run, node_python)
    first.word, second.word = MachineEnd(interrupted=True), MachineEnd(1_795_176_000.0)
    sent_before: list[str] = []

    def committed(commit: Commit) -> None:
        if commit.step == "throughput":  # inside the step after it
            wait_until(lambda: (beat := run.leases.heartbeat()) is not None and beat.step == "parity", "parity")
            sent_before.extend(run.prompts_sent())
            first.reclaim()

    site = FakeSite([first, second], [Launch(offer("east-1a")), Launch(offer("east-1b"))])
    outcome = measured(run, context(run, site), committed)
    assert (outcome.ended, outcome.attempts) == ("measured", 2) and run.ends() == ["preempted", "done"]
    words = [(end.interrupted, end.machine_ended_at) for story in run.placements.stories() if (end := story.end)]
    assert words == [(True, None), (False, "2026-11-20T12:00:00.000+00:00")], "what the cloud said of its machines"
    assert [attempt.outcome for attempt in run.attempts()] == ["lost", "completed"]
    lost = run.attempts()[0]
    assert lost.reason.startswith("preempted") and lost.measure_s is not None and lost.load_s is not None
    assert run.commit("smoke").attempt == run.commit("throughput").attempt == 1
    assert run.commit("parity").attempt == run.commit("eval-tiny").attempt == 2
    assert site.memory == [("east-1a", "preempted"), ("east-1b", None)]
    assert site.needs[1].losses == 1 and site.needs[1].remaining_s < site.needs[0].remaining_s
    assert all(cluster.is_down for cluster in site.handed)


class LostWhenDone(FakeCluster):
    """A node that is gone by the time somebody asks how its runner ended."""

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        ending = super().look(heard_s, insist=insist)
        return None if ending is None else Ending(None, Ended.PREEMPTED, "the cluster does not exist any more")


@pytest.mark.slow(13)
def test_a_node_that_is_lost_after_its_work_was_done_is_not_replaced(run: FakeRun, node_python: Path) -> None:
    site = FakeSite([LostWhenDone(run, node_python)])
    outcome = measured(run, context(run, site))
    assert (outcome.ended, outcome.attempts) == ("measured", 1)
    assert run.ends() == ["done"] and [attempt.outcome for attempt in run.attempts()] == ["completed"]


@pytest.mark.slow(18)
def test_no_capacity_waits_says_why_and_goes_on(run: FakeRun, node_python: Path) -> None:
    said: list[str] = []
    none = FakeCluster(run, fail=LaunchFailed("east-1a: no capacity", Ended.NO_CAPACITY))
    decisions = [Launch(offer()), Wait(SYSTEM.now_s(), "tried east-1a"), Launch(offer())]
    site = FakeSite([none, FakeCluster(run, node_python)], decisions)
    assert measured(run, context(run, site, said.append)).ended == "measured"
    assert run.ends() == ["no_capacity", "done"]
    assert [attempt.outcome for attempt in run.attempts()] == ["completed"], "nothing was rented the first time"
    assert any("tried east-1a" in line for line in said)


def test_capacity_that_never_comes_is_given_up_with_what_was_tried(run: FakeRun) -> None:
    site = FakeSite([FakeCluster(run)], [Wait(0, "no capacity in east-1a and east-1b since 02:00")])
    outcome = measured(run, context(run, site, wait_h=0.0))
    assert outcome.ended == "failed" and "east-1a and east-1b" in outcome.reason


@pytest.mark.parametrize(
    ("takes_s", "how", "store_blips", "said", "most_h"),
    [
        (30, Ended.NO_CAPACITY, False, "no_capacity", 0.7),
        (120, Ended.PREEMPTED, False, "", 0.9),
        (120, Ended.PREEMPTED, True, "", 0.9),
    ],
    ids=["asked in vain", "taken away while they boot", "and each look for the next meets a store's blip"],
)
def test_places_and_machines_that_never_come_up_are_part_of_the_wait_that_a_sweep_allows(
    run: FakeRun, takes_s: float, how: Ended, store_blips: bool, said: str, most_h: float
) -> None:
    clock = JumpingClock()

    class NeverUp(FakeCluster):
        def launch(self, job: CellJob) -> None:
            clock.sleep(takes_s)
            raise LaunchFailed("it never came up", how)

    class Blips(PolicySite):
        blipped = False

        def choose(self, need: CellNeed) -> Decision:
            self.blipped = store_blips and not self.blipped
            if self.blipped:
                raise StoreAway("away for a moment")
            return super().choose(need)

    offers = [offer("east-1a"), offer("east-1b")]
    cloud = Cloud(task="t", wait_h=0.5, on_demand_after=1000)
    site = Blips(lambda: offers, lambda key, where: NeverUp(run), cloud, [], clock.now_s, random.Random(1))
    outcome = measured(run, context(run, FakeSite([]))._replace(site=site, clock=clock, wait_h=0.5))
    assert outcome.ended == "failed"
    assert outcome.reason.startswith("no machine for 0.5 h (cloud.wait_h): ") and said in outcome.reason
    assert 0.5 <= (clock.at_s - clock.begun_s) / 3600 < most_h and set(run.ends()) == {how}


def test_a_failed_setup_goes_down_counts_as_a_try_and_has_a_row(run: FakeRun) -> None:
    broken = FakeCluster(run, fail=LaunchFailed("setup failed: no space left", Ended.SETUP_FAILED))
    outcome = measured(run, context(run, FakeSite([broken])))
    assert outcome.ended == "failed" and "no space left" in outcome.reason
    assert broken.is_down and run.ends() == ["setup_failed", "setup_failed"]
    assert [(attempt.outcome, attempt.attempt) for attempt in run.attempts()] == [("lost", 1), ("lost", 2)]
    assert "a line of the node's log" in run.attempts()[0].log_tail


@pytest.mark.parametrize(
    ("code", "recorded", "row"),
    [(1, "job_failed", "failed"), (137, "job_failed", "lost"), (75, "stopped", None), (0, "job_failed", "failed")],
)
def test_a_runner_that_does_not_measure_is_tried_so_often_and_leaves_the_same_words_everywhere(
    run: FakeRun, code: int, recorded: str, row: str | None
) -> None:
    class EndedWith(FakeCluster):
        """A node whose runner was never heard of, and ended with a code."""

        def launch(self, job: CellJob) -> None:
            assert job.cell_key == run.key

        def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
            return Ending.of_runner(code, "its last line")

    said: list[str] = []
    site = FakeSite([EndedWith(run)])
    outcome = measured(run, context(run, site, said.append))
    assert (outcome.ended, outcome.attempts) == ("failed", 2) and run.ends() == [recorded] * 2
    assert [attempt.outcome for attempt in run.attempts()] == [row] * 2 if row else not run.attempts()
    remembered = recorded if recorded == "job_failed" else None
    assert site.memory == [("east-1a", remembered)] * 2, "as a flow that starts later reads it off the record"
    assert len(said) == 2 and outcome.reason in said[0]


class Superseded(FakeCluster):
    """A node whose runner lost the cell to another one, which failed in its turn."""

    def launch(self, job: CellJob) -> None:
        for outcome, exit_code in (("superseded", 76), ("failed", 1)):
            epoch = self.run.leases.acquire("elsewhere/boot/1/1").epoch
            ended_at = "2026-11-22T12:00:00+00:00"
            self.run.leases.close(Attempt(attempt=epoch, outcome=outcome, exit_code=exit_code, ended_at=ended_at))

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        return Ending.of_runner(76)


def test_a_superseded_node_is_billed_to_its_own_attempt(run: FakeRun) -> None:
    assert measured(run, context(run, FakeSite([Superseded(run)]))).ended == "failed"
    ended = [(end.outcome, end.attempt) for story in run.placements.stories() if (end := story.end)]
    assert ended == [("stopped", 1), ("stopped", 3)]


def purse(over_run: Callable[[], str | None] = lambda: None) -> SimpleNamespace:
    """A purse that nothing empties, unless it says so."""
    return SimpleNamespace(over_run=over_run, over_cell=lambda cell_key: None)


def test_an_empty_purse_stops_the_node_with_everything_measured_kept(
    run: FakeRun, node_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.attempt.BUDGET_EVERY_S", 0.0)
    node = FakeCluster(run, node_python, **SLOW)

    def spent() -> str | None:
        return "run r1 spent 3.61 of 3.60 USD" if run.ledger.read_commit(run.key, "smoke") is not None else None

    outcome = measured(run, context(run, FakeSite([node]), purse=purse(spent)))
    assert outcome.ended == "failed" and "3.61 of 3.60 USD" in outcome.reason
    assert run.commit("smoke").verdict == "ok"
    assert [attempt.outcome for attempt in run.attempts()] == run.ends() == ["stopped"] and node.is_down


@pytest.mark.slow(13)
@pytest.mark.parametrize("lives", [True, False])
def test_what_a_dead_flow_left_is_adopted_not_launched_again_or_buried_first(
    run: FakeRun, node_python: Path, lives: bool
) -> None:
    node = FakeCluster(run, node_python, **SLOW)
    run.placements.ask("specsweep-x", offer(), "a dead flow", SYSTEM.now_iso())
    if lives:
        node.process = run.start(node_python, **SLOW)
        wait_until(lambda: run.leases.current() is not None, "the node's lease")
    outcome = measured(run, context(run, FakeSite([node])))
    assert outcome.ended == "measured"
    assert run.ends() == (["done"] if lives else ["preempted", "done"])
    assert [attempt.outcome for attempt in run.attempts()] == (["completed"] if lives else ["lost", "completed"])
    assert outcome.attempts == (0 if lives else 1)


@pytest.mark.slow(14)
def test_a_second_flow_waits_for_the_first(run: FakeRun, node_python: Path) -> None:
    claims = Claims(run.ledger, run.key)
    first = claims.take(owner_name())
    said: list[str] = []
    outcomes: list[CellOutcome] = []
    with HeldCells(run.ledger, print) as heartbeat:
        hands = context(run, FakeSite([FakeCluster(run, node_python)]), said.append, managing=heartbeat.managing)
        thread = threading.Thread(target=lambda: outcomes.append(measured(run, hands)))
        thread.start()
        wait_until(lambda: f"another flow works on it ({owner_name()})" in "".join(said), "it says whose it is")
        assert run.placements.stories() == []
        claims.release(first)
        thread.join(PATIENCE_S)
    assert outcomes[0].ended == "measured"
    assert claims.manager() is None, "released at the end"


def test_the_machine_that_a_rejected_cell_left_goes_down_and_its_record_is_closed(run: FakeRun) -> None:
    node = FakeCluster(run)
    run.placements.ask("specsweep-x", offer(), elsewhere("laptop"), SYSTEM.now_iso())
    run.ledger.commit(run.key, run.ledger.new_commit("smoke", 1, elsewhere("node"), "rejected", ["low_score"], 1.0, []))
    outcome = measured(run, context(run, FakeSite([node]), purse=purse()))
    assert (outcome.ended, outcome.attempts) == ("rejected", 0) and "low_score" in outcome.reason
    assert node.is_down and run.placements.open() is None


def test_a_cancelled_flow_sends_its_node_down_at_once_and_asks_it_to_flush_meanwhile(
    run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.attempt_records.STOP_GRACE_S", 3600.0)
    monkeypatch.setattr("flows.attempt.STOP_GRACE_S", 3600.0, raising=False)
    clock = StoppableClock()

    class Deaf(FakeCluster):
        """A node whose runner does not hear that it shall stop."""

        def launch(self, job: CellJob) -> None:
            run.leases.acquire(elsewhere("node"))
            clock.stop("its run was cancelled")

    node, raised = Deaf(run), list[BaseException]()

    def cancelled() -> None:
        try:
            measured(run, context(run, FakeSite([node]), clock=clock))
        except FlowStopped as stopped:
            raised.append(stopped)

    flow = threading.Thread(target=cancelled, daemon=True)
    flow.start()
    wait_until(lambda: node.is_down, "it goes down, though its runner still works")
    flow.join(PATIENCE_S)
    lease = run.leases.current()
    assert raised and lease is not None and run.leases.stop_asked(lease) == "its run was cancelled"
    assert run.ends() == [attempt.outcome for attempt in run.attempts()] == ["stopped"]


def test_what_a_node_commits_while_its_flow_ends_is_reported_too(run: FakeRun) -> None:
    clock, told = StoppableClock(), list[str]()

    class Stopped(FakeCluster):
        def launch(self, job: CellJob) -> None:
            clock.stop("Ctrl-C")

        def down(self) -> None:
            run.ledger.commit(run.key, run.ledger.new_commit("smoke", 1, "node", "ok", [], 1.0, []))
            super().down()

    with pytest.raises(FlowStopped, match="Ctrl-C"):
        measured(run, context(run, FakeSite([Stopped(run)]), clock=clock), lambda commit: told.append(commit.step))
    assert told == ["smoke"]


@pytest.mark.parametrize("when", ["while it launches", "while a place is chosen"])
def test_a_flow_that_is_asked_to_end_begins_no_launch_though_places_are_left_to_try(run: FakeRun, when: str) -> None:
    clock = StoppableClock()

    class Dry(FakeCluster):
        def launch(self, job: CellJob) -> None:
            if when == "while it launches":
                clock.stop("Ctrl-C")
            raise LaunchFailed("no capacity", Ended.NO_CAPACITY)

    class Slow(FakeSite):
        def choose(self, need: CellNeed) -> Decision:
            assert not clock.is_stopped, "choosing takes seconds"
            if len(self.needs) == 1:
                clock.stop("Ctrl-C")
            return super().choose(need)

    site = Slow([Dry(run)], [Launch(offer(f"east-1{zone}")) for zone in "abc"])
    with pytest.raises(FlowStopped, match="Ctrl-C"):
        measured(run, context(run, site, clock=clock))
    assert run.ends() == ["no_capacity"]
