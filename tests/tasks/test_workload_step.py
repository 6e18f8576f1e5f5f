"""The prompts step against a fake engine of known speed, in virtual time: what is measured, kept and judged."""

from collections import Counter
from functools import partial
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from configs.expand import expand
from configs.load import load_sweep, load_technique
from configs.schema import PlannedCell
from configs.steps.prompts import PromptsStep
from tasks.client import Heard, Ready
from tasks.meters import Counters
from tasks.steps.prompts import judge_workload
from tests.tasks import timed_step
from tests.tasks.fake_client import FakeClient
from tests.tasks.timed_step import Hear, changed, hearing
from warehouse.ledger.verdicts import Reason

WORKLOADS = [
    {"name": "qa", "language": "English", "prompt": "Why?", "max_tokens": 40},
    {"name": "ko", "language": "Korean", "prompt": "왜?", "max_tokens": 20, "enable_thinking": False},
]
REPEATS = 3

attempt = partial(timed_step.attempt, token_s=(0.01,) * 8)


@pytest.fixture
def mtp() -> PlannedCell:
    return expand(load_sweep("prompts-tiny")).cells[1]


def step(*concurrencies: int, **fields: Any) -> PromptsStep:
    fields = {"step": "prompts", "workloads": WORKLOADS, "concurrencies": concurrencies, "repeats": REPEATS} | fields
    return PromptsStep.model_validate(fields)


def test_every_workload_is_asked_at_every_concurrency_as_often_as_said(tmp_path: Path, mtp: PlannedCell) -> None:
    done = attempt(tmp_path, mtp, step(1, 4))
    shapes = product(("qa", "ko"), (1, 4), range(REPEATS))
    asked = {(f"{name} c={number}", repeat): number for name, number, repeat in shapes}
    assert Counter((row["condition"], row["repeat"]) for row in done.requests) == asked
    window = next(row for row in done.windows if row["condition"] == "qa c=4")
    assert (window["requests"], window["completion_tokens"], window["mode"]) == (4, 160, "natural")
    assert window["wall_s"] == pytest.approx(0.2), "half of 40 tokens at 10 ms, four at a time"
    beside = [row for row in done.requests if (row["condition"], row["repeat"]) == ("qa c=4", window["repeat"])]
    assert window["chars"] == sum(row["chars"] for row in beside)
    assert done.asked["fixed"] == (1 + 4) * 2 * (REPEATS + 1), "each has a round to warm up"
    assert {row["language"] for row in done.windows} == {"English", "Korean"}
    assert (done.told[-1].percent, done.told[-1].line) == (100, "ko c=4 3/3: 800 tok/s")
    assert {row["sent_s"] for row in done.requests} == {0.0}, "they are sent together"
    assert {row["delivered_share"] for row in done.windows} == {1.0}


def test_a_workload_says_whether_the_model_thinks(tmp_path: Path, mtp: PlannedCell) -> None:
    bodies: dict[str, Any] = {}

    async def look(_: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        bodies[ready.body["messages"][-1]["content"]] = ready.body
        return await hear(ready)

    attempt(tmp_path, mtp, step(1), prepare=hearing(look))
    asked = {text: body.get("chat_template_kwargs", {}) for text, body in bodies.items()}
    assert asked["왜?"]["enable_thinking"] is False
    assert asked["Why?"] == mtp.cell.model.chat_template_kwargs
    answers = [body for body in bodies.values() if body["max_tokens"] > 1]  # others are asked twice, for a cache's sake
    assert len(answers) == 2 and all(body["temperature"] == 0 and "ignore_eos" not in body for body in answers)


def test_repeats_that_disagree_are_suspect(tmp_path: Path, mtp: PlannedCell) -> None:
    uneven = changed(pace=lambda number: 2.0 if number == 2 else 1.0)
    done = attempt(tmp_path, mtp, step(1), prepare=uneven)
    assert done.reasons("qa c=1") == ["unsteady"] and done.reasons("ko c=1") == []


def window_of_canvases(tokens: int, slower: float) -> dict[str, Any]:
    """A window of one answer, of canvases of 256 tokens in 16 steps of 25 ms times `slower`."""
    canvases = ceil(tokens / 256)
    counted = Counters(**dict.fromkeys(Counters._fields))._replace(denoising_steps=16 * canvases)
    shape = {"mode": "natural", "concurrency": 1, "requests": 1, "failed": 0, "completion_tokens": tokens}
    return {**shape, "wall_s": 0.4 * canvases * slower, **counted.columns()}


@pytest.mark.parametrize(("slower", "said"), [((1.0, 1.0, 1.0), False), ((1.0, 1.0, 2.0), True)])
def test_canvases_are_steady_by_their_steps(mtp: PlannedCell, slower: tuple[float, ...], said: bool) -> None:
    served = mtp.cell.model_copy(update={"technique": load_technique("diffusion"), "k": None})
    windows = [window_of_canvases(*each) for each in zip((250, 262, 300), slower, strict=True)]
    judged = judge_workload(served, mtp.gpu, "qa c=1", windows, [])
    assert (Reason.UNSTEADY in [each.reason for each in judged.findings]) == said
