"""What an earlier flow left open is settled first: four placements of Friday do not stop Monday's start."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Budget, Plan
from flows.attempt import AttemptRun
from flows.cell import measure_cell
from flows.flow_heartbeat import FlowHeartbeatSender
from flows.forecast.budget import BudgetExceeded, Purse
from flows.forecast.forecast import forecast
from flows.settling import require_budget, settle, settle_and_require_budget
from tests.fake_cloud import FakeCluster, FakeSite, context, offer
from tests.fake_run import FakeRun
from tests.warehouse.ledger.test_ledger import elsewhere
from warehouse.dataset.bill import bill
from warehouse.dataset.spending import Spending
from warehouse.ledger.claims import Claims
from warehouse.ledger.clock import SYSTEM, iso_of, moment_s
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Heartbeat, Leases, gone_attempt
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import MachineEnd, Placements, PlacementStory

WEEKEND_S = 62 * 3600.0
IDLE_S = 300.0


class Left(FakeCluster):
    """What a flow left: a machine that works, one whose runner is gone, or nothing."""

    def __init__(self, run: FakeRun, *, works: bool = False, there: bool = False) -> None:
        super().__init__(run, Path("no-python"))
        self.works, self.there = works, there

    def adopt(self) -> bool:
        return self.works

    def is_there(self) -> bool:
        return self.there


FULL = expand(load_sweep("full"))


def full_run(run: FakeRun, run_usd: float) -> tuple[Ledger, Plan]:
    assert FULL.cloud is not None
    budget = Budget.model_validate({"run_usd": run_usd})
    plan = FULL.model_copy(update={"cloud": FULL.cloud.model_copy(update={"budget": budget})})
    ledger = Ledger(run.ledger.store, "full")
    ledger.write_plan(plan)
    return ledger, plan


@pytest.mark.parametrize("there", [False, True])
def test_a_start_is_refused_for_what_was_there_and_not_for_what_nobody_looked_after(run: FakeRun, there: bool) -> None:
    ledger, plan = full_run(run, (forecast(FULL, {}).usd_spot or 0.0) + 5)
    asked_at = iso_of(SYSTEM.now_s() - WEEKEND_S)
    for planned in plan.cells[:4]:
        Placements(ledger, planned.cell.cell_key).ask("specsweep-x", offer(), elsewhere("laptop"), asked_at)
    shared = context(run, FakeSite([Left(run, there=there)]))
    if there:
        with pytest.raises(BudgetExceeded, match=r"run full would cost"):
            settle_and_require_budget(ledger, plan, shared)
    else:
        settle_and_require_budget(ledger, plan, shared)
    ends = [Placements(ledger, planned.cell.cell_key).stories()[-1].end for planned in plan.cells[:4]]
    assert [end is not None and end.estimated for end in ends] == [not there] * 4


def silent_since(run: FakeRun, at_s: float) -> None:
    """Nothing was heard of the cell's runner since then, by the store's clock."""
    for key in (f"{run.ledger.cell_root(run.key)}/{name}" for name in ("heartbeat.json", "leases/000001.json")):
        os.utime(Path(run.ledger.store.uri(key)), (at_s, at_s))


def settle_now(run: FakeRun, node: Left, tell: Callable[[str], None] = print) -> None:
    with FlowHeartbeatSender(run.ledger, print) as heartbeat:
        settle(run.ledger, run.ledger.plan(), context(run, FakeSite([node]), tell, managing=heartbeat.managing))


def settled(run: FakeRun, node: Left, *, measured_s: float = 0.0) -> PlacementStory:
    """The placement that Friday's flow left, after Monday's has settled it; its runner was heard for so long."""
    friday_s = SYSTEM.now_s() - WEEKEND_S
    placements = Placements(run.ledger, run.key)
    placements.ask("specsweep-x", offer(), elsewhere("laptop"), iso_of(friday_s), IDLE_S)
    if measured_s:
        run.leases.acquire(elsewhere("node"))
        beat = Heartbeat(attempt=1, phase="step", measure_s=measured_s, at=iso_of(friday_s + measured_s))
        run.leases.beat(beat)
        silent_since(run, friday_s + measured_s)
    settle_now(run, node)
    return placements.stories()[-1]


@pytest.mark.parametrize("measured_s", [0.0, 1800.0])
def test_what_is_gone_is_billed_until_it_had_idled_out_and_its_end_is_marked(run: FakeRun, measured_s: float) -> None:
    story = settled(run, Left(run), measured_s=measured_s)
    assert story.end is not None and story.end.estimated and story.end.outcome == "preempted"
    billed_s = moment_s(story.end.at) - moment_s(story.asked.asked_at)
    assert billed_s == pytest.approx(measured_s + IDLE_S, abs=0.01)
    assert [attempt.outcome for attempt in run.attempts()] == ["lost"]
    purse = Purse(run.ledger.store, "r1", Budget.model_validate({"run_usd": 5.0}), SYSTEM.now_s)
    spent = Spending(run.ledger.store, SYSTEM.now_s).of_run("r1")
    assert spent.usd == pytest.approx((measured_s + IDLE_S) / 1000, abs=0.001)
    assert purse.over_run() is None


def test_work_that_was_done_while_nobody_looked_is_one_attempt_with_one_bill(run: FakeRun) -> None:
    node = Left(run, there=True)
    asked_s = SYSTEM.now_s() - 3600.0
    placements = Placements(run.ledger, run.key)
    placements.ask("specsweep-x", offer(), elsewhere("laptop"), iso_of(asked_s), IDLE_S)
    lease = run.leases.acquire(elsewhere("node"))
    done = gone_attempt(lease, None, Ended.DONE, reason="", ended_at=SYSTEM.now_iso(), price_usd_h=3.6)
    run.leases.close(done.model_copy(update={"exit_code": Ended.DONE.exit_code}))
    settle_now(run, node)
    end = placements.stories()[-1].end
    assert node.is_down and end is not None and (end.outcome, end.attempt) == ("done", 1)
    (line,) = bill(placements.stories(), run.attempts())
    assert line.attempt is not None and line.attempt.outcome == "completed"
    assert line.cost_usd == pytest.approx(3.6, abs=0.05)


def test_what_was_there_until_it_was_taken_down_is_billed_until_then(run: FakeRun) -> None:
    node = Left(run, there=True)
    story = settled(run, node)
    assert node.is_down and story.end is not None and not story.end.estimated
    assert moment_s(story.end.at) - moment_s(story.asked.asked_at) == pytest.approx(WEEKEND_S, abs=60)


def test_the_clouds_word_on_its_end_needs_no_estimate(run: FakeRun) -> None:
    node = Left(run)
    node.word = MachineEnd(SYSTEM.now_s() - 3600)
    end = settled(run, node).end
    assert end is not None and not end.estimated and end.machine_ended_at is not None


@pytest.mark.parametrize("came_up", [False, True])
def test_a_machine_that_its_cloud_never_launched_costs_nothing_unless_it_came_up(run: FakeRun, came_up: bool) -> None:
    placements, asked_s = Placements(run.ledger, run.key), SYSTEM.now_s() - 600
    placements.ask("specsweep-x", offer(), elsewhere("laptop"), iso_of(asked_s), IDLE_S)
    if came_up:
        placements.up(1, iso_of(asked_s + 60))
    node = Left(run)
    node.word = MachineEnd(asked_s, launched_at_s=asked_s)
    settle_now(run, node)
    (line,) = bill(placements.stories(), run.attempts())
    assert line.story is not None and line.story.end is not None and line.story.end.estimated is came_up
    assert line.cost_usd == pytest.approx(360 / 1000 if came_up else 0.0, abs=0.001)


def test_what_works_stays_open_and_what_another_flow_manages_is_left_to_it(run: FakeRun) -> None:
    assert settled(run, Left(run, works=True)).end is None
    assert Claims(run.ledger, run.key).manager() is None, "its cell adopts it"
    Claims(run.ledger, run.key).take(elsewhere("another"))
    node = Left(run)
    settle_now(run, node)
    assert not node.is_down and Placements(run.ledger, run.key).stories()[-1].end is None


def test_what_a_library_says_stops_neither_the_settling_nor_the_run(run: FakeRun) -> None:
    class Odd(Left):
        def down(self) -> None:
            raise RuntimeError("the cloud's own words")

    said: list[str] = []
    Placements(run.ledger, run.key).ask("specsweep-x", offer(), elsewhere("laptop"), SYSTEM.now_iso(), IDLE_S)
    settle_now(run, Odd(run), said.append)
    assert ["RuntimeError: the cloud's own words" in line for line in said] == [True]


@pytest.mark.slow(9)
def test_a_machine_that_a_library_cannot_make_out_goes_down_and_the_cell_is_measured(
    run: FakeRun, node_python: Path
) -> None:
    class Odd(Left):
        def adopt(self) -> bool:
            raise ValueError("invalid literal for int() with base 10: 'None'")

    said: list[str] = []
    odd, next_one = Odd(run, there=True), FakeCluster(run, node_python)
    placements = Placements(run.ledger, run.key)
    placements.ask("specsweep-x", offer(), elsewhere("laptop"), SYSTEM.now_iso(), IDLE_S)
    with FlowHeartbeatSender(run.ledger, print) as heartbeat:
        shared = context(run, FakeSite([odd, odd, odd, next_one]), said.append, managing=heartbeat.managing)
        settle(run.ledger, run.ledger.plan(), shared)
        assert not odd.is_down, "its cell asks again"
        outcome = measure_cell(run.ledger, run.planned, shared, lambda _: None)
    assert outcome.ended == "measured" and odd.is_down
    assert [story.end and story.end.outcome for story in placements.stories()] == ["preempted", "done"]
    assert any("specsweep-x can't be adopted (ValueError: invalid literal" in line for line in said)


class Unreachable(Left):
    """A node that SkyPilot can't ask now."""

    def adopt(self) -> bool:
        raise ConnectionError("ssh: Connection reset by peer")

    is_there = adopt


