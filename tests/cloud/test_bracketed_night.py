"""A night in brackets: a node is reclaimed within a condition, and the next one is another kind of machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from lab.cloud import Lab
from tests.busy_machine import BUSY_MACHINE
from tests.cloud.checks import fine_again
from tests.cloud.night import Night
from tests.rented_run import end
from warehouse.dataset.snapshot import publish, read_current

pytestmark = [pytest.mark.cloud, pytest.mark.reclaimed, pytest.mark.slow(330)]

STRUCK = 0  # its only cell: what several do beside each other is looked at in other nights
EAST = ("us-east-1a", "us-east-1b", "us-east-1c")
PLACES = (
    {"infra": "aws/us-east-1", "instance_type": "p5.4xlarge"},
    {"infra": "aws/us-west-2", "instance_type": "m6i.2xlarge"},
)

OF_A_SPEED = ("cell_key", "condition", "mode")


class Tables:
    def __init__(self, night: Night) -> None:
        publish(night.ledger.store)
        self.results, self.pairs, self.visits, self.attempts = (
            read_current(night.ledger.store, name).filter(pl.col("run_id") == night.run_id)
            for name in ("results_consolidated", "pairs", "visits", "attempts")
        )

    def of(self, table: str, key: str) -> list[dict[str, Any]]:
        frame: pl.DataFrame = getattr(self, table)
        return frame.filter(pl.col("cell_key") == key).to_dicts()


@pytest.fixture(scope="module")
def night(session_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    """The night, over: the first machine of a cell went when some repeats of its own visit were stored."""
    night = Night(session_lab, tmp_path_factory.mktemp("visits"), 1, token_s=0.002, visits="bracketed", places=PLACES)
    process = night.start()
    try:
        with session_lab.writes_held(f"{night.keys[STRUCK]}/steps/throughput/commit.json"):
            some = lambda: sum("windows-" in key for key in night.parts(STRUCK, "throughput")) >= 2  # noqa: E731
            night.wait(process, some, "some windows of the cell's own start are stored")
            for zone in session_lab.capacities().keys() | set(EAST):
                session_lab.capacity(zone, 0)
            night.reclaim(STRUCK)
        night.ends_well(process)
        yield night
    finally:
        fine_again(session_lab)
        end(process)


@pytest.fixture(scope="module")
def tables(night: Night) -> Tables:
    return Tables(night)


def test_it_went_on_on_another_kind_of_machine(night: Night) -> None:
    assert night.ends(STRUCK) == ["preempted", "done"]
    first, second = (story.asked.offer.instance_type for story in night.stories(STRUCK)[-2:])
    assert (first, second) == ("p5.4xlarge", "m6i.2xlarge")
    assert night.is_measured(STRUCK)


def test_pairs_are_made_within_a_machine_only(night: Night, tables: Tables) -> None:
    speeds = [pair for pair in tables.pairs.to_dicts() if pair["kind"] == "speed"]
    rows = [row for key in night.keys for row in tables.of("results", key) if row["mode"] in ("fixed", "natural")]
    assert {row["cell_key"] for row in rows} == {*night.keys}
    paired = {tuple(pair[name] for name in OF_A_SPEED) for pair in speeds}
    assert paired <= {tuple(row[name] for name in OF_A_SPEED) for row in rows}
    for row in rows:
        if tuple(row[name] for name in OF_A_SPEED) not in paired:
            starts = [each for each in tables.of("visits", row["cell_key"]) if each["machine"] == row["machine"]]
            why = {reason for each in (row, *starts) for reason in each["reasons"]} - {"no_baseline"}
            assert why and why <= BUSY_MACHINE, "only a machine that was busy leaves a rate without its pair"
    for pair in speeds:
        same = {name: pair[name] for name in (*OF_A_SPEED, "machine")}
        behind = tables.visits.filter(pl.col("complete"), **same)["role"].to_list()
        assert {*behind} == {"cell", "control"} and pair["baseline_visits"] == behind.count("control")
    assert {pair["baseline_visits"] for pair in speeds} <= {1}, "the first control was another machine's"


def test_what_the_lost_machine_measured_is_kept_and_in_no_figure(night: Night, tables: Tables) -> None:
    cut = [visit for visit in tables.of("visits", night.keys[STRUCK]) if not visit["complete"]]
    assert cut and {visit["role"] for visit in cut} == {"cell"}
    (lost,) = {visit["machine"] for visit in cut}
    rows = [row for row in tables.of("results", night.keys[STRUCK]) if row["step"] == "throughput"]
    assert rows and lost not in {row["machine"] for row in rows}
    assert not any("mixed_machines" in row["reasons"] for row in rows)


def test_dollars_add_up_to_the_bill(night: Night, tables: Tables) -> None:
    rows, attempts = tables.of("results", night.keys[STRUCK]), tables.of("attempts", night.keys[STRUCK])
    seconds = sum(row["gpu_s"] or 0.0 for row in rows)
    billed = [(each["smoke_s"] or 0.0) + (each["measure_s"] or 0.0) for each in attempts]
    # a lost machine's bill stands at its last heartbeat: 5 s before its end at most, and more on a busy machine
    slack_s = 0.3 + 0.01 * sum(billed) + night.unheard_s.get(STRUCK, 0.0)
    assert abs(seconds - sum(billed)) <= slack_s
    dollars = sum(row["cost_usd"] or 0.0 for row in rows)
    owed = sum(each_s * (each["price_usd_h"] or 0.0) / 3600 for each, each_s in zip(attempts, billed, strict=True))
    assert abs(dollars - owed) <= slack_s * max(each["price_usd_h"] or 0.0 for each in attempts) / 3600
