"""Bills worked out by hand, whose parts add up to what was paid; rows' shares, each second at its machine's price."""

import shutil
from datetime import UTC, datetime
from typing import Any

import pytest

from configs.steps.throughput import Condition
from tests.warehouse.rented import (
    NO_PRICE,
    ON_DEMAND,
    START_S,
    ZONE_A,
    StandingClock,
    at,
    close,
    rent,
    rent_a_bad_night,
)
from tests.warehouse.runs import SHORT
from tests.warehouse.synthetic import StepWriter, demo_plan, item, window
from warehouse.dataset.bill import RUN_REFRESH_S, STORE_REFRESH_S, BillLine, Spending, bill, month_of
from warehouse.dataset.build import consolidate
from warehouse.dataset.consolidate.rows import Spent, shared
from warehouse.dataset.snapshot import publish, read_current
from warehouse.dataset.tables import BILLED_PHASES
from warehouse.ledger.commits import Grading, Ledger, write_regrade
from warehouse.ledger.lease import Heartbeat, Leases
from warehouse.ledger.placement import Offer, Placements
from warehouse.ledger.steps import EVAL_ITEMS
from warehouse.ledger.store import Store
from warehouse.ledger.tables import VERDICTS, Row
from warehouse.ledger.timed_tables import WINDOWS

PLAN = demo_plan()
KEY, OTHER = (planned.cell.cell_key for planned in PLAN.cells[:2])
HOUR_S = 3600.0


@pytest.fixture
def ledger(local: Store) -> Ledger:
    ledger = Ledger(local, "night")
    ledger.write_plan(PLAN)
    return ledger


def lines(ledger: Ledger, now_s: float | None = None) -> list[BillLine]:
    return bill(Placements(ledger, KEY).stories(), Leases(ledger, KEY).attempts(), now_s)


