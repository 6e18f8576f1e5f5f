"""What a plan says of its evaluations before they are paid for: their cost, and what their n can show."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from configs.expand import expand
from configs.load import load_gpu, load_precision, load_sweep
from configs.schema import Plan
from configs.steps.eval import EvalStep
from flows.forecast.estimates import at_once, carried_requests, decode_tok_s, gain_at, step_s
from flows.forecast.forecast import EvalForecast, Forecast, forecast
from flows.terminal.forecast_table import render
from tests.flows.conftest import Finish, with_steps

FULL: Plan = expand(load_sweep("full"))
CELLS = {planned.cell.label: planned.cell for planned in FULL.cells}
DENSE, EXPERTS = CELLS["gemma-4-31b fp8 ar"], CELLS["gemma-4-26b-a4b fp8 ar"]
H100 = load_gpu("h100")


def shown(result: Forecast, columns: int) -> str:
    console = Console(width=columns, file=io.StringIO(), color_system=None)
    console.print(render(result))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def changed(**fields: object) -> Plan:
    """The plan with other fields in every evaluation."""
    return with_steps(FULL, EvalStep, **fields)


def evaluation(plan: Plan, name: str = "eval-gpqa") -> EvalForecast:
    return next(one for one in forecast(plan, {}).evaluations if one.step == name)


def test_gpqa_shows_seven_points_and_says_what_its_margin_would_take_and_cost() -> None:
    gpqa = evaluation(FULL)
    assert (gpqa.items, gpqa.samples, gpqa.cells, gpqa.framework) == (198, 1, 11, "lm-eval")
    assert (gpqa.dataset, gpqa.revision, gpqa.gated) == ("Idavidrein/gpqa", "newest", True)
    assert gpqa.smallest_difference == pytest.approx(0.077, abs=0.0005)
    assert gpqa.comparisons == 6, "of 11 cells, 5 are AR"
    assert gpqa.carried_margin == pytest.approx(0.089, abs=0.0005)
    assert gpqa.needed is not None and (gpqa.needed.items, gpqa.needed.samples) == (198, 4), "it has no more items"
    assert gpqa.cost.gpu_h < gpqa.needed.cost.gpu_h < 4 * gpqa.cost.gpu_h


def test_a_cell_that_is_compared_beside_others_needs_more_items_than_one_alone() -> None:
    ar = [planned for planned in FULL.cells if planned.cell.technique.is_baseline]
    others = [planned for planned in FULL.cells if not planned.cell.technique.is_baseline]
    alone = evaluation(FULL.model_copy(update={"cells": (*ar, others[0])}))
    assert (alone.comparisons, round(alone.carried_margin, 3)) == (1, 0.068)
    assert alone.needed is not None and alone.needed.samples == 2
    assert evaluation(FULL.model_copy(update={"cells": tuple(ar)})).comparisons == 1, "nothing is divided by none"
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
    assert four.tokens == 4 * one.tokens
    assert four.carried_margin == pytest.approx(one.carried_margin / 2)


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
    gb = 80 * 2**30 / 1e9 * 0.92 - 30.7 - 4  # memory, weights, the engine's own
    kv_gb = 33068 * 2 * 10 * 4 * 512 * 2 / 1e9
    assert carried_requests(DENSE, H100, 33068) == int(gb / kv_gb) == 16
    assert at_once(DENSE, H100, 256, 33068) == 16
    assert at_once(DENSE, H100, 4, 33068) == 4
    without = DENSE.model_copy(update={"model": DENSE.model.model_copy(update={"kv": None})})
    assert at_once(without, H100, 256, 33068) == 256, "without a figure nothing is claimed"


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
    assert dense[2] < 1.1 * dense[1] < 1.3 * dense[0]
    assert decode_tok_s(DENSE, blind, 100, 1024) > 2 * dense[2]


def test_the_gain_of_drafting_fades_with_the_batch() -> None:
    assert gain_at("mtp", 1) == 1.7
    assert gain_at("mtp", 33) == pytest.approx(1.35)
    assert 1 < gain_at("mtp", 256) < 1.1
    assert {gain_at("ar", batch) for batch in (1, 16, 256)} == {1.0}


@pytest.mark.parametrize("columns", [100, 130])
def test_the_plan_names_every_evaluation_with_what_it_costs_and_shows(columns: int) -> None:
    result = forecast(FULL, {})
    text = shown(result, columns)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= columns
    assert "…" not in text
    section = text[text.index("What each evaluation can show") :]
    for one in result.evaluations:
        row, about = [line for line in section.splitlines() if line.split()[:1] == [one.step]]
        figures = [str(one.items), f"{one.tokens / 1e6:.1f}M", f"{one.cost.gpu_h:.1f}", f"${one.cost.usd_spot:.2f}"]
        assert row.split()[1:5] == figures
        assert f"{100 * one.smallest_difference:.1f}" in row and f"{100 * one.carried_margin:.1f}" in row
        assert one.title in about and one.framework in about
    assert "HF_TOKEN" in section and "198x4" in section
    assert "beside 6 compared cells" in " ".join(section.split()) and "uncorrected" in section
    header = next(line for line in text.splitlines() if "throughput" in line)
    assert " evals " in header and "eval-gpqa" not in header


def test_the_json_has_the_evaluations(finish_sweep: Finish) -> None:
    code, said = finish_sweep("plan", "full", "--json")
    assert code == 0, said
    evaluations = json.loads(said.splitlines()[-1])["evaluations"]
    assert [one["step"] for one in evaluations][:2] == ["eval-gpqa", "eval-gpqa-inspect"]
    assert evaluations[0]["needed"]["cost"]["usd_spot"] > evaluations[0]["cost"]["usd_spot"] > 0


def test_the_shipped_budgets_cover_the_forecast_and_the_nightly_ends_in_time() -> None:
    for name in ("full", "nightly"):
        plan = expand(load_sweep(name))
        result, cloud = forecast(plan, {}), plan.cloud
        assert cloud is not None and cloud.budget.run_usd is not None
        assert 1.5 * (result.usd_spot or 0) < cloud.budget.run_usd
        assert cloud.finish_by_h is None or 2 * result.wall_h < cloud.finish_by_h
        cell_usd = max(cell.usd_on_demand or 0 for cell in result.cells)
        assert cloud.budget.cell_usd is None or cell_usd < cloud.budget.cell_usd
