"""The forecast: its rates against published ones, what it counts and what it refuses to leave out."""

from __future__ import annotations

import io
from statistics import median

import pytest
from rich.console import Console

from configs.cell import Cell
from configs.expand import expand
from configs.load import load_gpu, load_sweep
from configs.schema import Plan
from flows.forecast.estimates import (
    BATCH_EFFICIENCY,
    CPU_START_S,
    GAIN_BY_METHOD,
    at_once,
    carried_requests,
    decode_tok_s,
    load_s,
    start_s,
)
from flows.forecast.forecast import Forecast, forecast
from flows.terminal.forecast_table import render
from warehouse.ledger.clock import duration
from warehouse.ledger.price import dollars
from warehouse.report.published.read import WriteUp, load_write_up


def plan(name: str) -> Plan:
    return expand(load_sweep(name))


def shown(result: Forecast) -> str:
    console = Console(width=100, file=io.StringIO(), color_system=None)
    console.print(render(result))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_rate_is_within_a_fifth_of_what_its_source_measured() -> None:
    gpu = load_gpu("h100")
    cells = {p.cell.model.name: p.cell for p in plan("full").cells if p.cell.technique.method == "ar"}
    published = [
        row for row in load_write_up("mtp-diffusion-h100").rows if row.technique == "ar" and row.tok_s is not None
    ]
    assert len(published) == 2 * len(cells)
    for row in published:  # a mean context is half of the 512 output tokens longer than the prompt
        context = (row.context_tokens or 64) + 256
        assert decode_tok_s(cells[str(row.model)], gpu, context) == pytest.approx(row.tok_s, rel=0.2)


def test_longer_contexts_are_slower_and_more_requests_faster_up_to_what_the_engine_takes() -> None:
    gpu = load_gpu("h100")
    diffusion = next(p.cell for p in plan("full").cells if p.cell.serving.max_num_seqs == 4)
    assert decode_tok_s(diffusion, gpu, 8000) < decode_tok_s(diffusion, gpu, 100)
    assert decode_tok_s(diffusion, gpu, 100, 4) > decode_tok_s(diffusion, gpu, 100, 1)
    assert at_once(diffusion, gpu, 64, 600) == 4


def test_committed_steps_are_not_paid_again_and_a_finished_cell_costs_nothing() -> None:
    quick = plan("tiny-quick")
    first, second = (planned.cell.cell_key for planned in quick.cells)
    steps = [step.step for step in quick.cells[0].steps]
    result = forecast(quick, {first: steps, second: ["throughput"]})
    assert result.cells[0].total_s == 0
    assert {step.state for step in result.cells[0].steps} == {"measured"}
    assert [s.step for s in result.cells[1].steps if s.state == "measured"] == ["throughput"]
    assert result.cells[1].start_s == CPU_START_S
    assert result.cells[1].total_s < forecast(quick, {}).cells[1].total_s


def test_dollars_follow_the_price_and_are_unknown_where_it_is() -> None:
    full = plan("full")
    result = forecast(full, {})
    assert result.usd_spot == pytest.approx(result.gpu_h * 2.25)
    assert result.usd_on_demand == pytest.approx(result.gpu_h * 6.88)
    h200 = load_gpu("h200")
    cells = tuple(planned.model_copy(update={"gpu": h200}) for planned in full.cells)
    unpriced = forecast(full.model_copy(update={"gpu": h200, "cells": cells}), {})
    assert unpriced.usd_spot is None
    assert " ? " in shown(unpriced)


def test_cells_at_the_same_time_take_less_wall_time_but_the_same_gpu_hours() -> None:
    full = plan("full")
    four, one = forecast(full, {}), forecast(full.model_copy(update={"concurrency": 1}), {})
    assert four.gpu_h == pytest.approx(one.gpu_h)
    assert one.wall_h == pytest.approx(one.gpu_h)
    assert one.wall_h / 4 <= four.wall_h < one.wall_h / 2


