"""The forecast: its rates against published ones, what it counts, and what evaluations will cost and can show."""

from __future__ import annotations

import io
import json
from statistics import median

import pytest
from rich.console import Console

from configs.cell import Cell
from configs.evals.suites import GPQA
from configs.expand import expand
from configs.load import load_gpu, load_precision, load_sweep
from configs.methods import METHODS
from configs.schema import Plan
from configs.steps.eval import EvalStep
from flows.forecast import estimates
from flows.forecast.estimates import ENGINE_GB, at_once, carried_requests, decode_tok_s, gain_at, start_s, step_s
from flows.forecast.forecast import EvalForecast, Forecast, forecast
from flows.terminal.forecast_table import render
from tests.flows.conftest import Finish, with_steps
from warehouse.ledger.clock import dollars, duration
from warehouse.report.published.read import load_write_up

FULL: Plan = expand(load_sweep("full"))
CELLS = {planned.cell.label: planned.cell for planned in FULL.cells}
DENSE, EXPERTS = CELLS["gemma-4-31b fp8 ar"], CELLS["gemma-4-26b-a4b fp8 ar"]
H100 = load_gpu("h100")


def plan(name: str) -> Plan:
    return expand(load_sweep(name))


def on_gpu(plan: Plan, name: str) -> Plan:
    gpu = load_gpu(name)
    cells = tuple(planned.model_copy(update={"gpu": gpu}) for planned in plan.cells)
    return plan.model_copy(update={"gpu": gpu, "cells": cells})


def shown(result: Forecast, columns: int = 100) -> str:
    console = Console(width=columns, file=io.StringIO(), color_system=None)
    console.print(render(result))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_rate_is_within_a_fifth_of_what_its_source_measured() -> None:
    cells = {p.cell.model.name: p.cell for p in FULL.cells if p.cell.technique.method == "ar"}
    published = [row for row in load_write_up("mtp-diffusion-h100").rows if row.technique == "ar" and row.tok_s]
    assert len(published) == 2 * len(cells)
    for row in published:  # a mean context is half of the 512 output tokens longer than the prompt
        context = (row.context_tokens or 64) + 256
        assert decode_tok_s(cells[str(row.model)], H100, context) == pytest.approx(row.tok_s, rel=0.2)


def test_longer_contexts_are_slower_and_more_requests_faster_up_to_what_the_engine_takes() -> None:
    diffusion = next(p.cell for p in FULL.cells if p.cell.serving.max_num_seqs == 4)
    assert decode_tok_s(diffusion, H100, 8000) < decode_tok_s(diffusion, H100, 100)
    assert decode_tok_s(diffusion, H100, 100, 4) > decode_tok_s(diffusion, H100, 100, 1)
    assert at_once(diffusion, H100, 64, 600) == 4


def test_committed_steps_are_not_paid_again_and_a_finished_cell_costs_nothing() -> None:
    quick = plan("tiny-quick")
    first, second = (planned.cell.cell_key for planned in quick.cells)
    steps = [step.step for step in quick.cells[0].steps]
    result = forecast(quick, {first: steps, second: ["throughput"]})
    assert result.cells[0].total_s == 0 and {step.state for step in result.cells[0].steps} == {"measured"}
    assert [s.step for s in result.cells[1].steps if s.state == "measured"] == ["throughput"]
    assert result.cells[1].start_s == estimates.CPU_START_S
    assert result.cells[1].total_s < forecast(quick, {}).cells[1].total_s


def test_dollars_follow_the_price_and_are_unknown_where_it_is() -> None:
    result = forecast(FULL, {})
    assert result.usd_spot == pytest.approx(result.gpu_h * 2.25)
    assert result.usd_on_demand == pytest.approx(result.gpu_h * 6.88)
    unpriced = forecast(on_gpu(FULL, "h200"), {})
    assert unpriced.usd_spot is None and " ? " in shown(unpriced)


