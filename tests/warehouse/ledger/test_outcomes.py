"""How attempts and machines end: the table of endings, as docs/operations.md shows it, and ends that nobody saw."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from tests.warehouse.rented import START_S, ZONE_A, StandingClock, at, rent
from tests.warehouse.synthetic import demo_plan
from warehouse.dataset.bill import STORE_REFRESH_S, Spending
from warehouse.dataset.build import consolidate
from warehouse.ledger.claims import IDLE_S, Claims, Span, end_after
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Heartbeat, Leases
from warehouse.ledger.outcomes import ENDINGS, AttemptOutcome, Ended, EndingRow, Fault, ended_with
from warehouse.ledger.placement import Placement, PlacementEnd, Placements, PlacementStory, PlacementUp
from warehouse.ledger.store import Store

HEADER = (
    "| how it ended | `ended` | `outcome` | exit code | whose fault | failed try | towards on demand | avoided for "
    "| meaning |"
)

RECORDED = {
    "done", "no_capacity", "refused", "preempted", "notice", "setup_failed", "silent", "autodowned", "job_failed",
    "launch_failed", "stopped",
}  # fmt: skip
"""Words that stores have in `placements/*.end.json`."""


def on_the_page(row: EndingRow) -> str:
    cells = (
        f"`{row.ended}`",
        f"`{row.recorded}`",
        f"`{row.outcome}`" if row.outcome else "",
        "" if row.exit_code is None else row.exit_code,
        row.fault,
        "yes" if row.is_failed_try else "no",
        "yes" if row.is_lost_machine else "no",
        f"{row.avoided_s / 60:.0f} min" if row.avoided_s else "no",
        row.meaning,
    )
    return f"| {' | '.join(map(str, cells))} |"


def test_the_page_shows_every_ending_with_these_values(repo_root: Path) -> None:
    page = (repo_root / "docs" / "operations.md").read_text(encoding="utf-8").splitlines()
    first = page.index(HEADER) + 2
    shown = page[first : page.index("", first)]
    assert shown == [on_the_page(row) for row in ENDINGS.values()]


def test_every_ending_has_a_row_and_records_keep_the_words_that_stores_have() -> None:
    assert list(ENDINGS) == list(Ended), "in one order, too"
    assert {row.outcome for row in ENDINGS.values()} == {*get_args(AttemptOutcome), None}
    assert {row.fault for row in ENDINGS.values()} == set(Fault)
    assert {row.recorded for row in ENDINGS.values()} == RECORDED
    for word in RECORDED:
        assert PlacementEnd.model_validate({"at": "", "outcome": word}).outcome == word
    with pytest.raises(ValidationError, match="recorded as 'stopped'"):
        PlacementEnd.model_validate({"at": "", "outcome": "reaped"})


@pytest.mark.parametrize("row", ENDINGS.values(), ids=list(ENDINGS))
def test_the_next_flow_reads_off_the_record_what_this_one_saw_and_the_columns_of_a_row_agree(row: EndingRow) -> None:
    recorded = row.recorded.row
    assert recorded.recorded is row.recorded
    assert recorded.is_lost_machine == row.is_lost_machine
    assert recorded.avoided_s == row.avoided_s
    assert row.ended.loss == (row.recorded if row.avoided_s else None)
    lost = ("failed", "lost", "notice")
    assert row.is_lost_machine <= (row.outcome in lost), "nothing was rented, or it did not fail"
    assert row.is_lost_machine <= (row.avoided_s > 0), "who was lost may be lost there again"
    assert not (row.is_failed_try and row.fault is Fault.CLOUD), "spot nodes vanish, and the policy bounds how often"


def test_exit_codes_are_promised_and_a_bare_node_can_import_them() -> None:
    codes = {row.exit_code: row.ended for row in ENDINGS.values() if row.exit_code is not None}
    assert codes == {
        0: "done", 1: "failed", 3: "rejected", 75: "lease_held", 76: "superseded", 77: "notice", 143: "stopped",
    }  # fmt: skip
    assert {ended_with(code) for code in codes} == set(codes.values())
    assert all(ended.exit_code == code for code, ended in codes.items())
    assert [ended_with(code) for code in (-9, 137, 2)] == [Ended.KILLED] * 3
    with pytest.raises(ValueError, match="preempted"):
        _ = Ended.PREEMPTED.exit_code
    code = "import sys; import warehouse.ledger.outcomes; assert not {'polars', 'pydantic'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", code], check=True)


PLAN = demo_plan()
KEY = PLAN.cells[0].cell.cell_key
DAY_S = 86_400.0


def story(asked: float, up: float | None = None, **bounds: float) -> PlacementStory:
    known = {"cell_key": KEY, "number": 1, "cluster": "c", "offer": ZONE_A, "asked_at": at(asked), "flow": "a"}
    placement = Placement.model_validate(known | bounds)
    return PlacementStory(asked=placement, up=None if up is None else PlacementUp(at=at(up)), end=None)


def flow(began: float | None, heard: float) -> Span:
    return Span(None if began is None else at(began), at(heard))


@pytest.mark.parametrize(
    ("asked", "runner", "flows", "heard"),
    [
        pytest.param(story(1000), [], [], 1000, id="nothing but that it was asked for"),
        pytest.param(story(1000, 1300), [], [], 1300, id="its runner was submitted"),
        pytest.param(story(1000, 1300), [2000], [flow(900, 1500)], 2000, id="its runner outlived its flow"),
        pytest.param(story(1000, 1300), [900], [], 1300, id="an earlier machine's runner"),
        pytest.param(story(1000), [], [flow(900, 1200)], 1200, id="the flow died while it launched"),
        pytest.param(story(1000), [], [flow(None, 1200)], 1200, id="that flow took no claims"),
        pytest.param(story(1000), [], [flow(900, 1200), flow(1500, 1800)], 1800, id="the next flow adopted it"),
        pytest.param(story(1000), [], [flow(900, 1200), flow(DAY_S, DAY_S + 30)], 1200, id="the next flow was late"),
        pytest.param(story(1000), [], [flow(100, 900), flow(950, 1010)], 1010, id="an earlier flow"),
    ],
)
def test_it_was_up_until_the_last_heard(
    asked: PlacementStory, runner: list[float], flows: list[Span], heard: float
) -> None:
    assert end_after(asked, [at(each) for each in runner], flows) == START_S + heard + IDLE_S


def test_an_idle_time_the_next_machine_of_its_name_and_its_own_timer_end_it() -> None:
    assert end_after(story(1000, idle_s=60), [], []) == START_S + 1060
    assert end_after(story(1000), [], [], at(1100)) == START_S + 1100
    asked = story(1000, 1300, unattended_s=3600)
    assert end_after(asked, [at(20_000)], [flow(900, 1500)]) == START_S + 1500 + 3600
    assert end_after(asked, [at(2000)], [flow(900, 1500)]) == START_S + 2000 + IDLE_S


def test_no_run_and_no_month_bleeds_for_what_nobody_looked_after(local: Store) -> None:
    ledger, clock = Ledger(local, "friday"), StandingClock(3 * DAY_S)
    rent(ledger, KEY, 0, 100, None)
    Leases(ledger, KEY).beat(Heartbeat(attempt=1, phase="measuring", at=at(1000)))
    usd = (1000 + IDLE_S) / 1000
    spending = Spending(local, clock.now_s)
    assert spending.of_run("friday").usd == pytest.approx(usd)
    assert spending.of_month().usd == pytest.approx(usd)
    assert spending.of_month().up, "its end is still to be recorded"
    clock.s += DAY_S
    assert spending.of_month().usd == pytest.approx(usd)
    Claims(ledger, KEY).take("a flow that comes on Monday")
    clock.s += STORE_REFRESH_S
    assert spending.of_month().usd == pytest.approx(usd), "which can't have kept it up"


def test_an_estimated_end_says_so_in_the_attempts_and_an_old_one_says_nothing(local: Store) -> None:
    ledger = Ledger(local, "friday")
    ledger.write_plan(PLAN)
    rent(ledger, KEY, 0, 100, 1000, "preempted")
    rent(ledger, KEY, 2000, 2100, None)
    end = PlacementEnd(at=at(2700), outcome=Ended.AUTODOWNED, detail="gone", estimated=True)
    Placements(ledger, KEY).end(2, end)
    seen, guessed = consolidate(local, [ledger.run_id]).attempts
    assert (seen["estimated"], guessed["estimated"]) == (None, True)
    assert (guessed["rented_s"], guessed["cost_usd"]) == (700.0, pytest.approx(0.7))
