"""Seconds and dollars of rows: shares that add up, each second at the price of the machine that spent it."""

from __future__ import annotations

from typing import Any

import pytest

from configs.steps.throughput import Condition
from tests.warehouse.synthetic import StepWriter, demo_plan, item, window
from warehouse.dataset.build import consolidate
from warehouse.dataset.consolidate.rows import Spent, shared
from warehouse.ledger.commits import Grading, Ledger, write_regrade
from warehouse.ledger.steps import EVAL_ITEMS
from warehouse.ledger.store import Store
from warehouse.ledger.tables import VERDICTS
from warehouse.ledger.timed_tables import WINDOWS

SHORT = Condition(name="short c=1", context_tokens=64, output_tokens=100)
LONG = Condition(name="long c=1", context_tokens=640, output_tokens=100)
PLAN = demo_plan()
KEY = PLAN.cells[0].cell.cell_key


@pytest.fixture
def ledger(local: Store) -> Ledger:
    ledger = Ledger(local, "run")
    ledger.write_plan(PLAN)
    return ledger


def results(ledger: Ledger) -> list[dict[str, Any]]:
    return consolidate(ledger.store, [ledger.run_id]).results


def test_shares_are_in_proportion_and_add_up() -> None:
    shares = shared(Spent(10.0, 2.0), [3.0, 1.0])
    assert shares == [Spent(7.5, 1.5), Spent(2.5, 0.5)]
    assert shared(Spent(10.0, None), [0, 0]) == [Spent(5.0, None), Spent(5.0, None)]
    assert shared(Spent(10.0, 2.0), []) == []


def test_a_steps_rows_share_its_seconds_by_their_windows(ledger: Ledger) -> None:
    step = StepWriter(ledger, KEY, "throughput")
    step.provenance(price_usd_h=3600.0)
    step.write(WINDOWS, [window(SHORT, 0, 100.0), window(SHORT, 1, 100.0)], spent_s=4.0)
    step.write(WINDOWS, [window(LONG, 0, 50.0), window(LONG, 0, 50.0, mode="stream", prefill_s=2.0)], spent_s=12.0)
    step.commit(wall_s=999.0)
    found = {(row["condition"], row["mode"]): row for row in results(ledger)}
    seconds = {shape: row["gpu_s"] for shape, row in found.items()}
    assert seconds == {(SHORT.name, "fixed"): 4.0, (LONG.name, "fixed"): 4.0, (LONG.name, "stream"): 8.0}
    assert sum(row["cost_usd"] for row in found.values()) == pytest.approx(16.0)


def test_seconds_of_a_lost_machine_are_kept_at_its_own_price(ledger: Ledger) -> None:
    lost = StepWriter(ledger, KEY, "throughput", attempt=1)
    lost.provenance(price_usd_h=3600.0)
    lost.write(WINDOWS, [window(SHORT, 0, 100.0)], spent_s=10.0)
    step = StepWriter(ledger, KEY, "throughput", attempt=2)
    step.parts += lost.parts
    step.provenance(price_usd_h=7200.0)
    step.write(WINDOWS, [window(SHORT, 1, 100.0)], spent_s=3.0)
    step.commit(wall_s=3.5)
    [row] = results(ledger)
    assert (row["gpu_s"], row["cost_usd"]) == (13.0, pytest.approx(10.0 + 6.0))
    assert row["price_usd_h"] == 7200.0, "provenance is that of the attempt that committed"


def test_further_visits_and_the_control_are_in_the_cells_rows(ledger: Ledger) -> None:
    for name, spent_s in (("throughput", 5.0), ("throughput@2", 4.0), ("throughput@control-1", 3.0)):
        step = StepWriter(ledger, KEY, name)
        step.provenance(price_usd_h=3600.0)
        step.write(WINDOWS, [window(SHORT, 0, 100.0)], spent_s=spent_s)
        step.commit()
    row = next(row for row in results(ledger) if row["step"] == "throughput")
    assert (row["gpu_s"], row["cost_usd"]) == (12.0, pytest.approx(12.0))


def test_an_evaluation_costs_once_however_often_its_answers_are_read(ledger: Ledger) -> None:
    step = StepWriter(ledger, KEY, "eval-tiny")
    step.provenance(price_usd_h=3600.0)
    step.write(EVAL_ITEMS, [item(index, right=True) for index in range(4)], spent_s=7.0)
    step.commit()
    found = results(ledger)
    assert {row["extractor"]: row["gpu_s"] for row in found} == {"last-letter": 7.0, "first-letter": None}
    assert {row["extractor"]: row["cost_usd"] for row in found} == {
        "last-letter": pytest.approx(7.0),
        "first-letter": None,
    }


def test_what_was_graded_again_still_costs_what_it_took(ledger: Ledger) -> None:
    step = StepWriter(ledger, KEY, "eval-tiny")
    step.provenance(price_usd_h=3600.0)
    step.write(EVAL_ITEMS, [item(index, right=True) for index in range(4)], spent_s=7.0)
    step.commit()
    verdict = {"condition": None, "mode": None, "verdict": "ok", "reasons": [], "details": []}
    identity = {"run_id": "run", "cell_key": KEY, "step": "eval-tiny", "attempt": 1, "measured_at": "2026-11-22"}
    rows = [identity | item(index, right=index > 0) for index in range(4)]
    grading = Grading({EVAL_ITEMS: rows, VERDICTS: [identity | verdict]}, "ok", (), 2)
    write_regrade(ledger, KEY, "eval-tiny", 0, grading, None)
    counting = next(row for row in results(ledger) if row["extractor"] == "last-letter")
    assert (counting["score"], counting["gpu_s"]) == (0.75, 7.0)


def test_a_step_whose_parts_say_no_seconds_has_its_commits(ledger: Ledger) -> None:
    step = StepWriter(ledger, KEY, "throughput")
    step.provenance(price_usd_h=3600.0)
    step.write(WINDOWS, [window(SHORT, 0, 100.0)])
    step.commit(wall_s=10.0)
    assert [(row["gpu_s"], row["cost_usd"]) for row in results(ledger)] == [(10.0, pytest.approx(10.0))]


def test_the_last_word_of_the_attempt_that_committed_is_its_provenance(ledger: Ledger) -> None:
    step = StepWriter(ledger, KEY, "throughput")
    step.provenance(seed=None)
    step.provenance(seed=7)
    step.write(WINDOWS, [window(SHORT, 0, 100.0)])
    step.commit()
    assert [row["seed"] for row in results(ledger)] == [7]
