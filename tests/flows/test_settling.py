"""What an earlier flow left open is settled first: four placements of Friday do not stop Monday's start."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Budget, Plan
from flows.attempt import AttemptRun
from flows.cell import measure_cell
from flows.flow_heartbeat import HeldCells
from flows.forecast.budget import BudgetExceeded, Purse
from flows.forecast.forecast import forecast
from flows.settling import require_budget, settle, settle_and_require_budget
from tests.fake_cloud import FakeCluster, FakeSite, context, offer
from tests.fake_run import FakeRun
from tests.warehouse.ledger.test_ledger import elsewhere
from warehouse.dataset.bill import Spending, bill
from warehouse.ledger.claims import Claims
from warehouse.ledger.clock import SYSTEM, iso_of, moment_s
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Heartbeat, Leases, gone_attempt
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import MachineEnd, Placement, Placements, PlacementStory

WEEKEND_S = 62 * 3600.0
IDLE_S = 300.0


class Left(FakeCluster):
    """What a flow left: a machine that works, one whose runner is gone, or nothing."""

    def __init__(self, run: FakeRun, *, works: bool = False, there: bool = False) -> None:
        super().__init__(run)
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
    books = [Placements(ledger, planned.cell.cell_key) for planned in plan.cells[:4]]
    for placements in books:
        placements.ask("specsweep-x", offer(), elsewhere("laptop"), iso_of(SYSTEM.now_s() - WEEKEND_S))
    shared = context(run, FakeSite([Left(run, there=there)]))
    with pytest.raises(BudgetExceeded, match=r"run full would cost") if there else nullcontext():
        settle_and_require_budget(ledger, plan, shared)
    ends = [placements.stories()[-1].end for placements in books]
    assert [end is not None and end.estimated for end in ends] == [not there] * 4


def left_open(run: FakeRun, ago_s: float = 0.0) -> Placement:
    """What a flow asked for so long ago."""
    return run.placements.ask("specsweep-x", offer(), elsewhere("laptop"), iso_of(SYSTEM.now_s() - ago_s), IDLE_S)


def silent_since(run: FakeRun, at_s: float) -> None:
    """Nothing was heard of the cell's runner since then, by the store's clock."""
    for key in (f"{run.ledger.cell_root(run.key)}/{name}" for name in ("heartbeat.json", "leases/000001.json")):
        os.utime(Path(run.ledger.store.uri(key)), (at_s, at_s))


def settle_now(run: FakeRun, node: Left, tell: Callable[[str], None] = print) -> None:
    with HeldCells(run.ledger, print) as heartbeat:
        settle(run.ledger, run.ledger.plan(), context(run, FakeSite([node]), tell, managing=heartbeat.managing))


def settled(run: FakeRun, node: Left, *, measured_s: float = 0.0) -> PlacementStory:
    """The placement that Friday's flow left, after Monday's has settled it; its runner was heard for so long."""
    heard_s = moment_s(left_open(run, WEEKEND_S).asked_at) + measured_s
    if measured_s:
        run.leases.acquire(elsewhere("node"))
        run.leases.beat(Heartbeat(attempt=1, phase="step", measure_s=measured_s, at=iso_of(heard_s)))
        silent_since(run, heard_s)
    settle_now(run, node)
    return run.story()


@pytest.mark.parametrize("measured_s", [0.0, 1800.0])
def test_what_is_gone_is_billed_until_it_had_idled_out_and_its_end_is_marked(run: FakeRun, measured_s: float) -> None:
    story = settled(run, Left(run), measured_s=measured_s)
    assert story.end is not None and story.end.estimated and story.end.outcome == "preempted"
    billed_s = moment_s(story.end.at) - moment_s(story.asked.asked_at)
    assert billed_s == pytest.approx(measured_s + IDLE_S, abs=0.01)
    assert [attempt.outcome for attempt in run.attempts()] == ["lost"]
    purse = Purse(run.ledger.store, "r1", Budget.model_validate({"run_usd": 5.0}), SYSTEM.now_s)
    spent = Spending(run.ledger.store, SYSTEM.now_s).of_run("r1")
    assert spent.usd == pytest.approx((measured_s + IDLE_S) / 1000, abs=0.001) and purse.over_run() is None


def test_work_that_was_done_while_nobody_looked_is_one_attempt_with_one_bill(run: FakeRun) -> None:
    node = Left(run, there=True)
    left_open(run, 3600.0)
    lease = run.leases.acquire(elsewhere("node"))
    done = gone_attempt(lease, None, Ended.DONE, reason="", ended_at=SYSTEM.now_iso(), price_usd_h=3.6)
    run.leases.close(done.model_copy(update={"exit_code": Ended.DONE.exit_code}))
    settle_now(run, node)
    end = run.story().end
    assert node.is_down and end is not None and (end.outcome, end.attempt) == ("done", 1)
    (line,) = bill(run.placements.stories(), run.attempts())
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
    asked_s = moment_s(left_open(run, 600).asked_at)
    if came_up:
        run.placements.up(1, iso_of(asked_s + 60))
    node = Left(run)
    node.word = MachineEnd(asked_s, launched_at_s=asked_s)
    settle_now(run, node)
    (line,) = bill(run.placements.stories(), run.attempts())
    assert line.story is not None and line.story.end is not None and line.story.end.estimated is came_up
    assert line.cost_usd == pytest.approx(360 / 1000 if came_up else 0.0, abs=0.001)


def test_what_works_stays_open_and_what_another_flow_manages_is_left_to_it(run: FakeRun) -> None:
    assert settled(run, Left(run, works=True)).end is None
    assert Claims(run.ledger, run.key).manager() is None, "its cell adopts it"
    Claims(run.ledger, run.key).take(elsewhere("another"))
    node = Left(run)
    settle_now(run, node)
    assert not node.is_down and run.story().end is None


def test_what_a_library_says_stops_neither_the_settling_nor_the_run(run: FakeRun) -> None:
    class Odd(Left):
        def down(self) -> None:
            raise RuntimeError("the cloud's own words")

    said: list[str] = []
    left_open(run)
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
    left_open(run)
    with HeldCells(run.ledger, print) as heartbeat:
        shared = context(run, FakeSite([odd, odd, odd, next_one]), said.append, managing=heartbeat.managing)
        settle(run.ledger, run.ledger.plan(), shared)
        assert not odd.is_down, "its cell asks again"
        outcome = measure_cell(run.ledger, run.planned, shared, lambda _: None)
    assert outcome.ended == "measured" and odd.is_down
    assert run.ends() == ["preempted", "done"]
    assert any("specsweep-x can't be adopted (ValueError: invalid literal" in line for line in said)


class Unreachable(Left):
    def adopt(self) -> bool:
        raise ConnectionError("ssh: Connection reset by peer")

    is_there = adopt


@pytest.mark.parametrize(
    ("asked_ago_s", "attempt", "silent_s", "works"),
    [(60, 1, 0, True), (60, 1, 40, False), (60, 2, 0, False), (-60, 1, 0, False)],
    ids=["heard", "silent for a while", "a late beat of another runner", "the runner of an earlier machine"],
)
def test_the_word_of_the_runner_itself_comes_before_skypilots(
    run: FakeRun, asked_ago_s: float, attempt: int, silent_s: float, works: bool
) -> None:
    placement = left_open(run, asked_ago_s)
    run.leases.acquire(elsewhere("node"))
    run.leases.beat(Heartbeat(attempt=attempt, phase="step", at=SYSTEM.now_iso()))
    silent_since(run, SYSTEM.now_s() - silent_s)
    left = AttemptRun(run.ledger, run.planned, context(run, FakeSite([Unreachable(run)])), offer(), placement=placement)
    with nullcontext() if works else pytest.raises(ConnectionError):
        assert left.adopt()


def test_a_runner_that_closed_its_attempt_is_not_heard_any_more(run: FakeRun) -> None:
    placement = left_open(run)
    lease = run.leases.acquire(elsewhere("node"))
    run.leases.beat(Heartbeat(attempt=1, phase="step", at=SYSTEM.now_iso()))
    run.leases.close(gone_attempt(lease, None, Ended.STOPPED, "stopped", SYSTEM.now_iso(), None))
    left = AttemptRun(run.ledger, run.planned, context(run, FakeSite([Left(run)])), offer(), placement=placement)
    assert not left.adopt()


def test_what_nobody_can_ask_about_goes_down_and_says_so(run: FakeRun) -> None:
    said: list[str] = []
    node, placement = Unreachable(run), left_open(run, WEEKEND_S)
    shared = context(run, FakeSite([node]), said.append)
    AttemptRun(run.ledger, run.planned, shared, offer(), placement=placement).bury()
    end = run.story().end
    assert node.is_down and end is not None and end.estimated
    assert ["whether its machine is still there is not known: ssh: Connection reset" in line for line in said] == [True]


def test_a_refused_start_names_what_is_up_and_what_ends_it(run: FakeRun) -> None:
    ledger, plan = full_run(run, 0.01)
    with pytest.raises(BudgetExceeded, match=r"or leave cells out$"):
        require_budget(ledger, plan)
    for number, key in enumerate(sorted(planned.cell.cell_key for planned in plan.cells)[:2]):
        Placements(ledger, key).ask(f"specsweep-x-{number}", offer(), elsewhere("laptop"), SYSTEM.now_iso())
    up = r"left up, .*, is paid for on: `bin/sky down -y specsweep-x-0 specsweep-x-1` ends it, then `bin/sweep reap`"
    node = Left(run, works=True)
    with pytest.raises(BudgetExceeded, match=up):
        settle_and_require_budget(ledger, plan, context(run, FakeSite([node])))
    assert not node.is_down


def test_nothing_open_asks_nobody(run: FakeRun) -> None:
    site = FakeSite([Left(run)])
    settle(run.ledger, run.ledger.plan(), context(run, site))
    assert site.handed == [] and Leases(run.ledger, run.key).current() is None