def test_cells_of_this_machine_take_turns_whatever_concurrency_says() -> None:
    own = expand(load_sweep("own-gpu"), card="NVIDIA L40S")
    four = forecast(own.model_copy(update={"concurrency": 4}), {})
    assert four.wall_h == pytest.approx(forecast(own, {}).wall_h) == pytest.approx(four.gpu_h)
    assert "one after another" in shown(four) and "at a time;" not in shown(four)


@pytest.mark.parametrize("name", ["full", "demo", "nightly", "tiny-quick", "demo-diffusion"])
def test_the_table_fits_a_hundred_columns_without_cutting_anything(name: str) -> None:
    result = forecast(plan(name), {})
    text = shown(result)
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "…" not in text
    assert all(word in text for cell in result.cells for word in cell.label.split())
    assert all(sentence.split()[0] in text for sentence in result.assumptions)


def test_what_is_left_out_is_shown_with_its_reason() -> None:
    result = forecast(plan("full"), {})
    assert "Left out" in shown(result)
    assert "parity: diffusion has no greedy decoding" in shown(result)


def test_free_machines_show_no_prices() -> None:
    result = forecast(plan("demo"), {})
    assert result.is_free
    assert "$" not in shown(result)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "-"), (0.4, "-"), (42, "42s"), (59.6, "1m00s"), (425, "7m05s"), (12000, "3h20m")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_unknown_dollars_are_a_question_mark() -> None:
    assert (dollars(None), dollars(0), dollars(12.345)) == ("?", "$0.00", "$12.35")


def test_the_rate_is_that_of_its_source_and_more_requests_make_a_queue() -> None:
    plan, gpu = expand(load_sweep("transformers")), load_gpu("h100")
    cell = plan.cells[0].cell
    source = next(row for row in load_write_up("mtp-transformers-h100").rows if row.technique == "ar")
    assert decode_tok_s(cell, gpu, 1088) == pytest.approx(source.tok_s, rel=0.05)
    assert at_once(cell, gpu, 16, 600) == 1


def test_the_plan_says_what_it_rests_on_and_fits_its_own_budget() -> None:
    plan = expand(load_sweep("transformers"))
    result = forecast(plan, {})
    assert any(said.startswith("generate() of transformers") for said in result.assumptions)
    assert plan.cloud is not None and plan.cloud.budget.run_usd is not None
    assert sum(cell.usd_spot or 0 for cell in result.cells) < plan.cloud.budget.run_usd
    tiny = forecast(expand(load_sweep("tiny-quick")), {})
    assert not any("generate()" in said for said in tiny.assumptions)


DFLASH = "dflash-flash-attn"
"""Its source's technique: DFlash's method, with the drafter's attention backend."""


def rates(write_up: WriteUp, **identity: object) -> dict[str, float]:
    """The rate of each technique under one condition."""
    rows = [row for row in write_up.rows if row.tok_s is not None and row.workload is None]
    matching = [row for row in rows if all(getattr(row, name) == value for name, value in identity.items())]
    return {row.technique: row.tok_s for row in matching if row.tok_s is not None}


def test_the_gain_of_mtp_and_of_diffusion_is_the_middle_of_its_source() -> None:
    write_up = load_write_up("mtp-diffusion-h100")
    gains = [row.speedup for row in write_up.rows if row.speedup is not None and row.mode == "fixed"]
    assert len(gains) == 5
    assert GAIN_BY_METHOD["mtp"] == pytest.approx(median(gains), rel=0.02)
    diffusion = rates(write_up, model="diffusiongemma-26b-a4b", condition="short")["diffusion"]
    ar = rates(write_up, model="gemma-4-26b-a4b", condition="short")["ar"]
    assert GAIN_BY_METHOD["diffusion"] == round(diffusion / ar, 1)


def test_the_gain_of_dflash_lies_between_its_two_models() -> None:
    rows = load_write_up("mtp-dflash-h100").rows
    gains = sorted(row.speedup for row in rows if row.technique == DFLASH and row.concurrency == 1 and row.speedup)
    assert gains == [1.73, 3.03]
    assert gains[0] < GAIN_BY_METHOD["dflash"] < gains[1]


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
