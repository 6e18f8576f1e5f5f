"""Throughput whose answers end by themselves, beside the fixed length: rows of their own, and no mix-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from configs.expand import expand
from configs.load import load_sweep
from configs.schema import PlannedCell
from configs.step import Work
from configs.steps.throughput import Condition, ThroughputStep
from tests.tasks.fake_client import FakeClient
from tests.tasks.timed_step import attempt

TOKENS, SHORT = 64, 24


@pytest.fixture(scope="module")
def planned() -> PlannedCell:
    return expand(load_sweep("tiny-quick")).cells[0]


def step(**more: Any) -> ThroughputStep:
    shape = {"name": "c", "context_tokens": 64, "output_tokens": TOKENS, "repeats": 2, "natural": True, **more}
    return ThroughputStep(step="throughput", prompts="prose", conditions=(Condition.model_validate(shape),))


def ends_early(client: FakeClient) -> None:
    client.ends_after = SHORT


def test_natural_windows_stand_beside_the_fixed_ones_with_prompts_of_their_own(
    tmp_path: Path, planned: PlannedCell
) -> None:
    done = attempt(tmp_path, planned, step(), [0.01], ends_early)
    assert [(row["mode"], row["repeat"]) for row in done.windows] == [
        ("fixed", 0), ("fixed", 1), ("natural", 0), ("natural", 1), ("stream", 0),
    ]  # fmt: skip
    lengths = {mode: {row["completion_tokens"] for row in done.requests if row["mode"] == mode}
               for mode in ("fixed", "natural", "stream")}  # fmt: skip
    assert lengths == {"fixed": {TOKENS}, "natural": {SHORT}, "stream": {TOKENS}}
    assert {row["finish_reason"] for row in done.requests if row["mode"] == "natural"} == {"stop"}
    texts = [row["text"] for row in done.requests]
    assert len(set(texts)) == len(texts), "no prompt is sent twice"
    assert {each.mode: each.findings for each in done.said} == dict.fromkeys(("fixed", "natural", "stream"), ())
    assert done.told[-1].percent == 100


def test_a_natural_answer_may_be_short_and_a_fixed_one_may_not(tmp_path: Path, planned: PlannedCell) -> None:
    def short_of_both(client: FakeClient) -> None:
        client._length = lambda body: (SHORT, "length")  # type: ignore[method-assign]

    done = attempt(tmp_path, planned, step(stream_requests=0), [0.01], short_of_both)
    assert done.reasons("c", "fixed") == ["short_output"] and done.reasons("c", "natural") == []


def test_answers_that_end_by_themselves_do_not_judge_a_machine(tmp_path: Path, planned: PlannedCell) -> None:
    """They differ in length, and each has its prefill in its time."""

    def of_two_paces(client: FakeClient) -> None:
        client.pace = lambda number: 2.0 if number == 3 else 1.0

    done = attempt(tmp_path, planned, step(stream_requests=0, warmup=0), [0.05], of_two_paces)
    rates = [row["completion_tokens"] / row["wall_s"] for row in done.windows if row["mode"] == "natural"]
    assert max(rates) > 1.9 * min(rates)
    assert done.reasons("c", "fixed") == done.reasons("c", "natural") == []


def test_answers_that_reach_the_cap_are_told_from_those_that_end(tmp_path: Path, planned: PlannedCell) -> None:
    done = attempt(tmp_path, planned, step(stream_requests=0), [0.01])
    assert {row["finish_reason"] for row in done.requests if row["mode"] == "natural"} == {"length"}


def test_the_forecast_counts_both_and_a_plan_without_is_written_as_before(planned: PlannedCell) -> None:
    natural, fixed = (step(natural=flag, stream_requests=0, warmup=0) for flag in (True, False))
    assert fixed.workload(planned.cell) == (Work(2, 64, TOKENS),)
    assert natural.workload(planned.cell) == (Work(2, 64, TOKENS),) * 2
    assert "natural" not in fixed.model_dump(mode="json")["conditions"][0]
    assert natural.model_dump(mode="json")["conditions"][0]["natural"] is True