def test_a_bad_night_by_hand(ledger: Ledger) -> None:
    rent_a_bad_night(ledger, KEY)
    first, second, third = lines(ledger)
    assert (first.number, second.number, third.number) == (1, None, 2)
    assert first.seconds == (100.0, 60.0, 120.0, 20.0, 500.0, 60.0, 40.0)
    assert (first.rented_s, first.cost_usd) == (900.0, pytest.approx(0.9))
    assert first.tried == "aws/us-east-1a spot: no_capacity (2 times)"
    assert second.seconds == (50.0, 250.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert (second.cost_usd, second.tried) == (pytest.approx(0.6), "")
    assert third.seconds == (100.0, 50.0, 100.0, 0.0, 700.0, 50.0, 0.0)


def test_nothing_rented_costs_nothing_and_is_no_line(ledger: Ledger) -> None:
    rent(ledger, KEY, 0, None, 600, "no_capacity")
    assert lines(ledger) == []
    assert Spending(ledger.store, StandingClock(1000).now_s).of_run(ledger.run_id).usd == 0


@pytest.mark.parametrize(
    ("down", "outcome", "runner", "facts", "seconds"),
    [
        (80, "preempted", (80, 80), {"outcome": "lost"}, (80.0, 0, 0, 0, 0, 0, 0)),
        (1000, "done", (150, 990), {"load_s": 100.0, "smoke_s": 5.0, "measure_s": 600.0, "lost_s": 0.0},
         (150.0, 0.0, 100.0, 5.0, 600.0, 145.0, 0.0)),
    ],
    ids=["lost, and the flow took the number when it was over", "the flow was killed before it could say"],
)  # fmt: skip
def test_a_machine_that_nobody_said_was_submitted(
    ledger: Ledger, down: float, outcome: str, runner: tuple[float, float], facts: Row, seconds: tuple[float, ...]
) -> None:
    rent(ledger, KEY, 0, None, down, outcome, attempt=1)
    close(ledger, KEY, 1, *runner, **facts)
    [line] = lines(ledger)
    assert line.seconds == seconds


USED = (20.0, 60.0, 10.0, 290.0)


@pytest.mark.parametrize(
    ("word", "seconds"),
    [
        ({"rented": 30.0}, (70.0, *USED, 20.0, 0.0)),
        ({"rented": -50.0}, (100.0, *USED, 20.0, 0.0)),
        ({"rented": 130.0}, (0.0, *USED, 20.0, 0.0)),
        ({"ended": 490.0}, (100.0, *USED, 10.0, 0.0)),
        ({"ended": 600.0}, (100.0, *USED, 20.0, 0.0)),
        ({"ended": -50.0}, (0.0,) * 7),
    ],
)
def test_the_clouds_word_bounds_a_bill(ledger: Ledger, word: dict[str, float], seconds: tuple[float, ...]) -> None:
    rent(ledger, KEY, 0, 100, 500, "done", attempt=1, **word)
    close(ledger, KEY, 1, 120, 480, load_s=60.0, smoke_s=10.0, measure_s=290.0)
    [line] = lines(ledger)
    assert (line.seconds, line.rented_s) == (seconds, sum(seconds))


HALF_PAST = 5400.0


@pytest.mark.parametrize(
    ("offer", "down", "ended", "interrupted", "charged"),
    [
        (ZONE_A, 3599.0, None, True, False),
        (ZONE_A, HALF_PAST, 3599.0, True, False),
        (ZONE_A, HALF_PAST, None, True, True),
        (ZONE_A, 3599.0, None, False, True),
        (ON_DEMAND, 3599.0, None, True, True),
        (ZONE_A.model_copy(update={"cloud": "gcp"}), 3599.0, None, True, True),
    ],
    ids=["first hour", "first hour by its word", "later", "not by the cloud", "on demand", "another cloud"],
)
def test_aws_charges_nothing_for_what_it_takes_back_within_an_hour(
    ledger: Ledger, offer: Offer, down: float, ended: float | None, interrupted: bool, charged: bool
) -> None:
    rent(ledger, KEY, 0, 100, down, "preempted", offer, 1, ended=ended, interrupted=interrupted)
    [line] = lines(ledger)
    usd = (offer.price_usd_h or 0.0) * (ended or down) / 3600 if charged else 0.0
    assert (line.is_charged, line.rented_s, line.cost_usd) == (charged, ended or down, pytest.approx(usd))
    assert Spending(ledger.store, StandingClock(9999).now_s).of_run(ledger.run_id).usd == pytest.approx(usd)
    [row] = consolidate(ledger.store, [ledger.run_id]).attempts
    assert (row["charged"], row["cost_usd"], row["provision_s"]) == (charged, pytest.approx(usd), 100.0)
    assert row["provision_usd"] == pytest.approx((offer.price_usd_h or 0.0) * 100 / 3600 if charged else 0.0)


def test_what_a_dead_flow_launched_costs_from_its_launch_by_the_clouds_word(ledger: Ledger) -> None:
    rent(ledger, KEY, 0, None, 300, "done", ON_DEMAND, 1, rented=60, ended=290)
    close(ledger, KEY, 1, 120, 280)
    (line,) = lines(ledger)
    assert (line.rented_s, line.cost_usd) == (230.0, pytest.approx(0.46))


@pytest.mark.parametrize("skew", [-5000.0, -120.0, 120.0, 5000.0])
def test_clocks_that_disagree_never_make_a_bill_longer(ledger: Ledger, skew: float) -> None:
    rent(ledger, KEY, 0, 100, 1000, attempt=1)
    close(ledger, KEY, 1, 150 + skew, 990 + skew, load_s=100.0, smoke_s=5.0, measure_s=700.0, lost_s=0.0)
    [line] = lines(ledger)
    assert line.seconds is not None and sum(line.seconds) == line.rented_s == 1000
    assert min(line.seconds) >= 0


def test_an_open_placement_is_billed_until_now_and_left_out_of_what_is_over(ledger: Ledger) -> None:
    rent(ledger, KEY, 0, 100, None)
    assert lines(ledger) == consolidate(ledger.store, [ledger.run_id]).attempts == []
    [line] = lines(ledger, START_S + 500)
    assert (line.rented_s, line.number) == (500.0, None)
    close(ledger, KEY, 1, 150, 400, load_s=50.0, measure_s=200.0)
    [line] = lines(ledger, START_S + 500)
    assert (line.number, line.seconds) == (1, (100.0, 50.0, 50.0, 0.0, 200.0, 100.0, 0.0))


def test_this_machine_keeps_its_columns(ledger: Ledger) -> None:
    close(ledger, KEY, 1, 0, 100, price_usd_h=36.0, measure_s=70.0)
    [row] = consolidate(ledger.store, [ledger.run_id]).attempts
    assert (row["wall_s"], row["cost_usd"], row["measure_s"]) == (100.0, pytest.approx(1.0), 70.0)
    assert row.get("rented_s") is None and row.get("cluster") is None


def test_a_try_without_words_has_null_where_others_have_them(ledger: Ledger) -> None:
    close(ledger, KEY, 1, 0, 100)
    close(ledger, KEY, 2, 200, 300, outcome="failed", reason="no such file", log_tail="Traceback")
    publish(ledger.store)
    rows = read_current(ledger.store, "attempts").select("attempt", "reason", "log_tail", "owner").rows()
    assert rows == [(1, None, None, None), (2, "no such file", "Traceback", None)]


def test_attempt_rows_have_machine_ending_seconds_and_dollars(ledger: Ledger) -> None:
    rent_a_bad_night(ledger, KEY)
    publish(ledger.store)
    rows = read_current(ledger.store, "attempts").to_dicts()
    endings = [(row["attempt"], row["outcome"], row["ended"]) for row in rows]
    assert endings == [(1, "lost", "preempted"), (None, "lost", "setup_failed"), (2, "completed", "done")]
    first, second, _ = rows
    assert (first["cloud"], first["region"], first["zone"]) == ("aws", "us-east-1", "us-east-1b")
    assert (first["instance_type"], first["spot"], second["spot"]) == ("p5.4xlarge", True, False)
    assert (first["price_usd_h"], first["price_source"]) == (3.6, "a test's catalogue")
    assert first["tried"] == "aws/us-east-1a spot: no_capacity (2 times)"
    for row in rows:
        assert sum(row[f"{phase}_s"] for phase in BILLED_PHASES) == pytest.approx(row["rented_s"])
        assert sum(row[f"{phase}_usd"] for phase in BILLED_PHASES) == pytest.approx(row["cost_usd"])
    spent = Spending(ledger.store, StandingClock(9999).now_s).of_run(ledger.run_id)
    assert sum(row["cost_usd"] for row in rows) == pytest.approx(spent.usd)


def test_spending_follows_the_clock_while_a_machine_is_up(ledger: Ledger) -> None:
    rent(ledger, KEY, 0, 100, 1000, attempt=1)
    rent(ledger, OTHER, 500, 600, None)
    Leases(ledger, OTHER).beat(Heartbeat(attempt=1, phase="measuring", at=at(1495)))
    clock = StandingClock(1500)
    spending = Spending(ledger.store, clock.now_s)
    spent = spending.of_run(ledger.run_id)
    assert spent.by_cell == {KEY: pytest.approx(1.0), OTHER: pytest.approx(1.0)}
    assert spent.up == (f"cluster-{OTHER[:4]}",)
    clock.s += 10  # younger than a listing may be: the clock alone
    assert spending.of_run(ledger.run_id).usd == pytest.approx(2.01)


def test_spending_reads_what_is_down_once(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    gets, get = list[str](), ledger.store.get
    monkeypatch.setattr(ledger.store, "get", lambda key: gets.append(key) or get(key))
    for key in (KEY, OTHER):
        rent(ledger, key, 0, 100, 1000, attempt=1)
    gets.clear()
    clock = StandingClock(2000)
    spending = Spending(ledger.store, clock.now_s)
    spending.of_run(ledger.run_id)
    assert len(gets) == 6
    clock.s += RUN_REFRESH_S
    spending.of_run(ledger.run_id)
    assert len(gets) == 6
    rent(ledger, KEY, 2010, 2020, None)
    gets.clear()
    clock.s += RUN_REFRESH_S
    assert spending.of_run(ledger.run_id).up == (f"cluster-{KEY[:4]}",)
    assert len(gets) == 3, "the new one"
    clock.s += RUN_REFRESH_S
    spending.of_run(ledger.run_id)
    assert len(gets) == 3, "an open one, while it is billed anyway"


def test_the_month_counts_every_run_and_only_its_own_part(store: Store) -> None:
    month_end_s = datetime(2026, 12, 1, tzinfo=UTC).timestamp() - START_S
    one, two = Ledger(store, "one"), Ledger(store, "two")
    rent(one, KEY, 0, 100, HOUR_S, attempt=1)
    rent(two, KEY, month_end_s - HOUR_S, None, month_end_s + 2 * HOUR_S, attempt=1)
    clock = StandingClock(month_end_s - 1)
    spending = Spending(store, clock.now_s)
    assert spending.of_month().usd == pytest.approx(2 * 3.6, rel=1e-9)
    clock.s += STORE_REFRESH_S
    assert spending.of_month().usd == pytest.approx(2 * 3.6)
    assert spending.of_run("two").usd == pytest.approx(3 * 3.6)


@pytest.mark.parametrize("name", ["one-copy", "one (copy)"])
def test_the_month_counts_a_copy_of_a_run_once(local: Store, name: str) -> None:
    rent(Ledger(local, "one"), KEY, 0, 100, HOUR_S, attempt=1)
    shutil.copytree(local.uri("runs/one"), local.uri(f"runs/{name}"))
    assert Spending(local, StandingClock(2 * HOUR_S).now_s).of_month().usd == pytest.approx(3.6)


def test_months_end_where_the_calendar_says() -> None:
    start, end = month_of(datetime(2026, 12, 31, 23, 59, tzinfo=UTC).timestamp())
    assert start == datetime(2026, 12, 1, tzinfo=UTC).timestamp()
    assert end == datetime(2027, 1, 1, tzinfo=UTC).timestamp()


def test_a_machine_without_a_price_is_named_and_has_no_dollars(ledger: Ledger) -> None:
    rent(ledger, KEY, 0, 100, 1000, offer=NO_PRICE, attempt=1)
    [line] = lines(ledger)
    assert (line.rented_s, line.cost_usd) == (1000.0, None)
    spent = Spending(ledger.store, StandingClock(2000).now_s).of_run(ledger.run_id)
    assert (spent.usd, spent.unpriced) == (0, (f"cluster-{KEY[:4]} on slurm/- spot",))


LONG = Condition(name="long c=1", context_tokens=640, output_tokens=100)


def results(ledger: Ledger) -> list[dict[str, Any]]:
    return consolidate(ledger.store, [ledger.run_id]).results


def step_of(ledger: Ledger, name: str = "throughput", attempt: int = 1, price_usd_h: float = 3600.0) -> StepWriter:
    return StepWriter(ledger, KEY, name, attempt).provenance(price_usd_h=price_usd_h)


def test_shares_are_in_proportion_and_add_up() -> None:
    shares = shared(Spent(10.0, 2.0), [3.0, 1.0])
    assert shares == [Spent(7.5, 1.5), Spent(2.5, 0.5)]
    assert shared(Spent(10.0, None), [0, 0]) == [Spent(5.0, None), Spent(5.0, None)]
    assert shared(Spent(10.0, 2.0), []) == []


def test_a_steps_rows_share_its_seconds_by_their_windows(ledger: Ledger) -> None:
    step = step_of(ledger).write(WINDOWS, [window(SHORT, 0, 100.0), window(SHORT, 1, 100.0)], spent_s=4.0)
    step.write(WINDOWS, [window(LONG, 0, 50.0), window(LONG, 0, 50.0, mode="stream", prefill_s=2.0)], spent_s=12.0)
    step.commit(wall_s=999.0)
    found = {(row["condition"], row["mode"]): row for row in results(ledger)}
    seconds = {shape: row["gpu_s"] for shape, row in found.items()}
    assert seconds == {(SHORT.name, "fixed"): 4.0, (LONG.name, "fixed"): 4.0, (LONG.name, "stream"): 8.0}
    assert sum(row["cost_usd"] for row in found.values()) == pytest.approx(16.0)


def test_seconds_of_a_lost_machine_are_kept_at_its_own_price(ledger: Ledger) -> None:
    lost = step_of(ledger).write(WINDOWS, [window(SHORT, 0, 100.0)], spent_s=10.0)
    step = step_of(ledger, attempt=2, price_usd_h=7200.0)
    step.parts += lost.parts
    step.write(WINDOWS, [window(SHORT, 1, 100.0)], spent_s=3.0).commit(wall_s=3.5)
    [row] = results(ledger)
    assert (row["gpu_s"], row["cost_usd"]) == (13.0, pytest.approx(10.0 + 6.0))
    assert row["price_usd_h"] == 7200.0, "provenance is that of the attempt that committed"


def test_further_visits_and_the_control_are_in_the_cells_rows(ledger: Ledger) -> None:
    for name, spent_s in (("throughput", 5.0), ("throughput@2", 4.0), ("throughput@control-1", 3.0)):
        step_of(ledger, name).write(WINDOWS, [window(SHORT, 0, 100.0)], spent_s=spent_s).commit()
    row = next(row for row in results(ledger) if row["step"] == "throughput")
    assert (row["gpu_s"], row["cost_usd"]) == (12.0, pytest.approx(12.0))


def test_an_evaluation_costs_once_however_often_its_answers_are_read_and_graded(ledger: Ledger) -> None:
    step_of(ledger, "eval-tiny").write(EVAL_ITEMS, [item(at, right=True) for at in range(4)], spent_s=7.0).commit()
    found = {row["extractor"]: (row["gpu_s"], row["cost_usd"]) for row in results(ledger)}
    assert found == {"last-letter": (7.0, pytest.approx(7.0)), "first-letter": (None, None)}
    verdict = {"condition": None, "mode": None, "verdict": "ok", "reasons": [], "details": []}
    identity = {"run_id": ledger.run_id, "cell_key": KEY, "step": "eval-tiny", "attempt": 1, "measured_at": "2026"}
    rows = [identity | item(index, right=index > 0) for index in range(4)]
    grading = Grading({EVAL_ITEMS: rows, VERDICTS: [identity | verdict]}, "ok", (), 2)
    write_regrade(ledger, KEY, "eval-tiny", 0, grading, None)
    counting = next(row for row in results(ledger) if row["extractor"] == "last-letter")
    assert (counting["score"], counting["gpu_s"]) == (0.75, 7.0)


def test_a_step_whose_parts_say_no_seconds_has_its_commits(ledger: Ledger) -> None:
    step_of(ledger).write(WINDOWS, [window(SHORT, 0, 100.0)]).commit(wall_s=10.0)
    assert [(row["gpu_s"], row["cost_usd"]) for row in results(ledger)] == [(10.0, pytest.approx(10.0))]


def test_the_last_word_of_the_attempt_that_committed_is_its_provenance(ledger: Ledger) -> None:
    step = StepWriter(ledger, KEY, "throughput").provenance(seed=None).provenance(seed=7)
    step.write(WINDOWS, [window(SHORT, 0, 100.0)]).commit()
    assert [row["seed"] for row in results(ledger)] == [7]
