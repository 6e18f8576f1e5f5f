"""The depth and prompts steps against a FAKE engine of known speed, in virtual time: what is measured and judged."""

from collections import Counter
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from configs.expand import expand
from configs.load import load_sweep, load_technique
from configs.schema import PlannedCell
from configs.steps.depth import DepthStep
from configs.steps.prompts import PromptsStep
from configs.steps.throughput import WARM_UP_LENGTHS
from tasks.client import Heard, Ready
from tasks.meters import Counters
from tasks.steps.depth import flow, peak_tok_s
from tasks.steps.prompts import judge_workload
from tests.tasks.timed_step import PREFILL_TOKEN_S, TOKEN_S, FakeClient, Hear, attempt, changed, hearing
from warehouse.ledger.verdicts import Reason

TOKENS = 40


def step(**fields: Any) -> DepthStep:
    shape = {"prompts": "prose", "depths": [0, 300], "pp_tokens": 200, "tg_tokens": TOKENS, "warmup": 0}
    return DepthStep.model_validate({"step": "depth", "repeats": 2, "peak_window_s": 0.5, **shape, **fields})


def test_pp_is_the_whole_prompt_until_the_first_token_and_tg_the_rest(tmp_path: Path, ar: PlannedCell) -> None:
    done = attempt(tmp_path, ar, step())
    assert [(row["condition"], row["repeat"]) for row in done.windows] == [
        ("pp200+tg40", 0), ("pp200+tg40", 1), ("pp200+tg40 @ d300", 0), ("pp200+tg40 @ d300", 1),
    ]  # fmt: skip
    for row in done.windows:
        assert row["prompt_tokens"] == pytest.approx(row["context_tokens"], abs=1)
        assert row["prefill_s"] == pytest.approx(row["prompt_tokens"] * PREFILL_TOKEN_S + TOKEN_S)
        assert (row["decode_tokens"], row["decode_s"]) == (TOKENS - 1, pytest.approx((TOKENS - 1) * TOKEN_S))
        assert row["ttft_ms"] == pytest.approx(1000 * row["prefill_s"])
        assert row["tpot_ms"] == pytest.approx(1000 * TOKEN_S)
        assert row["engine_generation_tokens"] == row["completion_tokens"] == TOKENS
        assert row["door_ms"] == 0, "nothing waits at a fake engine's door"
    last = done.told[-1]
    assert last.percent == 100 and last.line.startswith("pp200+tg40 @ d300 run 2 of 2: prefill ")
    assert last.tok_s == pytest.approx(1 / TOKEN_S)


def test_a_steady_engine_peaks_at_its_rate_and_a_short_run_has_no_peak(tmp_path: Path, ar: PlannedCell) -> None:
    assert [row["peak_tok_s"] for row in attempt(tmp_path / "a", ar, step()).windows] == pytest.approx([20] * 4)
    longer = attempt(tmp_path / "b", ar, step(peak_window_s=2.0))
    assert {row["peak_tok_s"] for row in longer.windows} == {None}


def test_several_in_flight_are_one_batch_whose_parts_are_those_of_all(tmp_path: Path, ar: PlannedCell) -> None:
    done = attempt(tmp_path, ar, step(concurrencies=[4], depths=[0]))
    assert [row["requests"] for row in done.windows] == [4, 4] and len(done.requests) == 8
    for row in done.windows:
        assert row["condition"] == "pp200+tg40 c=4"
        assert row["decode_tokens"] == 4 * (TOKENS - 1)
        assert row["decode_s"] == pytest.approx((TOKENS - 1) * TOKEN_S, rel=0.01)
        assert row["peak_tok_s"] == pytest.approx(4 / TOKEN_S, rel=0.01)
    assert done.found == {"pp200 c=4": [], "tg40 c=4": []}


