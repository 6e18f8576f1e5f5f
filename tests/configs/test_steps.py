"""What planning knows of steps: their rows' names, their requests, their room and price, and what contradicts."""

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from configs.cell import Cell, argument
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Plan
from configs.step import Work
from configs.steps.depth import DepthStep
from configs.steps.load import LoadStep, Offered, category_of, whole_of, with_category
from configs.steps.memory import MemoryStep
from configs.steps.needle import NeedleStep, condition_name
from configs.steps.throughput import WARM_UP_LENGTHS
from flows.forecast.estimates import load_s
from flows.forecast.forecast import forecast
from tests.configs.conftest import Write
from tests.warehouse.runs import served


def depth(**fields: Any) -> DepthStep:
    return DepthStep.model_validate({"step": "depth", "prompts": "prose", **fields})


def plan(name: str) -> Plan:
    return expand(load_sweep(name))


@pytest.mark.parametrize(
    ("sweep", "measured"),
    [
        ("depth", "smoke depth prompts depth@2 prompts@2"),
        ("speed-bench-tiny", "smoke memory load memory@2 load@2"),
        ("prompts-tiny", "smoke prompts prompts@2"),
    ],
)
def test_a_step_that_is_timed_is_measured_in_every_start(sweep: str, measured: str) -> None:
    starts = plan(sweep).cells[1].starts
    assert [each.name for start in starts for each in start.measurements] == measured.split()


def test_rows_are_named_as_llama_benchy_names_them_and_priced_with_their_warm_up() -> None:
    shapes = [*depth(depths=[0, 4096], concurrencies=[1, 4]).shapes()]
    assert [each.prefill_name for each in shapes] == ["pp2048", "pp2048 @ d4096", "pp2048 c=4", "pp2048 @ d4096 c=4"]
    assert [each.decode_name for each in shapes[:2]] == ["tg128", "tg128 @ d4096"]
    assert shapes[1].context_tokens == 4096 + 2048
    cell = plan("depth").cells[0].cell
    priced = [(Work(4, tokens, 128), Work(WARM_UP_LENGTHS, tokens, 1)) for tokens in (2048, 6144, 10240)]
    assert depth().workload(cell) == tuple(chain(*priced))
    several = depth(depths=[0], concurrencies=[4], warmup=2, repeats={"min": 2, "max": 4, "within": "5%"})
    assert several.workload(cell) == (Work(20, 2048, 128, 4), Work(WARM_UP_LENGTHS, 2048, 1))
    assert depth(depths=[0], warmup=0).workload(cell) == (Work(3, 2048, 128),)
    assert [*depth().longest_requests(cell)] == [("depth 8192", 8192 + 2048 + 128)]


def test_the_depth_sweep_has_the_checkpoints_and_the_k_of_its_source() -> None:
    cells = [planned.cell for planned in plan("depth").cells]
    assert {(cell.model.hub_id, cell.precision.name) for cell in cells} == {
        ("Intel/gemma-4-31B-it-int4-AutoRound", "autoround-int4"),
        ("ebircak/gemma-4-31B-it-4bit-NVFP4A16-GPTQ", "nvfp4"),
    }
    assert [cell.k for cell in cells] == [None, 2, 7, None, 2, 7]
    assert {argument(cell.engine_words, "kv_cache_dtype") for cell in cells} == {"fp8"}
    assert not any(cell.serving.prefix_cache for cell in cells)


def load(**fields: Any) -> LoadStep:
    return LoadStep.model_validate({"step": "load", **fields})


def test_every_prompt_is_priced_at_every_concurrency_with_its_warm_up() -> None:
    cell = plan("speed-bench").cells[0].cell
    lengths, *loads = load().workload(cell)
    assert lengths == Work(WARM_UP_LENGTHS, 600, 1), "once an engine's start"
    assert WARM_UP_LENGTHS not in [each.requests for each in load(warmup=0).workload(cell)]
    asked = [(load.requests, load.concurrency) for load in loads]
    assert asked == [(881, 1), (882, 2), (884, 4), (888, 8), (896, 16)]
    assert loads[0] == Work(881, 600, 1000, 1, 4096)
    few = load(dataset="ours", requests_per_category=2, concurrencies=[1], answer_tokens=50)
    assert few.workload(cell) == (Work(WARM_UP_LENGTHS, 90, 1), Work(23, 90, 50, 1, 4096))
    assert list(load(max_tokens=100).longest_requests(cell)) == [("step 'load'", 8292)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dataset": "ours", "concurrencies": [1, 17]}, "66 requests have no steady state of 17 at a time"),
        ({"limits": {}}, "limits nothing; accepted: ttft_ms, tpot_ms, e2e_s or several"),
        ({"concurrencies": []}, "no load at all"),
        ({"dataset": "twins"}, "'twins' is no dataset"),
        ({"dataset": "gone.jsonl"}, "no file"),
    ],
)  # fmt: skip
def test_settings_that_contradict_are_named(fields: dict[str, Any], said: str) -> None:
    [(_, problem)] = load(**fields).problems()
    assert said in problem


