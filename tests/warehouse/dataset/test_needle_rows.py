"""Needles in the dataset and on the page: found of asked by length and depth, and a lost one that stays a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from configs.schema import Plan
from configs.steps.needle import NeedleStep
from tests.warehouse.synthetic import StepWriter, demo_plan
from warehouse.dataset.build import consolidate
from warehouse.dataset.tables import RESULTS_CONSOLIDATED
from warehouse.ledger.commits import Ledger
from warehouse.ledger.steps import NEEDLES
from warehouse.ledger.store import Store
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View
from warehouse.report.steps.needle import needle_section

SPEC = NeedleStep.model_validate({"step": "needle", "context_tokens": [512, 1024]})
DEPTHS = (10, 90)


def plan_with_needles() -> Plan:
    plan = demo_plan()
    return plan.model_copy(
        update={"cells": tuple(cell.model_copy(update={"steps": (*cell.steps, SPEC)}) for cell in plan.cells)}
    )


def answer(tokens: int, depth: int, seed: int, *, found: bool, **facts: Any) -> Row:
    place = {"context_tokens": tokens, "depth_percent": depth, "seed": seed, "prompt_tokens": tokens - 1}
    text = {"gold": "1234567", "answer": "1234567" if found else None, "body": "It is 1234567"}
    return place | text | {"correct": found, "truncated": False, "blank": False} | facts


def built(store: Store, *cells: tuple[int, Sequence[Row]]) -> list[Row]:
    ledger, plan = Ledger(store, "r1"), plan_with_needles()
    ledger.write_plan(plan)
    for index, rows in cells:
        step = StepWriter(ledger, plan.cells[index].cell.cell_key, "needle")
        for row in rows:
            step.write(NEEDLES, [row])
        step.provenance()
        fine = ("512 10 %", "512 90 %", "1k 10 %")
        cut_off = ("1k 90 %", None, "suspect", ["truncated"], ["1 was cut off"])
        step.judge(*((name, None, "ok", [], []) for name in fine), cut_off)
        step.commit("suspect", ["truncated"])
    names = dict.fromkeys(RESULTS_CONSOLIDATED.column_names())
    return [names | row for row in consolidate(store, ["r1"]).results]


AR = [answer(tokens, depth, seed, found=True) for tokens in (512, 1024) for depth in DEPTHS for seed in range(3)]
MTP = [
    *(answer(512, 10, seed, found=True) for seed in range(3)),
    *(answer(512, 90, seed, found=seed == 1) for seed in range(3)),
    *(answer(1024, 90, seed, found=False, truncated=seed == 2, blank=True) for seed in range(3)),
]


def test_a_row_is_found_of_asked_with_its_exact_interval(local: Store) -> None:
    rows = {row["condition"]: row for row in built(local, (1, MTP))}
    assert set(rows) == {"512 10 %", "512 90 %", "1k 90 %"}
    first = rows["512 10 %"]
    assert (first["metric"], first["extractor"], first["score"], first["n"]) == ("needle", "exact", 1.0, 3)
    assert (first["score_lo"], first["score_hi"]) == (pytest.approx(0.2924, abs=1e-4), 1.0)
    assert (first["context_tokens"], first["depth_percent"], first["concurrency"]) == (512, 10, 4)
    lost = rows["1k 90 %"]
    assert (lost["score"], lost["truncated"], lost["blank"]) == (0.0, 1, 3)


def test_a_lost_needle_leaves_its_row_ok_and_says_which(local: Store) -> None:
    rows = {row["condition"]: row for row in built(local, (1, MTP))}
    assert (rows["512 10 %"]["verdict"], rows["512 10 %"]["details"]) == ("ok", [])
    lost = rows["512 90 %"]
    assert (lost["verdict"], lost["reasons"]) == ("ok", [])
    assert lost["details"] == ["2 of 3 needles were not found (seeds 0, 2)"]


def test_a_verdict_belongs_to_its_length_and_depth(local: Store) -> None:
    rows = {row["condition"]: row for row in built(local, (1, MTP))}
    assert rows["512 10 %"]["verdict"] == "ok"
    assert (rows["1k 90 %"]["verdict"], rows["1k 90 %"]["reasons"]) == ("suspect", ["truncated"])


def test_the_page_has_a_grid_per_cell_that_needs_no_colour(local: Store) -> None:
    page = needle_section(View([*built(local, (0, AR), (1, MTP))], [], [], 0))
    assert page is not None
    assert page.count("<table>") == 2 and page.count("at 10 %") == 2
    assert "3 of 3</span><small> (0.29 to 1.00)" in page
    assert "1 of 3 found</span>" in page
    assert "0 of 3 found, 1 cut off, 3 blank, suspect" in page
    assert page.count("\N{EN DASH}") == 1, "what mtp wasn't asked stands as a dash beside what AR was"
