"""A cell that is over, or whose flow is, has no machine: none is left up, and none is begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cell import measure_cell
from tests.fake_cloud import FakeCluster, FakeSite, context, offer
from tests.fake_run import FakeRun
from tests.warehouse.test_ledger import elsewhere
from warehouse.clock import SYSTEM
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
