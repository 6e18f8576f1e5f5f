"""What planning knows of a load step: its requests, its room, its price, and settings that contradict one another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.expand import expand
from configs.load import load_sweep
from configs.step import Work
from configs.steps.load import LoadStep, Offered, category_of, whole_of, with_category
from configs.steps.throughput import WARM_UP_LENGTHS
from flows.forecast.estimates import load_s


def step(**fields: Any) -> LoadStep:
    return LoadStep.model_validate({"step": "load", **fields})


def test_every_prompt_is_priced_at_every_concurrency_with_its_warm_up() -> None:
    cell = expand(load_sweep("speed-bench")).cells[0].cell
    lengths, *loads = step().workload(cell)
    assert lengths == Work(WARM_UP_LENGTHS, 600, 1), "once an engine's start"
    assert WARM_UP_LENGTHS not in [each.requests for each in step(warmup=0).workload(cell)]
    assert [(load.requests, load.concurrency) for load in loads] == [
        (881, 1), (882, 2), (884, 4), (888, 8), (896, 16),
    ]  # fmt: skip
    assert loads[0] == Work(881, 600, 1000, 1, 4096)
    assert step(dataset="ours", requests_per_category=2, concurrencies=[1], answer_tokens=50).workload(cell) == (
        Work(WARM_UP_LENGTHS, 90, 1),
        Work(23, 90, 50, 1, 4096),
    )
    assert list(step(max_tokens=100).longest_requests(cell)) == [("step 'load'", 8292)]


def test_a_timed_step_is_measured_in_every_visit() -> None:
    names = [each.name for start in expand(load_sweep("speed-bench-tiny")).cells[1].starts
             for each in start.measurements]  # fmt: skip
    assert names == ["smoke", "memory", "load", "memory@2", "load@2"]


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
    [(_, problem)] = step(**fields).problems()
    assert said in problem


def test_a_file_counts_its_own_prompts(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"category": "a", "turns": ["x"]}\n' * 9, encoding="utf-8")
    assert step(dataset=str(path), concurrencies=[1, 2]).requests == 9
    assert list(step(dataset=str(path), concurrencies=[1, 2]).problems()) == []
    assert list(step(dataset=str(path), concurrencies=[4]).problems()) != []


def test_a_repeated_concurrency_is_an_error_with_its_line(write: Callable[..., str], sweep_text: str) -> None:
    steps = "name: mine-suite\nsteps:\n  - {step: load, dataset: twin, concurrencies: [1, 1], max_tokens: 64}\n"
    write(steps, "suites/mine-suite.yaml")
    with pytest.raises(Exception, match="load c=1"):
        load_sweep(write(sweep_text.replace("tiny-quick", "mine-suite")))


def test_a_condition_says_its_load_and_its_category() -> None:
    assert Offered(concurrency=4).name == "load c=4" and category_of("load c=4") is None
    assert Offered(rate_s=0.5, arrival="poisson").name == "load 0.5/s"
    assert Offered(rate_s=2, arrival="constant").name == "load 2/s constant"
    coding = with_category("load 2/s", "coding")
    assert category_of(coding) == "coding" and whole_of(coding) == whole_of("load 2/s") == "load 2/s"


def test_beside_rates_only_the_concurrencies_that_are_named_are_measured() -> None:
    assert [load.name for load in step(rates=[1, 2.5]).loads] == ["load 1/s", "load 2.5/s"]
    both = step(rates=[4], concurrencies=[1, 2], arrival="constant")
    assert [load.name for load in both.loads] == ["load c=1", "load c=2", "load 4/s constant"]
    assert [where for where, _ in both.named()] == [("concurrencies", 0), ("concurrencies", 1), ("rates", 0)]
    again = LoadStep.model_validate(both.model_dump(mode="json"))
    assert again == both and LoadStep.model_validate(step(rates=[1]).model_dump(mode="json")) == step(rates=[1])


def test_a_step_without_rates_is_written_as_before_there_were_any() -> None:
    written = step(limits={"ttft_ms": 5}).model_dump(mode="json")
    assert not {"rates", "arrival"} & written.keys()
    assert written["limits"] == {"ttft_ms": 5, "tpot_ms": None}
    assert step(rates=[1]).model_dump(mode="json")["rates"] == [1.0]


def test_a_schedule_takes_as_long_as_it_says_and_longer_where_the_engine_does() -> None:
    planned = expand(load_sweep("speed-bench-tiny")).cells[0]
    [_, slow] = step(dataset="twin", rates=[0.01], max_tokens=96).workload(planned.cell)
    assert slow == Work(89, 200, 80, 88, 96, 0.01)
    [_, fast] = step(dataset="twin", rates=[1e6], max_tokens=96).workload(planned.cell)
    assert 8900 < load_s(planned.cell, planned.gpu, slow) < 9000
    assert load_s(planned.cell, planned.gpu, fast) == load_s(planned.cell, planned.gpu, fast._replace(rate_s=None))