def test_cells_at_the_same_time_take_less_wall_time_but_the_same_gpu_hours() -> None:
    four, one = forecast(FULL, {}), forecast(FULL.model_copy(update={"concurrency": 1}), {})
    assert four.gpu_h == pytest.approx(one.gpu_h) and one.wall_h == pytest.approx(one.gpu_h)
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
    assert max(len(line) for line in text.splitlines()) <= 100 and "…" not in text
    assert all(word in text for cell in result.cells for word in cell.label.split())
    assert all(sentence.split()[0] in text for sentence in result.assumptions)


def test_what_is_left_out_is_shown_with_its_reason() -> None:
    text = shown(forecast(FULL, {}))
    assert "Left out" in text and "parity: diffusion has no greedy decoding" in text


def test_free_machines_show_no_prices() -> None:
    result = forecast(plan("demo"), {})
    assert result.is_free and "$" not in shown(result)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "-"), (0.4, "-"), (42, "42s"), (59.6, "1m00s"), (425, "7m05s"), (12000, "3h20m")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_unknown_dollars_are_a_question_mark() -> None:
    assert (dollars(None), dollars(0), dollars(12.345)) == ("?", "$0.00", "$12.35")


def test_the_rate_is_that_of_its_source_and_more_requests_make_a_queue() -> None:
    cell = plan("transformers").cells[0].cell
    source = next(row for row in load_write_up("mtp-transformers-h100").rows if row.technique == "ar")
    assert decode_tok_s(cell, H100, 1088) == pytest.approx(source.tok_s, rel=0.05)
    assert at_once(cell, H100, 16, 600) == 1


def test_the_plan_says_what_it_rests_on_and_fits_its_own_budget() -> None:
    served = plan("transformers")
    result = forecast(served, {})
    assert any(said.startswith("generate() of transformers") for said in result.assumptions)
    assert served.cloud is not None and served.cloud.budget.run_usd is not None
    assert sum(cell.usd_spot or 0 for cell in result.cells) < served.cloud.budget.run_usd
    tiny = forecast(plan("tiny-quick"), {})
    assert not any("generate()" in said for said in tiny.assumptions)


def test_the_gain_of_mtp_and_of_diffusion_is_the_middle_of_its_source() -> None:
    write_up = load_write_up("mtp-diffusion-h100")
    gains = [row.speedup for row in write_up.rows if row.speedup is not None and row.mode == "fixed"]
    assert len(gains) == 5 and METHODS["mtp"].gain == pytest.approx(median(gains), rel=0.02)
    rows = [row for row in write_up.rows if row.condition == "short" and row.workload is None]
    short = {(row.model, row.technique): row.tok_s for row in rows if row.tok_s is not None}
    diffusion, ar = short["diffusiongemma-26b-a4b", "diffusion"], short["gemma-4-26b-a4b", "ar"]
    assert METHODS["diffusion"].gain == round(diffusion / ar, 1)


def test_the_gain_of_dflash_lies_between_its_two_models() -> None:
    name = "dflash-flash-attn"  # DFlash's method, with the drafter's attention backend
    rows = [row for row in load_write_up("mtp-dflash-h100").rows if row.technique == name and row.concurrency == 1]
    gains = sorted(row.speedup for row in rows if row.speedup)
    assert gains == [1.73, 3.03] and gains[0] < (METHODS["dflash"].gain or 0) < gains[1]


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
    assert estimates.load_s(four, H100, load) == pytest.approx(estimates.load_s(DENSE, FOUR_IN_ONE, load))


def test_pipeline_stages_take_turns_with_one_request_and_work_together_on_several() -> None:
    stages = spread(DENSE, "--pipeline-parallel-size=4")
    assert decode_tok_s(stages, H100, 4000) == decode_tok_s(DENSE, H100, 4000)
    one, four = (decode_tok_s(cell, H100, 30000, 16) for cell in (DENSE, stages))
    assert one < four < 4 * one


