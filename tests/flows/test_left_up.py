"""A cell that is over, or whose flow is, has no machine: none is left up, and none is begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cell import measure_cell
from flows.clock import FlowStopped, StoppableClock
from flows.clusters.protocol import CellJob, CellNeed, Decision, Launch, LaunchFailed
from tests.fake_cloud import FakeCluster, FakeSite, context, offer
from tests.fake_run import FakeRun
from tests.warehouse.test_ledger import elsewhere
from warehouse.clock import SYSTEM
from warehouse.outcomes import Ended
from warehouse.placement import Placements


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    return FakeRun(tmp_path)


class Rich:
    """A purse that nothing empties."""

    def over_run(self) -> str | None:
        return None

    def over_cell(self, cell_key: str) -> str | None:
        return None


def test_the_machine_that_a_rejected_cell_left_goes_down_and_its_record_is_closed(run: FakeRun) -> None:
    node, placements = FakeCluster(run, Path("no-python")), Placements(run.ledger, run.key)
    placements.ask("specsweep-x", offer(), elsewhere("laptop"), SYSTEM.now_iso())
    run.ledger.commit(run.key, run.ledger.new_commit("smoke", 1, elsewhere("node"), "rejected", ["low_score"], 1.0, []))
    outcome = measure_cell(run.ledger, run.planned, context(run, FakeSite([node]), purse=Rich()), lambda _: None)
    assert (outcome.ended, outcome.attempts) == ("rejected", 0) and "low_score" in outcome.reason
    assert node.is_down and placements.open() is None


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

    site = Slow([Dry(run, Path("no-python"))], [Launch(offer(f"east-1{zone}")) for zone in "abc"])
    with pytest.raises(FlowStopped, match="Ctrl-C"):
        measure_cell(run.ledger, run.planned, context(run, site, clock=clock), lambda _: None)
    assert [story.end and story.end.outcome for story in Placements(run.ledger, run.key).stories()] == ["no_capacity"]
