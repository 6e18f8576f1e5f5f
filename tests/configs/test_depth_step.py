"""What planning knows of a depth step: its rows' names, its requests, its room, and the sweeps that have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from configs.cell import argument
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Plan
from configs.step import Work
from configs.steps.depth import DepthStep
from configs.steps.prompts import PromptsStep
from configs.steps.throughput import WARM_UP_LENGTHS


def step(**fields: Any) -> DepthStep:
    return DepthStep.model_validate({"step": "depth", "prompts": "prose", **fields})


def plan(name: str) -> Plan:
    return expand(load_sweep(name))


def test_rows_are_named_as_llama_benchy_names_them() -> None:
    shapes = [*step(depths=[0, 4096], concurrencies=[1, 4]).shapes()]
    assert [each.prefill_name for each in shapes] == ["pp2048", "pp2048 @ d4096", "pp2048 c=4", "pp2048 @ d4096 c=4"]
    assert [each.decode_name for each in shapes[:2]] == ["tg128", "tg128 @ d4096"]
    assert shapes[1].context_tokens == 4096 + 2048


def test_every_run_is_priced_with_its_warm_up_at_its_depth() -> None:
    cell = plan("depth").cells[0].cell
    assert step().workload(cell) == tuple(
        load for depth in (2048, 6144, 10240) for load in (Work(4, depth, 128), Work(WARM_UP_LENGTHS, depth, 1))
    )
    several = step(depths=[0], concurrencies=[4], warmup=2, repeats={"min": 2, "max": 4, "within": "5%"})
    assert several.workload(cell) == (Work(20, 2048, 128, 4), Work(WARM_UP_LENGTHS, 2048, 1))
    assert step(depths=[0], warmup=0).workload(cell) == (Work(3, 2048, 128),)
    assert [*step().longest_requests(cell)] == [("depth 8192", 8192 + 2048 + 128)]


def test_the_depth_sweep_has_the_checkpoints_and_the_k_of_its_source() -> None:
    cells = [planned.cell for planned in plan("depth").cells]
    assert {(cell.model.hub_id, cell.precision.name) for cell in cells} == {
        ("Intel/gemma-4-31B-it-int4-AutoRound", "autoround-int4"),
        ("ebircak/gemma-4-31B-it-4bit-NVFP4A16-GPTQ", "nvfp4"),
    }
    assert [cell.k for cell in cells] == [None, 2, 7, None, 2, 7]
    assert {argument(cell.engine_words, "--kv-cache-dtype") for cell in cells} == {"fp8"}
    assert not any(cell.serving.prefix_cache for cell in cells)


def test_a_depth_step_is_timed_so_a_mirrored_sweep_measures_it_there_and_back() -> None:
    names = [each.name for start in plan("depth").cells[1].starts for each in start.measurements]
    assert names == ["smoke", "depth", "prompts", "depth@2", "prompts@2"]


def test_the_depth_sweep_has_the_workloads_of_its_source_alone_and_four_at_a_time() -> None:
    [found] = [each for each in plan("depth").cells[0].steps if isinstance(each, PromptsStep)]
    assert [each.name for each in found.workloads] == ["qa", "code", "json", "math", "longcode"]
    assert found.concurrencies == (1, 4)


def test_a_repeated_depth_is_an_error_that_names_it(write: Callable[..., str], sweep_text: str) -> None:
    write("name: mine-suite\nsteps:\n  - {step: depth, prompts: prose, depths: [0, 0]}\n", "suites/mine-suite.yaml")
    with pytest.raises(Exception, match="d0"):
        load_sweep(write(sweep_text.replace("tiny-quick", "mine-suite")))


def test_a_prompt_that_does_not_fit_its_cell_is_named_with_its_depth(
    write: Callable[..., str], sweep_text: str
) -> None:
    write("name: mine-suite\nsteps:\n  - {step: depth, prompts: prose, depths: [8192]}\n", "suites/mine-suite.yaml")
    with pytest.raises(Exception, match="depth 8192"):
        expand(load_sweep(write(sweep_text.replace("tiny-quick", "mine-suite"))))