@pytest.mark.parametrize(
    ("asked_after_s", "attempt", "silent_s", "works"),
    [
        (-60, 1, 0, True),
        (-60, 1, 40, False),  # silent for a while
        (-60, 2, 0, False),  # a late beat of another runner
        (60, 1, 0, False),  # the runner of an earlier machine
    ],
    ids=["heard", "silent", "another's beat", "an earlier machine"],
)
def test_the_word_of_the_runner_itself_comes_before_skypilots(
    run: FakeRun, asked_after_s: float, attempt: int, silent_s: float, works: bool
) -> None:
    asked_at = iso_of(SYSTEM.now_s() + asked_after_s)
    placement = Placements(run.ledger, run.key).ask("specsweep-x", offer(), elsewhere("laptop"), asked_at, IDLE_S)
    run.leases.acquire(elsewhere("node"))
    run.leases.beat(Heartbeat(attempt=attempt, phase="step", at=SYSTEM.now_iso()))
    silent_since(run, SYSTEM.now_s() - silent_s)
    left = AttemptRun(run.ledger, run.planned, context(run, FakeSite([Unreachable(run)])), offer(), placement=placement)
    if works:
        assert left.adopt()
    else:
        with pytest.raises(ConnectionError):
            left.adopt()


def test_a_runner_that_closed_its_attempt_is_not_heard_any_more(run: FakeRun) -> None:
    placement = Placements(run.ledger, run.key).ask("specsweep-x", offer(), elsewhere("laptop"), SYSTEM.now_iso())
    lease = run.leases.acquire(elsewhere("node"))
    run.leases.beat(Heartbeat(attempt=1, phase="step", at=SYSTEM.now_iso()))
    run.leases.close(gone_attempt(lease, None, Ended.STOPPED, "stopped", SYSTEM.now_iso(), None))
    left = AttemptRun(run.ledger, run.planned, context(run, FakeSite([Left(run)])), offer(), placement=placement)
    assert not left.adopt()


