"""The shipped K sweeps: what they plan, and what they may leave out."""

from __future__ import annotations

import pytest

from configs.engine import argument
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Plan
from configs.steps.prompts import PromptsStep
from configs.steps.throughput import ThroughputStep
from flows.forecast.forecast import forecast

BOTH = pytest.mark.parametrize("name", ["k-sweep", "k-sweep-tiny"])


def plan(name: str) -> Plan:
    return expand(load_sweep(name))


@pytest.mark.parametrize(
    ("name", "models", "ks"), [("k-sweep", 2, [None, 1, 2, 4, 8]), ("k-sweep-tiny", 1, [None, 1, 2, 4])]
)
def test_every_k_of_its_source_stands_beside_ar(name: str, models: int, ks: list[int | None]) -> None:
    cells = plan(name).cells
    assert [each.cell.k for each in cells] == models * ks
    assert {each.cell.technique.name for each in cells} == {"ar", "mtp"}
    assert all(
        {"memory", "throughput", "load", "prompts", "parity"} <= {step.step for step in each.steps} for each in cells
    )


@BOTH
def test_cells_of_a_curve_differ_in_k_alone(name: str) -> None:
    drafting = [each.cell for each in plan(name).cells if each.cell.k is not None]
    alike = {cell.model_copy(update={"k": None}).cell_key for cell in drafting}
    assert len(alike) == len({cell.model.name for cell in drafting}), "one curve per model"


def test_the_true_one_asks_the_workloads_of_its_source_as_often_as_it_did() -> None:
    for planned in plan("k-sweep").cells:
        [found] = [each for each in planned.steps if isinstance(each, PromptsStep)]
        assert [each.name for each in found.workloads] == ["ja_finance", "en_finance", "py_code"]
        assert (found.concurrencies, found.repeats) == ((1,), 3)


@BOTH
def test_answers_of_a_fixed_length_and_those_that_may_end_are_both_asked_for(name: str) -> None:
    for planned in plan(name).cells:
        [found] = [each for each in planned.steps if isinstance(each, ThroughputStep)]
        assert [each.name for each in found.conditions if each.modes == ("fixed", "natural")] == ["short c=1"]


@BOTH
def test_no_step_is_forecast_as_free(name: str) -> None:
    assert all(step.seconds > 0 for cell in forecast(plan(name), {}).cells for step in cell.steps)


def test_the_true_one_goes_there_and_back_and_drops_no_baseline() -> None:
    planned = plan("k-sweep")
    assert {each.visits for each in planned.cells} == {"mirrored"}
    assert all((each.drop == "never") is each.cell.technique.is_baseline for each in planned.cells)
    assert forecast(planned, {}).droppable == 8


def test_the_true_one_is_the_published_machine_served_as_published() -> None:
    planned = plan("k-sweep")
    engine = planned.cells[0].cell.engine
    assert (planned.gpu.name, planned.cloud, planned.cells[0].spot) == ("gb10", None, False)
    assert (
        argument(engine.args, "--kv-cache-dtype") == "fp8"
        and argument(engine.args, "--max-num-batched-tokens") == "4096"
    )
    assert any("gemma4_mtp.py" in word for word in engine.command or ())
    assert {each.cell.serving.max_model_len for each in planned.cells} == {4096}
