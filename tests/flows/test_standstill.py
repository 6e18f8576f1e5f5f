"""A runner whose heart beats and that gets nowhere is given up; one that is slow, or was not watched, is not."""

from __future__ import annotations

from typing import cast

import pytest

from configs.evals.suites import EVALUATIONS
from configs.steps.eval import EvalStep
from flows.cell import measure_cell
from flows.clock import FlowStopped
from flows.clusters.protocol import CellJob, Ending
from flows.standstill import CHECK_EVERY_S, GAP_S, Standstill, phase_s
from tasks.host.bounds import BOUNDS
from tasks.host.environment_spec import ENVIRONMENTS, Name
from tests.fake_cloud import FakeCluster, FakeSite, JumpingClock, context
from tests.fake_run import FakeRun
from tests.warehouse.ledger.test_ledger import elsewhere
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Attempt, Heartbeat
from warehouse.ledger.looks import SharedLook
from warehouse.ledger.outcomes import Ended

LOOK_S = 30.0


def beat(phase: str, step: str | None = None, percent: float = 0.0, attempt: int = 1) -> Heartbeat:
    return Heartbeat(attempt=attempt, phase=phase, step=step, percent=percent, at="2026-11-20T10:00:00.000+00:00")


class Stuck(FakeCluster):
    """A node whose runner beats and hangs; it says so itself when it is asked to leave."""

    def __init__(self, run: FakeRun, phase: str, step: str | None) -> None:
        super().__init__(run)
        self.phase, self.step, self.attempt = phase, step, 0

    def launch(self, job: CellJob) -> None:
        self.attempt = self.run.leases.acquire(elsewhere("node")).epoch

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        self.run.leases.beat(beat(self.phase, self.step, attempt=self.attempt))
        return None

    def down(self) -> None:
        self.is_down = True
        told = {"outcome": "stopped", "reason": "asked to stop", "exit_code": Ended.STOPPED.exit_code, "ended_at": ""}
        self.run.leases.close(Attempt.model_validate({"attempt": self.attempt, **told}))


@pytest.mark.slow(4)
@pytest.mark.parametrize(
    ("phase", "step"),
    [("starting", None), ("preparing", None), ("engine", None), ("measuring", "smoke"), ("committing", "throughput")],
)
def test_a_runner_that_beats_and_gets_nowhere_is_a_failed_try_that_says_where(
    run: FakeRun, phase: str, step: str | None
) -> None:
    clock = JumpingClock()
    ledger = Ledger(run.ledger.store, "r1", clock)
    node, look = Stuck(run, phase, step), SharedLook(ledger)
    hands = context(run, FakeSite([node]), clock=clock, look=look, poll_s=LOOK_S, longest_poll_s=LOOK_S)
    outcome = measure_cell(ledger, run.planned, hands, lambda _: None)
    assert (outcome.ended, outcome.attempts) == ("failed", 2) and node.is_down
    bound_s = BOUNDS[phase].of(phase_s(run.planned, phase, step))
    where = f"no progress in phase {' '.join(filter(None, (phase, step)))!r} for "
    assert where in outcome.reason and f"its bound is {bound_s:.0f} s" in outcome.reason
    assert run.ends() == ["job_failed"] * 2
    assert [(each.outcome, where in each.reason) for each in run.attempts()] == [("failed", True)] * 2
    assert "a line of the node's log" in run.attempts()[0].log_tail
    assert 2 * bound_s < clock.at_s - clock.begun_s < 2 * (bound_s + 3 * GAP_S)


class Slow(Stuck):
    """A node whose eval step is far slower than its forecast, and moves: a percent in 55 minutes, for five hours."""

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        elapsed_s = self.run.leases.clock.now_s() - 1.8e9
        if elapsed_s > 5 * 3600:
            raise FlowStopped("five hours of it are enough")
        self.run.leases.beat(beat(self.phase, self.step, percent=elapsed_s / 3300, attempt=self.attempt))
        return None