def test_data_parallel_copies_are_alone_with_their_requests() -> None:
    copies = spread(DENSE, "-dp=4")
    alone = decode_tok_s(DENSE, H100, 4000)
    assert decode_tok_s(copies, H100, 4000) == alone
    assert decode_tok_s(copies, H100, 4000, 4) == pytest.approx(4 * alone * estimates.BATCH_EFFICIENCY)


def test_the_cache_is_that_of_all_cards_less_each_copy_of_the_weights() -> None:
    one = carried_requests(DENSE, H100, 33068)
    assert one == 14
    assert carried_requests(spread(DENSE, "-dp=4"), H100, 33068) == pytest.approx(4 * one, abs=3)
    sharded = [carried_requests(spread(DENSE, f"{flag}=4"), H100, 33068) or 0 for flag in ("-tp", "-pp")]
    assert sharded[0] == sharded[1] > 4 * one + 30


def test_four_cards_cost_less_than_four_times_one_and_the_plan_says_that_they_are_ideal_ones() -> None:
    one, four = forecast(served(FULL), {}), forecast(served(FULL, "-tp=4"), {})
    assert one.gpu_h < four.gpu_h < 3 * one.gpu_h and four.wall_h < one.wall_h
    for before, after in zip(one.cells, four.cells, strict=True):
        assert (before.cards, after.cards) == (1, 4) and after.start_s >= start_s(H100)
    said = [any("ideal ones" in sentence for sentence in each.assumptions) for each in (one, four)]
    assert said == [False, True]


def changed(**fields: object) -> Plan:
    return with_steps(FULL, EvalStep, **fields)


def evaluation(plan: Plan, name: str = "eval-gpqa") -> EvalForecast:
    return next(one for one in forecast(plan, {}).evaluations if one.step == name)


def test_gpqa_shows_seven_points_and_says_what_its_margin_would_take_and_cost() -> None:
    gpqa = evaluation(FULL)
    assert (gpqa.items, gpqa.samples, gpqa.cells, gpqa.framework) == (198, 1, 11, "lm-eval")
    assert (gpqa.dataset, gpqa.revision, gpqa.gated) == ("Idavidrein/gpqa", GPQA.revision, True)
    assert gpqa.smallest_difference == pytest.approx(0.077, abs=0.0005)
    assert gpqa.comparisons == 6, "of 11 cells, 5 are AR"
    assert gpqa.carried_margin == pytest.approx(0.089, abs=0.0005)
    assert gpqa.needed is not None and (gpqa.needed.items, gpqa.needed.samples) == (198, 4), "it has no more items"
    assert gpqa.cost.gpu_h < gpqa.needed.cost.gpu_h < 4 * gpqa.cost.gpu_h


def test_a_cell_that_is_compared_beside_others_needs_more_items_than_one_alone() -> None:
    ar = tuple(planned for planned in FULL.cells if planned.cell.technique.is_baseline)
    other = next(planned for planned in FULL.cells if not planned.cell.technique.is_baseline)
    alone = evaluation(FULL.model_copy(update={"cells": (*ar, other)}))
    assert (alone.comparisons, round(alone.carried_margin, 3)) == (1, 0.068)
    assert alone.needed is not None and alone.needed.samples == 2
    assert evaluation(FULL.model_copy(update={"cells": ar})).comparisons == 1, "nothing is divided by none"
    assert alone.smallest_difference == evaluation(FULL).smallest_difference, "uncorrected, as the legend says"


def test_a_suite_with_more_items_is_asked_for_those_first() -> None:
    narrow = changed(margin=0.03)
    ifeval, mmlu = evaluation(narrow, "eval-ifeval"), evaluation(narrow, "eval-mmlu-pro")
    assert mmlu.needed is not None and (mmlu.needed.items, mmlu.needed.samples) == (1745, 1)
    assert ifeval.needed is not None and (ifeval.needed.items, ifeval.needed.samples) == (541, 4)
    assert evaluation(changed(margin=0.06), "eval-mmlu-pro").needed is None


