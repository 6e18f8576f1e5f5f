"""The forecast of cells on several cards: what each kind of spreading speeds up, and what is billed for it."""

from __future__ import annotations

import pytest

from configs.cell import Cell
from configs.expand import expand
from configs.load import load_gpu, load_sweep
from configs.schema import Plan
from flows.forecast.decoding import BATCH_EFFICIENCY, carried_requests, decode_tok_s
from flows.forecast.estimates import load_s, start_s
from flows.forecast.forecast import forecast

FULL: Plan = expand(load_sweep("full"))
DENSE = next(p.cell for p in FULL.cells if p.cell.label == "gemma-4-31b fp8 ar")
H100 = load_gpu("h100")
FOUR_IN_ONE = H100.model_copy(update={"memory_gib": 4 * 80.0, "bandwidth_gb_s": 4 * 3350.0, "bf16_tflops": 4 * 989.0})
"""One card with what four have."""


def spread(cell: Cell, *args: str) -> Cell:
    return cell.model_copy(update={"engine": cell.engine.model_copy(update={"args": (*cell.engine.args, *args)})})


def served(plan: Plan, *args: str) -> Plan:
    cells = tuple(p.model_copy(update={"cell": spread(p.cell, *args), "control": None}) for p in plan.cells)
    return plan.model_copy(update={"cells": cells})


@pytest.mark.parametrize("at_once", [1, 4, 64, 1024])
def test_tensor_parallel_cards_are_as_fast_as_one_with_what_all_have(at_once: int) -> None:
    four = spread(DENSE, "--tensor-parallel-size", "4")
    assert decode_tok_s(four, H100, 4000, at_once) == pytest.approx(decode_tok_s(DENSE, FOUR_IN_ONE, 4000, at_once))


def test_prompts_are_read_by_all_cards() -> None:
    load = next(iter(FULL.cells[2].steps[1].workload(DENSE)))._replace(prompt_tokens=8000, output_tokens=1)
    four = spread(DENSE, "-tp", "4")
    assert load_s(four, H100, load) == pytest.approx(load_s(DENSE, FOUR_IN_ONE, load))


def test_pipeline_stages_take_turns_with_one_request_and_work_together_on_several() -> None:
    stages = spread(DENSE, "--pipeline-parallel-size=4")
    assert decode_tok_s(stages, H100, 4000) == decode_tok_s(DENSE, H100, 4000)
    one, four = (decode_tok_s(cell, H100, 30000, 16) for cell in (DENSE, stages))
    assert one < four < 4 * one


def test_data_parallel_copies_are_alone_with_their_requests() -> None:
    copies = spread(DENSE, "-dp=4")
    alone = decode_tok_s(DENSE, H100, 4000)
    assert decode_tok_s(copies, H100, 4000) == alone
    assert decode_tok_s(copies, H100, 4000, 4) == pytest.approx(4 * alone * BATCH_EFFICIENCY)


def test_the_cache_is_that_of_all_cards_less_each_copy_of_the_weights() -> None:
    one = carried_requests(DENSE, H100, 33068)
    assert one == 16
    assert carried_requests(spread(DENSE, "-dp=4"), H100, 33068) == pytest.approx(4 * one, abs=3)
    sharded = [carried_requests(spread(DENSE, f"{flag}=4"), H100, 33068) or 0 for flag in ("-tp", "-pp")]
    assert sharded[0] == sharded[1] > 4 * one + 30


def test_four_cards_cost_less_than_four_times_one_and_the_plan_says_that_they_are_ideal_ones() -> None:
    one, four = forecast(served(FULL), {}), forecast(served(FULL, "-tp=4"), {})
    assert one.gpu_h < four.gpu_h < 3 * one.gpu_h
    assert four.wall_h < one.wall_h
    for before, after in zip(one.cells, four.cells, strict=True):
        assert (before.cards, after.cards) == (1, 4)
        assert after.start_s >= start_s(H100)
    said = [any("ideal ones" in sentence for sentence in each.assumptions) for each in (one, four)]
    assert said == [False, True]