def test_no_prompt_is_sent_twice(tmp_path: Path, ar: PlannedCell) -> None:
    sent: list[str] = []

    async def noting(_: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        sent.append(ready.body["messages"][-1]["content"])
        return await hear(ready)

    attempt(tmp_path, ar, step(warmup=1, concurrencies=[1, 2]), prepare=hearing(noting))
    assert len(sent) == len(set(sent)) == 2 * (3 * (1 + 2) + 2 * WARM_UP_LENGTHS)


def test_runs_are_repeated_until_the_pace_is_known(tmp_path: Path, ar: PlannedCell) -> None:
    async def swinging(client: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        client.token_s = [TOKEN_S * (1 + 0.02 * (number % 2))] * 8
        return await hear(ready)

    until = step(depths=[0], repeats={"min": 3, "max": 15, "within": "2%"})
    number = len(attempt(tmp_path, ar, until, prepare=hearing(swinging)).windows)
    assert 3 < number < 15


def test_a_depth_whose_first_tokens_were_hidden_is_suspect_in_both_rows(tmp_path: Path, ar: PlannedCell) -> None:
    """The prefill is late by three steps, and the decoding lacks their tokens."""
    done = attempt(tmp_path, ar, step(depths=[0], repeats=3), prepare=changed(hidden=3))
    assert {row["first_chunk_tokens"] for row in done.requests} == {4}
    assert done.windows[0]["prefill_s"] == pytest.approx(200 * PREFILL_TOKEN_S + 4 * TOKEN_S)
    assert done.found == {"pp200": ["late_first_token"], "tg40": ["late_first_token"]}


def test_an_engine_that_holds_tokens_back_has_no_first_one_either(tmp_path: Path, ar: PlannedCell) -> None:
    async def holding(client: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        heard = await hear(ready)
        content = b"\n\n".join(heard.content.split(b"\n\n")[-4:])  # one chunk with all tokens, the end, and [DONE]
        at_once = heard.arrivals._replace(pieces_s=[heard.arrivals.ended_s], sizes=[len(content)])
        return heard._replace(data=content, arrivals=at_once)

    reasons = attempt(tmp_path, ar, step(depths=[0]), prepare=hearing(holding)).found
    assert reasons == {"pp200": ["stream_burst"], "tg40": ["stream_burst"]}


def test_a_client_that_slept_is_told_of_and_the_engine_is_not_accused(tmp_path: Path, ar: PlannedCell) -> None:
    asleep = changed(naps={("stream", number): 0.4 for number in range(6)})  # in every try of the first depth's runs
    reasons = attempt(tmp_path, ar, step(depths=[0]), prepare=asleep).found
    assert reasons["tg40"] == ["client_starved"] or reasons["pp200"] == ["client_starved"]
    assert "stream_burst" not in [*reasons["pp200"], *reasons["tg40"]]


STEADY = flow(7.0, [(0.1 + 0.02 * index, 1 + index) for index in range(101)])
SLOW = [(0.1 * index, 1 + index) for index in range(11)]
BURST = flow(0.0, [*SLOW, *((1.0 + 0.01 * index, 11 + index) for index in range(1, 31))])


@pytest.mark.parametrize(
    ("flows", "window_s", "peak"),
    [
        *(([STEADY], window_s, 50) for window_s in (0.5, 1.0, 1.999)),  # wherever the window lies
        ([BURST], 0.3, 100),
        ([BURST], 0.6, (30 + 3) / 0.6),
        ([flow(0.0, [(0.5, 4), (1.5, 12), (2.5, 20)])], 1.0, 8),  # made since the chunk before, and not 16 at once
        ([flow(0.0, [(0.1, 500), (1.1, 510), (2.1, 520)])], 1.0, 10),  # what came with a first chunk is left out
        ([flow(0.0, [(0.0, 1), (2.0, 41)]), flow(1.0, [(0.0, 1), (2.0, 41)])], 1.0, 40),  # they add up on one clock
        ([flow(0.0, [(0.0, 1), (0.9, 91)])], 1.0, None),  # shorter than the window
        ([flow(0.0, [(0.3, 64)])], 1.0, None),
        ([], 1.0, None),
    ],
)
def test_the_fullest_window_of_a_run_is_its_peak(flows: list[Any], window_s: float, peak: float | None) -> None:
    assert peak_tok_s(flows, window_s) == (peak and pytest.approx(peak))


WORKLOADS = [
    {"name": "qa", "language": "English", "prompt": "Why?", "max_tokens": 40},
    {"name": "ko", "language": "Korean", "prompt": "왜?", "max_tokens": 20, "enable_thinking": False},
]
REPEATS = 3


@pytest.fixture
def mtp() -> PlannedCell:
    return expand(load_sweep("prompts-tiny")).cells[1]


def prompts(*concurrencies: int) -> PromptsStep:
    fields = {"step": "prompts", "workloads": WORKLOADS, "concurrencies": concurrencies, "repeats": REPEATS}
    return PromptsStep.model_validate(fields)


def test_every_workload_is_asked_at_every_concurrency_as_often_as_said(tmp_path: Path, mtp: PlannedCell) -> None:
    done = attempt(tmp_path, mtp, prompts(1, 4), (0.1,) * 8)
    shapes = product(("qa", "ko"), (1, 4), range(REPEATS))
    asked = {(f"{name} c={number}", repeat): number for name, number, repeat in shapes}
    assert Counter((row["condition"], row["repeat"]) for row in done.requests) == asked
    window = next(row for row in done.windows if row["condition"] == "qa c=4")
    assert (window["requests"], window["completion_tokens"], window["mode"]) == (4, 160, "natural")
    assert window["wall_s"] == pytest.approx(2.0), "half of 40 tokens at 100 ms, four at a time"
    beside = [row for row in done.requests if (row["condition"], row["repeat"]) == ("qa c=4", window["repeat"])]
    assert window["chars"] == sum(row["chars"] for row in beside)
    assert done.asked["fixed"] == (1 + 4) * 2 * (REPEATS + 1), "each has a round to warm up"
    assert {row["language"] for row in done.windows} == {"English", "Korean"}
    assert (done.told[-1].percent, done.told[-1].line) == (100, "ko c=4 3/3: 80 tok/s")
    assert {row["sent_s"] for row in done.requests} == {0.0}, "they are sent together"
    assert {row["delivered_share"] for row in done.windows} == {1.0}


def test_a_workload_says_whether_the_model_thinks(tmp_path: Path, mtp: PlannedCell) -> None:
    bodies: dict[str, Any] = {}

    async def look(_: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        bodies[ready.body["messages"][-1]["content"]] = ready.body
        return await hear(ready)

    attempt(tmp_path, mtp, prompts(1), prepare=hearing(look))
    asked = {text: body.get("chat_template_kwargs", {}) for text, body in bodies.items()}
    assert asked["왜?"]["enable_thinking"] is False
    assert asked["Why?"] == mtp.cell.model.chat_template_kwargs
    answers = [body for body in bodies.values() if body["max_tokens"] > 1]  # others are asked twice, for a cache's sake
    assert len(answers) == 2 and all(body["temperature"] == 0 and "ignore_eos" not in body for body in answers)


def test_repeats_that_disagree_are_suspect(tmp_path: Path, mtp: PlannedCell) -> None:
    uneven = changed(pace=lambda number: 2.0 if number == 2 else 1.0)
    done = attempt(tmp_path, mtp, prompts(1), prepare=uneven)
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