def test_tokens_hours_and_dollars_are_those_of_the_whole_matrix() -> None:
    result = forecast(FULL, {})
    for one in result.evaluations:
        seconds = [step.seconds for cell in result.cells for step in cell.steps if step.step == one.step]
        assert one.cost.gpu_h == pytest.approx(sum(seconds) / 3600)
        assert one.cost.usd_spot == pytest.approx(one.cost.gpu_h * 2.25)
        assert one.cost.usd_on_demand == pytest.approx(one.cost.gpu_h * 6.88)
    assert evaluation(FULL).tokens == 11 * 198 * (300 + 8000)


def test_more_answers_per_item_cost_more_and_show_more() -> None:
    one, four = evaluation(FULL), evaluation(changed(samples=4))
    assert four.tokens == 4 * one.tokens and four.carried_margin == pytest.approx(one.carried_margin / 2)


def test_what_is_measured_already_costs_nothing_and_still_says_what_it_can_show() -> None:
    done = {planned.cell.cell_key: ["eval-gpqa"] for planned in FULL.cells}
    gpqa = next(one for one in forecast(FULL, done).evaluations if one.step == "eval-gpqa")
    assert (gpqa.cost.gpu_h, gpqa.cost.usd_spot, gpqa.tokens, gpqa.cells_left, gpqa.cells) == (0, 0, 0, 0, 11)
    assert gpqa.smallest_difference == evaluation(FULL).smallest_difference


def test_a_load_takes_at_least_as_long_as_its_longest_answer_alone() -> None:
    step = next(step for step in FULL.cells[0].steps if isinstance(step, EvalStep))
    few = step.model_copy(update={"items": 1})
    alone_s = step.max_tokens / decode_tok_s(DENSE, H100, step.max_tokens)
    planned = next(planned for planned in FULL.cells if planned.cell == DENSE)
    assert step_s(planned, few) > 0.9 * alone_s


def test_as_many_are_in_flight_as_the_cache_carries() -> None:
    gb = 80 * 2**30 / 1e9 * 0.85 - 30.7 - 4  # memory, weights, the engine's own
    kv_gb = 33068 * 2 * 10 * 4 * 512 * 2 / 1e9
    assert carried_requests(DENSE, H100, 33068) == int(gb / kv_gb) == 14
    assert at_once(DENSE, H100, 256, 33068) == 14 and at_once(DENSE, H100, 4, 33068) == 4
    without = DENSE.model_copy(update={"model": DENSE.model.model_copy(update={"kv": None})})
    assert at_once(without, H100, 256, 33068) == 64, "without a figure nothing is claimed"


def test_sixteen_at_a_time_are_within_a_factor_of_its_source() -> None:
    """mtp-dflash-h100 (docs/sources.md), bf16, AR: 375 tok/s (31B) and 975 tok/s (26B-A4B) at a concurrency of 16."""
    bf16 = load_precision("bf16")
    for cell, measured_tok_s in ((DENSE, 375), (EXPERTS, 975)):
        expected = decode_tok_s(cell.model_copy(update={"precision": bf16}), H100, 1000, 16)
        assert 0.6 < expected / measured_tok_s < 1.4


def test_a_batch_reads_more_experts_and_a_large_one_computes() -> None:
    per_request = [decode_tok_s(EXPERTS, H100, 4000, batch) / batch for batch in (1, 4, 16, 64)]
    assert per_request == sorted(per_request, reverse=True)
    dense = [decode_tok_s(DENSE, H100, 100, batch) for batch in (256, 512, 1024)]
    blind = H100.model_copy(update={"bf16_tflops": None})
    assert dense[2] < 1.1 * dense[1] < 1.3 * dense[0] and decode_tok_s(DENSE, blind, 100, 1024) > 2 * dense[2]