def test_a_file_counts_its_own_prompts(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [f'{{"category": "a", "turns": ["x{number}"]}}\n' for number in range(9)]
    path.write_text("".join(rows * 2), encoding="utf-8")
    assert load(dataset=str(path), concurrencies=[1, 2]).requests == 9, "the same prompt is asked once"
    assert load(dataset=str(path), requests_per_category=4).requests == 4
    assert list(load(dataset=str(path), concurrencies=[1, 2]).problems()) == []
    assert list(load(dataset=str(path), concurrencies=[4]).problems()) != []


def test_a_file_needs_the_room_of_its_own_prompts(
    write: Write, refused: Write, sweep_text: str, tmp_path: Path
) -> None:
    """Three ASCII characters a token at the most, and one of any other script: with a template and the answer."""
    path = tmp_path / "mine.jsonl"
    prompts = ["What is the capital of France?"] * 20 + ["ㄱ" * 100, "How do I mend a chair? " * 30]
    rows = [f'{{"category": "a", "prompt": "{number} {text}"}}\n' for number, text in enumerate(prompts)]
    path.write_text("".join(rows), encoding="utf-8")
    write(
        f"name: own\nsteps: [{{step: load, dataset: {path}, concurrencies: [1], max_tokens: 64}}]\n", "suites/own.yaml"
    )
    text = sweep_text.replace("suite: tiny-quick", "suite: own")
    assert load_sweep(write(text.replace("2048", "512"))).suite == "own"
    assert "256 is too short for step 'load' of suite 'own'; accepted: 359 or more" in refused(
        text.replace("2048", "256")
    )
    usual = load(dataset=str(path), concurrencies=[1], max_tokens=64).workload(with_room(512))[-1].prompt_tokens
    assert 64 < usual < 128, "the forecast is of these prompts, too"


def test_a_condition_says_its_load_its_category_or_its_length_and_depth() -> None:
    assert Offered(concurrency=4).name == "load c=4" and category_of("load c=4") is None
    assert Offered(rate_s=0.5, arrival="poisson").name == "load 0.5/s"
    assert Offered(rate_s=2, arrival="constant").name == "load 2/s constant"
    coding = with_category("load 2/s", "coding")
    assert category_of(coding) == "coding" and whole_of(coding) == whole_of("load 2/s") == "load 2/s"
    assert condition_name(32768, 90) == "32k 90 %"
    assert condition_name(8000, 10) == "8000 10 %"


def test_beside_rates_only_named_concurrencies_are_measured_and_without_any_they_are_not_written() -> None:
    assert [load.name for load in load(rates=[1, 2.5]).loads] == ["load 1/s", "load 2.5/s"]
    both = load(rates=[4], concurrencies=[1, 2], arrival="constant")
    assert [load.name for load in both.loads] == ["load c=1", "load c=2", "load 4/s constant"]
    assert [where for where, _ in both.named()] == [("concurrencies", 0), ("concurrencies", 1), ("rates", 0)]
    again = LoadStep.model_validate(both.model_dump(mode="json"))
    assert again == both and LoadStep.model_validate(load(rates=[1]).model_dump(mode="json")) == load(rates=[1])
    written = load(limits={"ttft_ms": 5}).model_dump(mode="json")
    assert not {"rates", "arrival"} & written.keys()
    assert written["limits"] == {"ttft_ms": 5, "tpot_ms": None}
    assert load(rates=[1]).model_dump(mode="json")["rates"] == [1.0]


def test_a_schedule_takes_as_long_as_it_says_and_longer_where_the_engine_does() -> None:
    planned = plan("speed-bench-tiny").cells[0]
    [_, slow] = load(dataset="twin", rates=[0.01], max_tokens=96).workload(planned.cell)
    assert slow == Work(89, 200, 80, 88, 96, 0.01)
    [_, fast] = load(dataset="twin", rates=[1e6], max_tokens=96).workload(planned.cell)
    assert 8900 < load_s(planned.cell, planned.gpu, slow) < 9000
    assert load_s(planned.cell, planned.gpu, fast) == load_s(planned.cell, planned.gpu, fast._replace(rate_s=None))


def memory(**fields: Any) -> MemoryStep:
    return MemoryStep.model_validate({"step": "memory", **fields})


def test_a_memory_step_fills_the_context_with_one_request_if_there_is_room() -> None:
    cell = plan("speed-bench").cells[0].cell
    assert memory().workload(cell) == (Work(1, 12288 - 16, 16),)
    assert memory(output_tokens=100).context_tokens(cell) == 12288 - 100
    cell = plan("speed-bench-tiny").cells[0].cell
    short = with_room(100, "speed-bench-tiny")
    assert memory(output_tokens=64).why_not(cell) is None
    assert "max_model_len 100 has no room" in str(memory(output_tokens=64).why_not(short))


@pytest.mark.parametrize(("name", "cells"), [("speed-bench", 6), ("speed-bench-tiny", 2)])
def test_the_speed_suites_plan_it_without_a_start_of_its_own(name: str, cells: int) -> None:
    planned = plan(name)
    with_memory = [[each.name for each in start.measurements] for start in planned.cells[1].starts]
    assert all(any(each.startswith("memory") for each in names) for names in with_memory)
    assert all(any(each.startswith("load") for each in names) for names in with_memory), "each start times something"
    costs = [each.seconds for cell in forecast(planned, {}).cells for each in cell.steps if each.step == "memory"]
    assert len(costs) >= cells and all(0 < seconds < 30 for seconds in costs), "a start each, and seconds of it"


def needle(**fields: Any) -> NeedleStep:
    return NeedleStep.model_validate({"step": "needle", **fields})


def with_room(tokens: int, sweep: str = "demo") -> Cell:
    return served(plan(sweep).cells[0], tokens).cell


def test_needles_lie_in_lengths_that_double_up_to_the_longest_that_fits_at_every_depth_and_seed() -> None:
    assert needle().lengths(with_room(40960)) == (4096, 8192, 16384, 32768, 36864)
    assert needle().lengths(with_room(16384)) == (4096, 8192, 12288)
    assert needle(max_tokens=1000).lengths(with_room(6000)) == (4096,)
    assert needle(max_tokens=900).lengths(with_room(6500)) == (4096, 5120)
    asked = needle(context_tokens=[16384, 4096, 241000])
    assert asked.lengths(with_room(40960)) == (4096, 16384)
    assert asked.why_not(with_room(40960)) is None
    said = "max_model_len 6000 has no room for a text of 4096 tokens and an answer of 4096"
    assert asked.why_not(with_room(6000)) == said
    assert needle().why_not(with_room(2048)) is not None
    assert list(needle().longest_requests(with_room(2048))) == []
    asked = needle(context_tokens=[4096, 8192], seeds=5, answer_tokens=300)
    assert asked.workload(with_room(40960)) == (Work(15, 4096, 300, 4), Work(15, 8192, 300, 4))
    assert list(asked.longest_requests(with_room(40960))) == [("step 'needle'", 12288)]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("depth, prompts: prose, depths: [0, 0]", "'d0' is already on line"),
        ("depth, prompts: prose, depths: [8192]", "depth 8192"),
        ("load, dataset: twin, concurrencies: [1, 1], max_tokens: 64", "'load c=1' is already on line"),
        ("needle, seeds: 2", "seeds"),
        ("needle, depths_percent: [10, 110]", "depths_percent"),
        ("needle, depths_percent: [10, 10]", "'10 %' is already on line"),
        ("needle, context_tokens: [4096, 4096]", "'4k' is already on line"),
        ("needle, context_tokens: [100]", "context_tokens"),
        ("needle, items: 3", "items"),
    ],
)
def test_a_step_that_can_not_be_measured_is_named(refused: Write, sweep_text: str, step: str, said: str) -> None:
    message = refused(sweep_text, {"suites/tiny-quick.yaml": f"name: tiny-quick\nsteps:\n  - {{step: {step}}}\n"})
    assert said in message
    assert ("tiny-quick.yaml:3" in message) is (said != "depth 8192"), "its line, or that of the serving"
