"""What planning knows of a memory step: one request of full length, in every start in which a speed is measured."""

from __future__ import annotations

from typing import Any

import pytest

from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Plan
from configs.step import Work
from configs.steps.memory import MemoryStep
from flows.forecast.forecast import forecast


def step(**fields: Any) -> MemoryStep:
    return MemoryStep.model_validate({"step": "memory", **fields})


def plan(name: str) -> Plan:
    return expand(load_sweep(name))


def test_its_one_request_fills_the_context() -> None:
    cell = plan("speed-bench").cells[0].cell
    assert step().workload(cell) == (Work(1, 32768 - 16, 16),)
    assert step(output_tokens=100).context_tokens(cell) == 32668


def test_a_context_without_room_for_a_prompt_is_not_measured() -> None:
    cell = plan("speed-bench-tiny").cells[0].cell
    short = cell.model_copy(update={"serving": cell.serving.model_copy(update={"max_model_len": 100})})
    assert step(output_tokens=64).why_not(cell) is None
    assert "max_model_len 100 has no room" in str(step(output_tokens=64).why_not(short))


@pytest.mark.parametrize(("name", "cells"), [("speed-bench", 6), ("speed-bench-tiny", 2)])
def test_the_speed_suites_plan_it_without_a_start_of_its_own(name: str, cells: int) -> None:
    planned = plan(name)
    with_memory = [[each.name for each in start.measurements] for start in planned.cells[1].starts]
    assert all(any(each.startswith("memory") for each in names) for names in with_memory)
    assert all(any(each.startswith("load") for each in names) for names in with_memory), "each start times something"
    costs = [each.seconds for cell in forecast(planned, {}).cells for each in cell.steps if each.step == "memory"]
    assert len(costs) >= cells and all(0 < seconds < 30 for seconds in costs), "a start each, and seconds of it"


@pytest.mark.parametrize("name", ["full", "demo", "nightly"])
def test_other_suites_have_none(name: str) -> None:
    assert all(each.step != "memory" for cell in plan(name).cells for each in cell.steps)
