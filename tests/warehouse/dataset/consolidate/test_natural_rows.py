"""Answers that end by themselves are rows of their own, held against AR's own natural ones."""

from __future__ import annotations

import pytest

from configs.steps.throughput import NATURAL
from tests.warehouse.synthetic import StepWriter, window
from tests.warehouse.visited import SHORT, VisitedRun, only
from warehouse.dataset.build import Consolidated
from warehouse.dataset.tables import RESULTS_CONSOLIDATED
from warehouse.ledger.store import Store
from warehouse.ledger.timed_tables import REQUESTS, WINDOWS
from warehouse.report.display.tables import condition_cell

ANSWERS = (40, 60, 100)
"""Tokens; the last is the cap."""


def both_modes(run: VisitedRun, technique: str, k: int | None, fixed: float, natural: float) -> None:
    step = StepWriter(run.ledger, run.key(technique, k), "throughput")
    step.provenance(machine="node-1 card-1")
    for mode, tok_s in (("fixed", fixed), (NATURAL, natural)):
        lengths = ANSWERS if mode == NATURAL else (100, 100, 100)
        step.write(WINDOWS, [window(SHORT, at, tok_s, mode=mode) for at in range(3)])
        step.write(REQUESTS, [
            {"condition": SHORT.name, "mode": mode, "context_tokens": 64, "output_tokens": 100, "concurrency": 1,
             "repeat": at, "request_id": f"{mode}/{at}", "prompt_tokens": 64, "completion_tokens": tokens,
             "finish_reason": "length" if tokens == 100 else "stop"}
            for at, tokens in enumerate(lengths)
        ])  # fmt: skip
        step.judge((SHORT.name, mode, "ok", [], []))
    step.commit()


@pytest.fixture
def built(local: Store) -> Consolidated:
    run = VisitedRun(local, "single")
    both_modes(run, "ar", None, 100.0, 80.0)
    both_modes(run, "mtp", 2, 150.0, 200.0)
    return run.built()


def test_each_mode_is_a_row_and_is_held_against_the_same_mode_of_ar(built: Consolidated) -> None:
    fixed, natural = (only(built.results, technique="mtp", k=2, mode=mode) for mode in ("fixed", NATURAL))
    assert fixed["speedup"] == pytest.approx(1.5) and natural["speedup"] == pytest.approx(2.5)
    assert {pair["mode"]: round(pair["ratio"], 2) for pair in built.pairs} == {"fixed": 1.5, NATURAL: 2.5}


def test_how_long_answers_were_and_how_many_the_cap_ended_is_said_of_natural_ones_only(built: Consolidated) -> None:
    fixed, natural = (only(built.results, technique="ar", mode=mode) for mode in ("fixed", NATURAL))
    assert natural["answer_tokens"] == pytest.approx(200 / 3) and natural["truncated"] == 1
    assert "answers that did not end by themselves within 100 tokens: 1" in natural["details"]
    assert fixed.get("answer_tokens") is None and fixed.get("truncated") is None and fixed["details"] == []


def test_a_table_of_the_page_tells_one_from_the_other(built: Consolidated) -> None:
    rows = [dict.fromkeys(RESULTS_CONSOLIDATED.column_names()) | row for row in built.results]
    said = {row["mode"]: str(condition_cell(row)) for row in rows if row["technique"] == "ar"}
    assert "answers end by themselves, 67 tokens on average" in said[NATURAL]
    assert "themselves" not in said["fixed"]