def test_the_gain_of_drafting_fades_with_the_batch() -> None:
    assert gain_at("mtp", 1) == 1.7 and gain_at("mtp", 33) == pytest.approx(1.35)
    assert 1 < gain_at("mtp", 256) < 1.1 and {gain_at("ar", batch) for batch in (1, 16, 256)} == {1.0}


@pytest.mark.parametrize("columns", [80, 130])
def test_the_plan_names_every_evaluation_with_what_it_costs_and_shows(columns: int) -> None:
    result = forecast(FULL, {})
    text = shown(result, columns)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= columns and "…" not in text
    section = text[text.index("What each evaluation can show") :]
    for one in result.evaluations:
        row, *_, about = [line for line in section.splitlines() if line.split()[:1] == [one.step]]
        figures = [str(one.items), f"{one.tokens / 1e6:.1f}M", f"{one.cost.gpu_h:.1f}", f"${one.cost.usd_spot:.2f}"]
        assert row.split()[1:5] == figures
        assert f"{100 * one.smallest_difference:.1f}" in row and f"{100 * one.carried_margin:.1f}" in row
        assert one.title in about and one.framework in about
    assert "HF_TOKEN" in section and "198x4" in section
    assert "beside 6 compared cells" in " ".join(section.split()) and "uncorrected" in section
    header = next(line for line in text.splitlines() if "throughput" in line)
    assert " evals " in header and "eval-gpqa" not in header


@pytest.mark.parametrize("name", ["full", "speed-bench", "demo-all", "shapes", "precision"])
def test_a_narrow_terminal_shows_every_column_of_a_wide_one_with_all_its_digits(name: str) -> None:
    result = forecast(plan(name), {})
    narrow, wide = (shown(result, columns) for columns in (80, 300))
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 80 and "…" not in narrow
    figures = [
        {word for line in text.splitlines() for word in line.split() if any(map(str.isdigit, word))}
        for text in (narrow, wide)
    ]
    assert figures[1] <= figures[0]
    header = next(line.split() for line in wide.splitlines() if line.startswith(" cell "))
    assert set(header) <= set(narrow.split())


def test_the_first_table_says_what_a_run_needs() -> None:
    text = shown(forecast(FULL, {}), 80)
    header = next(line for line in text.splitlines() if line.startswith(" cell "))
    assert header.split() == "cell starts GPU-h spot on-dem. weights of GB KV GB fits".split()
    [row] = [line for line in text.splitlines() if line.startswith(" gemma-4-31b fp8 ar ") and "$" in line]
    gb = 10 * 4 * 512 * 2 * 2 * 40960 / 1e9
    held = (80 * 2**30 / 1e9 * 0.85 - ENGINE_GB - 30.7) / gb
    assert row.split()[-4:] == ["30.7", f"{80 * 2**30 / 1e9 * 0.85:.1f}", f"{gb:.2f}", f"{int(held)}"]


def test_the_json_has_the_evaluations(finish_sweep: Finish) -> None:
    evaluations = json.loads(finish_sweep("plan", "full", "--json").splitlines()[-1])["evaluations"]
    assert [one["step"] for one in evaluations][:2] == ["eval-gpqa", "eval-gpqa-inspect"]
    assert evaluations[0]["needed"]["cost"]["usd_spot"] > evaluations[0]["cost"]["usd_spot"] > 0


def test_the_shipped_budgets_cover_the_forecast_and_the_nightly_ends_in_time() -> None:
    for shipped in (FULL, plan("nightly")):
        result, cloud = forecast(shipped, {}), shipped.cloud
        assert cloud is not None and cloud.budget.run_usd is not None
        assert 1.5 * (result.usd_spot or 0) < cloud.budget.run_usd
        assert cloud.finish_by_h is None or 2 * result.wall_h < cloud.finish_by_h
        cell_usd = max(cell.usd_on_demand or 0 for cell in result.cells)
        assert cloud.budget.cell_usd is None or cell_usd < cloud.budget.cell_usd
