"""The depth step against a fake engine of known speeds, in virtual time: what is measured, kept, resumed and judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.expand import expand
from configs.load import load_sweep
from configs.schema import PlannedCell
from configs.steps.depth import DepthStep
from configs.steps.smoke import SmokeStep
from configs.steps.throughput import WARM_UP_LENGTHS
from configs.visits import Measurement
from tasks.client import Heard, Ready, RequestFailed, Unanswered
from tasks.context import Progress, StepContext
from tasks.frameworks.process import Frameworks
from tasks.guards.finding import Judgement
from tasks.steps.depth import measure, smoke
from tests.tasks.fake_client import FakeClient
from tests.tasks.virtual_time import Clock, run
from warehouse.ledger import Ledger
from warehouse.parts import decode
from warehouse.steps.depth import DEPTH_REQUESTS, DEPTH_WINDOWS
from warehouse.store import open_store

TOKENS, TOKEN_S, PREFILL_TOKEN_S = 40, 0.05, 0.002
"""So slow that no real delay of this machine matters beside it."""

Prepare = Callable[[FakeClient], None]


@pytest.fixture
def ar() -> PlannedCell:
    return expand(load_sweep("speed-bench-tiny")).cells[0]


@pytest.fixture
def mtp() -> PlannedCell:
    return expand(load_sweep("speed-bench-tiny")).cells[1]


def step(**fields: Any) -> DepthStep:
    shape = {"prompts": "prose", "depths": [0, 300], "pp_tokens": 200, "tg_tokens": TOKENS, "warmup": 0}
    return DepthStep.model_validate({"step": "depth", "repeats": 2, "peak_window_s": 0.5, **shape, **fields})


class Measured:
    """What one attempt at a depth step brought."""

    def __init__(self) -> None:
        self.said: dict[str | None, Judgement] = {}
        self.told: list[Progress] = []
        self.rows: dict[str, list[dict[str, Any]]] = {DEPTH_REQUESTS.name: [], DEPTH_WINDOWS.name: []}
        self.asked = 0

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self.rows[DEPTH_REQUESTS.name]

    @property
    def windows(self) -> list[dict[str, Any]]:
        return self.rows[DEPTH_WINDOWS.name]

    def reasons(self) -> dict[str | None, list[str]]:
        return {name: [found.reason.value for found in each.findings] for name, each in self.said.items()}


def attempt(
    folder: Path,
    planned: PlannedCell,
    spec: DepthStep,
    number: int = 1,
    machine: str = "here",
    prepare: Prepare = lambda client: None,
) -> Measured:
    """One attempt at an engine that reads 500 words and writes 20 tokens per second, in each of eight slots."""
    done = Measured()

    async def whole(clock: Clock) -> Measured:
        ledger = Ledger(open_store(str(folder / "store")), "r1")
        async with FakeClient(planned, clock, [TOKEN_S] * 8) as client, Frameworks(folder) as frameworks:
            client.prefill_token_s = PREFILL_TOKEN_S
            if planned.cell.technique.drafts:
                client.accepted = lambda _: 0.5
            prepare(client)
            ctx = StepContext(
                planned=planned, served=planned.cell, client=client, ledger=ledger, measurement=Measurement(spec),
                attempt=number, tell=done.told.append, frameworks=frameworks,
            )  # fmt: skip
            await ctx.begin({"attempt": number, "machine": machine})
            said = await measure(ctx, spec)
            done.said = {each.condition: each for each in said}
            done.asked = client.asked["stream"]
            for part in await ctx.end():
                if part.table in done.rows:
                    done.rows[part.table] += decode(ledger.store.get(part.key) or b"", part.key)
        return done

    return run(whole)


def changed(hear_instead: Callable[[FakeClient, Ready, Any], Any]) -> Prepare:
    """An engine behind `hear_instead`, which is given the client, the request, and what would have answered it."""

    def prepare(client: FakeClient) -> None:
        hear = client.hear

        async def heard(ready: Ready) -> Heard:
            answer: Heard = await hear_instead(client, ready, hear)
            return answer

        client.hear = heard  # type: ignore[method-assign]

    return prepare


def dies_after(number: int) -> Prepare:
    async def dying(client: FakeClient, ready: Ready, hear: Any) -> Any:
        if client.asked["stream"] >= number:
            raise Unanswered("the engine is gone")
        return await hear(ready)

    return changed(dying)


def test_pp_is_the_whole_prompt_until_the_first_token_and_tg_what_comes_behind_it(
    tmp_path: Path, ar: PlannedCell
) -> None:
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


def test_no_run_waits_for_a_kernel_that_another_length_of_prompt_needs(tmp_path: Path, ar: PlannedCell) -> None:
    """As of throughput's windows; of a depth the prefill is the figure itself."""

    def compiles(client: FakeClient) -> None:
        client.compiles_s = 4.0

    done = attempt(tmp_path, ar, step(warmup=1, repeats=6), prepare=compiles)
    assert {row["prompt_chars"] % 2 for row in done.requests} == {0, 1}, "runs have prompts of both kinds"
    assert max(row["prefill_s"] for row in done.windows) < 2
    assert set(done.said) == {"pp200", "tg40", "pp200 @ d300", "tg40 @ d300"}
    assert {each.verdict for each in done.said.values()} == {"ok"}