def test_what_nobody_can_ask_about_goes_down_and_says_so(run: FakeRun) -> None:
    said: list[str] = []
    node, placements = Unreachable(run), Placements(run.ledger, run.key)
    asked_at = iso_of(SYSTEM.now_s() - WEEKEND_S)
    placement = placements.ask("specsweep-x", offer(), elsewhere("laptop"), asked_at, IDLE_S)
    AttemptRun(
        run.ledger, run.planned, context(run, FakeSite([node]), said.append), offer(), placement=placement
    ).bury()
    end = placements.stories()[-1].end
    assert node.is_down and end is not None and end.estimated
    assert ["whether its machine is still there is not known: ssh: Connection reset" in line for line in said] == [True]


def test_a_refused_start_names_what_is_up_and_what_ends_it(run: FakeRun) -> None:
    ledger, plan = full_run(run, 0.01)
    with pytest.raises(BudgetExceeded, match=r"or leave cells out$"):
        require_budget(ledger, plan)
    for number, planned in enumerate(sorted(plan.cells, key=lambda each: each.cell.cell_key)[:2]):
        Placements(ledger, planned.cell.cell_key).ask(
            f"specsweep-x-{number}", offer(), elsewhere("laptop"), SYSTEM.now_iso()
        )
    up = r"left up, .*, is paid for on: `bin/sky down -y specsweep-x-0 specsweep-x-1` ends it, then `bin/sweep reap`"
    node = Left(run, works=True)
    with pytest.raises(BudgetExceeded, match=up):
        settle_and_require_budget(ledger, plan, context(run, FakeSite([node])))
    assert not node.is_down


def test_nothing_open_asks_nobody(run: FakeRun) -> None:
    site = FakeSite([Left(run)])
    settle(run.ledger, run.ledger.plan(), context(run, site))
    assert site.handed == [] and Leases(run.ledger, run.key).current() is None