@pytest.mark.slow(3)
def test_a_slow_runner_that_moves_is_never_given_up(run: FakeRun) -> None:
    clock = JumpingClock()
    ledger = Ledger(run.ledger.store, "r1", clock)
    run.leases.clock = clock
    node = Slow(run, "measuring", "smoke")
    look = SharedLook(ledger)
    hands = context(run, FakeSite([node]), clock=clock, look=look, poll_s=LOOK_S, longest_poll_s=LOOK_S)
    with pytest.raises(FlowStopped):
        measure_cell(ledger, run.planned, hands, lambda _: None)
    assert [each.outcome for each in run.attempts()] == ["stopped"]


def given_up(run: FakeRun, beats: list[Heartbeat], every_s: float) -> bool:
    """Whether a runner with these heartbeats, looked at so seldom, is given up before the last one."""
    standstill, now_s = Standstill(run.planned), 1.8e9
    for said in beats:
        assert standstill.is_due(now_s)
        if standstill.why(said, now_s) is not None:
            return True
        now_s += every_s
    return False


DAY = int(86400 / CHECK_EVERY_S)
LOOKS = int(2 * BOUNDS["measuring"].floor_s / CHECK_EVERY_S)
STARTS = [beat("engine").model_copy(update={"measure_s": 60.0 * (index // 3)}) for index in range(5 * LOOKS)]


@pytest.mark.parametrize(
    ("beats", "every_s", "is_given_up"),
    [
        ([beat("measuring", "smoke")] * LOOKS, CHECK_EVERY_S, True),
        ([beat("measuring", "smoke", index / 10) for index in range(10 * LOOKS)], CHECK_EVERY_S, False),
        ([beat("measuring", "smoke", 50.0 + index % 2 / 2) for index in range(LOOKS)], CHECK_EVERY_S, True),
        ([beat("engine" if index % 9 else "waiting") for index in range(5 * LOOKS)], CHECK_EVERY_S, False),
        (STARTS, CHECK_EVERY_S, False),
        ([beat("measuring", "smoke")] * 4, 8 * 3600.0, False),
        ([beat("waiting")] * 6 * DAY, CHECK_EVERY_S, False),
        ([beat("waiting")] * 8 * DAY, CHECK_EVERY_S, True),
    ],
    ids=[
        "stands still",
        "a percent now and then",
        "less than a percent",
        "from phase to phase",
        "many starts of an engine, each looked at in no other phase",
        "slept three nights",
        "behind a neighbour's cell of days",
        "behind one that never ends",
    ],
)
def test_progress_is_another_phase_or_percent_and_what_nobody_watched_counts_little(
    run: FakeRun, beats: list[Heartbeat], every_s: float, is_given_up: bool
) -> None:
    assert given_up(run, beats, every_s) == is_given_up


def test_a_long_step_has_a_multiple_of_its_forecast_and_an_unknown_phase_that_of_the_cell(run: FakeRun) -> None:
    steps_s = [phase_s(run.planned, "measuring", each.name) for each in run.planned.measurements]
    assert min(steps_s) > 0 and phase_s(run.planned, "a later version's", None) == pytest.approx(sum(steps_s))
    # what the node itself ends comes first: an engine's start with the download of its weights, an installer
    assert BOUNDS["engine"].of(phase_s(run.planned, "engine", None)) > run.planned.cell.engine.start_timeout_s
    evals = tuple(EvalStep.model_validate({"step": step, "items": 4}) for step in EVALUATIONS)
    installed = {cast(Name, spec.framework) for spec in evals}
    all_of_them = phase_s(run.planned.model_copy(update={"steps": evals}), "preparing", None)
    assert all_of_them >= sum(BOUNDS["install"].of(ENVIRONMENTS[name].make_s) for name in installed)
    bound = BOUNDS["measuring"]
    assert bound.of(1e5) == bound.times * 1e5 and bound.of(1.0) == bound.floor_s