def test_a_steady_engine_peaks_at_its_rate_and_a_run_shorter_than_the_window_has_none(
    tmp_path: Path, ar: PlannedCell
) -> None:
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
    assert {name: each.verdict for name, each in done.said.items()} == {"pp200 c=4": "ok", "tg40 c=4": "ok"}


def test_no_prompt_is_sent_twice(tmp_path: Path, ar: PlannedCell) -> None:
    sent: list[str] = []

    async def noting(_: FakeClient, ready: Ready, hear: Any) -> Any:
        sent.append(ready.body["messages"][-1]["content"])
        return await hear(ready)

    attempt(tmp_path, ar, step(warmup=1, concurrencies=[1, 2]), prepare=changed(noting))
    assert len(sent) == len(set(sent)) == 2 * (3 * (1 + 2) + 2 * WARM_UP_LENGTHS)


@pytest.mark.parametrize("cell", ["ar", "mtp"])
def test_a_healthy_engine_is_ok_at_every_depth(tmp_path: Path, cell: str, request: pytest.FixtureRequest) -> None:
    done = attempt(tmp_path, request.getfixturevalue(cell), step())
    assert done.reasons() == {"pp200": [], "tg40": [], "pp200 @ d300": [], "tg40 @ d300": []}
    assert {each.mode for each in done.said.values()} == {"prefill", "decode"}


def test_a_killed_step_goes_on_behind_the_last_finished_depth(tmp_path: Path, ar: PlannedCell) -> None:
    with pytest.raises(Unanswered):
        attempt(tmp_path, ar, step(), prepare=dies_after(3))
    again = attempt(tmp_path, ar, step(), number=2)
    assert again.asked == 2, "the first depth was finished, the second one only begun"
    kept = {(row["condition"], row["repeat"], row["attempt"]) for row in again.windows}
    assert {("pp200+tg40", 0, 1), ("pp200+tg40", 1, 1)} <= kept
    assert {("pp200+tg40 @ d300", 0, 2), ("pp200+tg40 @ d300", 1, 2)} <= kept
    assert again.reasons() == {"pp200": [], "tg40": [], "pp200 @ d300": [], "tg40 @ d300": []}


def test_another_machine_measures_every_depth_itself(tmp_path: Path, ar: PlannedCell) -> None:
    with pytest.raises(Unanswered):
        attempt(tmp_path, ar, step(), prepare=dies_after(3))
    assert attempt(tmp_path, ar, step(), number=2, machine="elsewhere").asked == 4


def test_runs_are_repeated_until_the_pace_is_known(tmp_path: Path, ar: PlannedCell) -> None:
    async def swinging(client: FakeClient, ready: Ready, hear: Any) -> Any:
        client.token_s = [TOKEN_S * (1 + 0.02 * (client.asked["stream"] % 2))] * 8
        return await hear(ready)

    until = step(depths=[0], repeats={"min": 3, "max": 15, "within": "2%"})
    number = len(attempt(tmp_path, ar, until, prepare=changed(swinging)).windows)
    assert 3 < number < 15


def test_a_dead_draft_rejects_both_parts(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        client.accepted = lambda _: 0.0

    reasons = attempt(tmp_path, mtp, step(depths=[0]), prepare=prepare).reasons()
    assert reasons == {"pp200": ["dead_draft"], "tg40": ["dead_draft"]}


def test_a_depth_whose_first_tokens_were_hidden_is_suspect_in_both_rows(tmp_path: Path, ar: PlannedCell) -> None:
    """The prefill is late by three steps, and the decoding lacks their tokens."""

    def prepare(client: FakeClient) -> None:
        client.hidden = 3

    done = attempt(tmp_path, ar, step(depths=[0], repeats=3), prepare=prepare)
    assert {row["first_chunk_tokens"] for row in done.requests} == {4}
    assert done.windows[0]["prefill_s"] == pytest.approx(200 * PREFILL_TOKEN_S + 4 * TOKEN_S)
    assert done.reasons() == {"pp200": ["late_first_token"], "tg40": ["late_first_token"]}


def test_a_request_that_failed_rejects_what_was_measured_beside_it(tmp_path: Path, ar: PlannedCell) -> None:
    sent: list[Ready] = []

    async def failing(_: FakeClient, ready: Ready, hear: Any) -> Any:
        sent.append(ready)
        if len(sent) == 2:
            raise RequestFailed("cut short")
        return await hear(ready)

    done = attempt(tmp_path, ar, step(depths=[0], concurrencies=[2]), prepare=changed(failing))
    assert [row["failed"] for row in done.windows] == [1, 0]
    assert all("request_failed" in reasons for reasons in done.reasons().values())


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (1, "warm-up, request 0: cut short"),
        (2, "warm-up, request 0: cut short"),
        (2 + WARM_UP_LENGTHS, "request 0: cut short"),
    ],
    ids=["warm-up", "lengths", "timed"],
)
def test_the_only_request_of_a_run_or_of_its_warm_up_may_fail(
    tmp_path: Path, ar: PlannedCell, at: int, said: str
) -> None:
    sent: list[Ready] = []

    async def failing(_: FakeClient, ready: Ready, hear: Any) -> Any:
        sent.append(ready)
        if len(sent) == at:
            raise RequestFailed("cut short")
        return await hear(ready)

    done = attempt(tmp_path, ar, step(depths=[0], warmup=1), prepare=changed(failing))
    assert [(row["failed"], row["first_failure"]) for row in done.windows] == [(1, said), (0, None)]
    assert done.reasons() == {"pp200": ["request_failed"], "tg40": ["request_failed"]}


def test_what_an_engine_counts_late_of_a_warm_up_is_in_no_run(tmp_path: Path, ar: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        client.counted_after_s = 0.5

    assert attempt(tmp_path, ar, step(depths=[0], warmup=1), prepare=prepare).reasons() == {"pp200": [], "tg40": []}


def test_a_prompt_from_the_prefix_cache_rejects_both_parts(tmp_path: Path, ar: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        text = client.text

        async def hitting(path: str) -> str:
            hits = f'prefix_cache_hits_total{{engine="0",model_name="m"}} {32 * client.asked["stream"]}\n'
            return (await text(path)).replace('prefix_cache_hits_total{engine="0",model_name="m"} 0\n', hits)

        client.text = hitting  # type: ignore[method-assign]

    reasons = attempt(tmp_path, ar, step(depths=[0]), prepare=prepare).reasons()
    assert reasons == {"pp200": ["prefix_cache_hit"], "tg40": ["prefix_cache_hit"]}


def test_an_engine_that_holds_tokens_back_has_no_first_one_either(tmp_path: Path, ar: PlannedCell) -> None:
    async def holding(client: FakeClient, ready: Ready, hear: Any) -> Any:
        heard = await hear(ready)
        content = b"\n\n".join(heard.content.split(b"\n\n")[-4:])  # one chunk with all tokens, the end, and [DONE]
        at_once = heard.arrivals._replace(pieces_s=[heard.ended_s], sizes=[len(content)])
        return heard._replace(data=content, arrivals=at_once)

    reasons = attempt(tmp_path, ar, step(depths=[0]), prepare=changed(holding)).reasons()
    assert reasons == {"pp200": ["stream_burst"], "tg40": ["stream_burst"]}


def test_a_client_that_slept_is_told_of_and_the_engine_is_not_accused(tmp_path: Path, ar: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        client.naps = {("stream", number): 0.4 for number in range(6)}  # in every try of the first depth's runs

    reasons = attempt(tmp_path, ar, step(depths=[0]), prepare=prepare).reasons()
    assert reasons["tg40"] == ["client_starved"] or reasons["pp200"] == ["client_starved"]
    assert "stream_burst" not in [*reasons["pp200"], *reasons["tg40"]]


def test_a_run_whose_client_slept_is_measured_again_with_another_prompt(tmp_path: Path, ar: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        client.naps = {("stream", 0): 0.4}

    done = attempt(tmp_path, ar, step(depths=[0]), prepare=prepare)
    assert [row["tries"] for row in done.windows] == [2, 1] and done.asked == 3
    assert done.reasons() == {"pp200": [], "tg40": []}


def test_a_smoke_tries_a_few_short_answers(tmp_path: Path, mtp: PlannedCell) -> None:
    async def whole(clock: Clock) -> list[Any]:
        ledger = Ledger(open_store(str(tmp_path / "store")), "r1")
        async with FakeClient(mtp, clock, [0.01]) as client, Frameworks(tmp_path) as frameworks:
            client.accepted, client.prefill_token_s = (lambda _: 0.5), PREFILL_TOKEN_S
            ctx = StepContext(
                planned=mtp, served=mtp.cell, client=client, ledger=ledger, attempt=1, tell=lambda _: None,
                measurement=Measurement(SmokeStep(step="smoke")), frameworks=frameworks,
            )  # fmt: skip
            found = await smoke(ctx, step(), 5)
            assert client.asked["stream"] == 5
            return [each for each in found if each is not None]

    assert run(whole) == []
