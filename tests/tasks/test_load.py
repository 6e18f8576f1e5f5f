"""The load step against a fake engine of known speed, in virtual time: what is measured, kept, resumed and judged."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.cell import Cell
from configs.expand import expand
from configs.load import load_engine, load_gpu, load_model, load_precision, load_sweep, load_technique
from configs.schema import PlannedCell
from configs.steps.load import LoadStep, Offered
from configs.steps.smoke import SmokeStep
from configs.steps.throughput import WARM_UP_LENGTHS
from configs.visits import Measurement
from tasks.client import Heard, Ready, RequestFailed, Unanswered
from tasks.context import Progress, StepContext
from tasks.frameworks.process import Frameworks
from tasks.guards.finding import Judgement
from tasks.prompts import Prompt
from tasks.steps.load import measure, smoke, suite_of
from tasks.timing.load_verdict import judge_load
from tasks.timing.workload_verdict import judge_workload
from tests.tasks.fake_client import FakeClient
from tests.tasks.virtual_time import Clock, run
from warehouse.ledger import Ledger
from warehouse.loads.requests import loops
from warehouse.parts import decode
from warehouse.steps.load import LOAD_REQUESTS, LOAD_WINDOWS
from warehouse.store import open_store

PROMPTS, CATEGORIES, TOKENS = 88, 11, 20
"""Of the twin."""


@pytest.fixture
def mtp() -> PlannedCell:
    return expand(load_sweep("speed-bench-tiny")).cells[1]


def step(*concurrencies: int) -> LoadStep:
    fields = {"step": "load", "dataset": "twin", "concurrencies": concurrencies, "max_tokens": TOKENS}
    return LoadStep.model_validate(fields)


class Loaded:
    """What one attempt at a load step brought."""

    def __init__(self) -> None:
        self.said: list[Judgement] = []
        self.told: list[Progress] = []
        self.rows: dict[str, list[dict[str, Any]]] = {LOAD_REQUESTS.name: [], LOAD_WINDOWS.name: []}
        self.asked = 0

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self.rows[LOAD_REQUESTS.name]

    @property
    def windows(self) -> list[dict[str, Any]]:
        return self.rows[LOAD_WINDOWS.name]


def attempt(
    folder: Path,
    planned: PlannedCell,
    spec: LoadStep,
    number: int = 1,
    machine: str = "here",
    prepare: Callable[[FakeClient], None] = lambda client: None,
) -> Loaded:
    """One attempt with slots of 10 ms a token; what fails in it leaves its rows in the store."""
    done = Loaded()

    async def whole(clock: Clock) -> Loaded:
        ledger = Ledger(open_store(str(folder / "store")), "r1")
        async with FakeClient(planned, clock, [0.01] * 8) as client, Frameworks(folder) as frameworks:
            client.accepted = lambda _: 0.5
            prepare(client)
            ctx = StepContext(
                planned=planned, served=planned.cell, client=client, ledger=ledger, measurement=Measurement(spec),
                attempt=number, tell=done.told.append, frameworks=frameworks,
            )  # fmt: skip
            await ctx.begin({"attempt": number, "machine": machine})
            done.said = await measure(ctx, spec)
            done.asked = client.asked["stream"]
            for part in await ctx.end():
                if part.table in done.rows:
                    done.rows[part.table] += decode(ledger.store.get(part.key) or b"", part.key)
        return done

    return run(whole)


def dies_after(number: int) -> Callable[[FakeClient], None]:
    def prepare(client: FakeClient) -> None:
        hear = client.hear

        async def failing(ready: Ready) -> Heard:
            if client.asked["stream"] >= number:
                raise Unanswered("the engine is gone")
            return await hear(ready)

        client.hear = failing  # type: ignore[method-assign]

    return prepare


def test_what_an_engine_counts_late_of_a_warm_up_is_in_no_window(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        client.counted_after_s = 0.5

    assert {each.verdict for each in attempt(tmp_path, mtp, step(1, 4), prepare=prepare).said} == {"ok"}


def test_every_prompt_is_asked_at_every_concurrency_and_has_a_row(tmp_path: Path, mtp: PlannedCell) -> None:
    done = attempt(tmp_path, mtp, step(1, 4))
    assert [sum(row["concurrency"] == c for row in done.requests) for c in (1, 4)] == [PROMPTS, PROMPTS]
    first = next(row for row in done.requests if row["concurrency"] == 1)
    assert (first["condition"], first["mode"], first["completion_tokens"]) == ("load c=1", "natural", TOKENS)
    assert first["ttft_ms"] == pytest.approx(5) and first["tpot_ms"] == first["chunk_ms"] == pytest.approx(5)
    assert first["wall_s"] == pytest.approx(0.1)
    assert {row["repeat"] for row in done.requests} == {0, 1, 2, 3}
    last = done.told[-1]
    assert (last.percent, last.line) == (100, "load c=4: 88/88 answered, 800 tok/s")


def test_one_at_a_time_each_category_is_counted_by_itself_and_several_in_flight_are_mixed(
    tmp_path: Path, mtp: PlannedCell
) -> None:
    windows = attempt(tmp_path, mtp, step(1, 4)).windows
    alone = [row for row in windows if row["concurrency"] == 1]
    assert len(alone) == len({row["category"] for row in alone}) == CATEGORIES
    assert {row["requests"] for row in alone} == {PROMPTS // CATEGORIES}
    [mixed] = [row for row in windows if row["concurrency"] == 4]
    assert (mixed["category"], mixed["requests"], mixed["completion_tokens"]) == (None, PROMPTS, PROMPTS * TOKENS)
    assert all(row["engine_generation_tokens"] == row["completion_tokens"] for row in windows)


def test_a_killed_step_goes_on_behind_the_last_finished_load(tmp_path: Path, mtp: PlannedCell) -> None:
    with pytest.raises(Unanswered):
        attempt(tmp_path, mtp, step(1, 4), prepare=dies_after(PROMPTS + 30))
    again = attempt(tmp_path, mtp, step(1, 4), number=2)
    asked = Counter((row["concurrency"], row["attempt"]) for row in again.requests)
    assert asked == {(1, 1): PROMPTS, (4, 2): PROMPTS}
    assert again.asked == PROMPTS + 4, "what is left, and a warm-up per slot"


def test_a_load_that_a_killed_start_began_is_timed_in_one_start(tmp_path: Path, mtp: PlannedCell) -> None:
    """Starts differ: tokens at 100 and at 200 a second would be one figure of about 130."""

    def faster(client: FakeClient) -> None:
        client.token_s = [0.005] * 8
        dies_after(45)(client)

    with pytest.raises(Unanswered):
        attempt(tmp_path, mtp, step(1), prepare=faster)
    again = attempt(tmp_path, mtp, step(1), number=2)
    timed = loops(again.requests)
    assert all(row["wall_s"] == pytest.approx(0.1) for rows in timed for row in rows)
    assert sum(map(len, timed)) == PROMPTS
    assert {each.verdict for each in again.said} == {"ok"}
    assert sum(row["attempt"] == 1 for row in again.requests) == 40, "five categories were finished, and can be read"


def test_another_machine_measures_everything_itself(tmp_path: Path, mtp: PlannedCell) -> None:
    with pytest.raises(Unanswered):
        attempt(tmp_path, mtp, step(1), prepare=dies_after(30))
    again = attempt(tmp_path, mtp, step(1), number=2, machine="elsewhere")
    assert sum(row["attempt"] == 2 for row in again.requests) == PROMPTS


def test_a_window_that_was_lost_is_measured_again_whole(tmp_path: Path, mtp: PlannedCell) -> None:
    with pytest.raises(Unanswered):
        attempt(tmp_path, mtp, step(4), prepare=dies_after(60))
    again = attempt(tmp_path, mtp, step(4), number=2)
    assert [(row["attempt"], row["requests"]) for row in again.windows] == [(2, PROMPTS)]
    assert [row["attempt"] for row in again.requests] == [2] * PROMPTS


def test_answers_whose_window_was_never_stored_are_asked_for_again(tmp_path: Path, mtp: PlannedCell) -> None:
    attempt(tmp_path, mtp, step(4))
    [window] = (tmp_path / "store").rglob("load_windows-*.parquet")
    window.unlink()
    again = attempt(tmp_path, mtp, step(4), number=2)
    assert [row["attempt"] for row in again.requests] == [2] * PROMPTS


def test_inside_a_window_nothing_happens_but_on_the_wire(tmp_path: Path, mtp: PlannedCell) -> None:
    done: list[str] = []

    def prepare(client: FakeClient) -> None:
        ready, connect, hear = client.ready, client.connect, client.hear

        def readied(body: Any, *, streams: bool = False) -> Ready:
            done.append("encoded")
            return ready(body, streams=streams)

        async def connected(number: int) -> None:
            done.append(f"{number} connected")
            await connect(number)

        async def heard(sent: Ready) -> Heard:
            done.append("sent")
            return await hear(sent)

        client.ready = readied  # type: ignore[method-assign]
        client.connect = connected  # type: ignore[method-assign]
        client.hear = heard  # type: ignore[method-assign]

    attempt(tmp_path, mtp, step(4), prepare=prepare)
    warm_up = ["encoded"] * 4 + ["sent"] * 4
    lengths = ["encoded"] * WARM_UP_LENGTHS + ["sent"] * WARM_UP_LENGTHS
    asked_twice = ["encoded"] * 16 + ["sent"] * 16
    assert done == [*warm_up, *lengths, *["encoded"] * PROMPTS, "4 connected", *["sent"] * PROMPTS, *asked_twice]


def test_a_healthy_engine_is_ok_in_every_category(tmp_path: Path, mtp: PlannedCell) -> None:
    said = {each.condition: each for each in attempt(tmp_path, mtp, step(1, 4)).said}
    assert len(said) == 2 * (1 + CATEGORIES)
    assert {each.verdict for each in said.values()} == {"ok"}, [each.findings for each in said.values()]
    assert {"load c=1", "load c=4", "load c=4, coding"} <= set(said)


def test_a_dead_draft_is_rejected_whatever_the_category(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        client.accepted = lambda _: 0.0

    said = attempt(tmp_path, mtp, step(1), prepare=prepare).said
    assert {each.verdict for each in said} == {"rejected"}
    assert {finding.reason for each in said for finding in each.findings} == {"dead_draft"}


def test_a_smoke_tries_a_few_prompts_and_says_what_the_guards_say(tmp_path: Path, mtp: PlannedCell) -> None:
    async def whole(clock: Clock) -> list[Any]:
        ledger = Ledger(open_store(str(tmp_path / "store")), "r1")
        async with FakeClient(mtp, clock, [0.01]) as client, Frameworks(tmp_path) as frameworks:
            client.accepted = lambda _: 0.5
            ctx = StepContext(
                planned=mtp, served=mtp.cell, client=client, ledger=ledger, attempt=1, tell=lambda _: None,
                measurement=Measurement(SmokeStep(step="smoke")), frameworks=frameworks,
            )  # fmt: skip
            found = await smoke(ctx, step(1), 5)
            assert client.asked["stream"] == 5
            return [each for each in found if each is not None]

    assert run(whole) == []


def test_a_client_that_slept_makes_its_category_and_the_suite_suspect_and_nothing_else(
    tmp_path: Path, mtp: PlannedCell
) -> None:
    def prepare(client: FakeClient) -> None:
        client.naps[("stream", 3)] = 0.03  # of the first category, behind the warm-up: a third of a request

    done = attempt(tmp_path, mtp, step(1), prepare=prepare)
    found = {each.condition: [one.reason.value for one in each.findings] for each in done.said}
    assert found.pop("load c=1, coding") == found.pop("load c=1") == ["client_starved"]
    assert {reason for reasons in found.values() for reason in reasons} == set()


def asleep_while_prompts_are_read(numbers: Callable[[int], bool]) -> Callable[[FakeClient], None]:
    """The first tokens of some streams are told 90 ms late; all answers take two seconds."""

    def prepare(client: FakeClient) -> None:
        client.token_s, client.prefill_token_s = [0.2] * 8, 0.001
        hear = client.hear

        async def sleepy(ready: Ready) -> Heard:
            if numbers(client.asked["stream"]):
                asyncio.get_running_loop().call_later(0.001, client.clock.nap, 0.09)
            return await hear(ready)

        client.hear = sleepy  # type: ignore[method-assign]

    return prepare


def test_a_client_that_sleeps_while_prompts_are_read_is_suspect(tmp_path: Path, mtp: PlannedCell) -> None:
    done = attempt(tmp_path, mtp, step(1), prepare=asleep_while_prompts_are_read(lambda _: True))
    assert min(row["ttft_ms"] for row in done.requests) > 180 and min(row["wall_s"] for row in done.requests) > 2
    assert {finding.reason for each in done.said for finding in each.findings} == {"client_starved"}
    assert {each.verdict for each in done.said} == {"suspect"}


def test_one_late_moment_is_in_no_percentile_of_a_long_load_and_in_its_categorys(
    tmp_path: Path, mtp: PlannedCell
) -> None:
    done = attempt(tmp_path, mtp, step(1), prepare=asleep_while_prompts_are_read(lambda number: number == 20))
    assert sum(row["client_late_moments"] for row in done.windows) == 1
    starved = {each.condition for each in done.said if "client_starved" in {one.reason for one in each.findings}}
    assert len(starved) == 1 and "load c=1" not in starved


def test_repeats_that_disagree_make_every_category_suspect_as_well(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        client.accepted = None
        hear = client.hear

        async def slower(ready: Ready) -> Heard:
            client.token_s = [0.01 if (client.asked["stream"] - 1) % 4 else 0.02] * 8  # every fourth: one repeat
            return await hear(ready)

        client.hear = slower  # type: ignore[method-assign]

    ar = expand(load_sweep("speed-bench-tiny")).cells[0]
    done = attempt(tmp_path, ar, step(1), prepare=prepare)
    found = {each.condition: [one.reason.value for one in each.findings] for each in done.said}
    assert len(found) == 1 + CATEGORIES and all(reasons == ["unsteady"] for reasons in found.values())


@pytest.mark.parametrize("tells", [True, False], ids=["told", "not told"])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_drafts_that_are_worth_more_on_some_prompts_are_no_unsteady_engine(
    tmp_path: Path, mtp: PlannedCell, concurrency: int, tells: bool
) -> None:
    spec = step(concurrency)
    easy = {each.prompt.text for each in suite_of(spec).prompts if each.repeat == 0}

    def prepare(client: FakeClient) -> None:
        client.tells_drafts = tells
        hear = client.hear

        async def heard(ready: Ready) -> Heard:
            share = 0.8 if ready.body["messages"][-1]["content"] in easy else 0.2
            client.accepted = lambda _: share
            return await hear(ready)

        client.hear = heard  # type: ignore[method-assign]

    done = attempt(tmp_path, mtp, spec, prepare=prepare)
    assert {row["repeat"] == 0: round(row["wall_s"] * 100) for row in done.requests} == {True: 4, False: 16}
    assert {each.verdict for each in done.said} == {"ok"}, done.said[0].findings


@pytest.mark.parametrize(("tells", "reasons"), [(True, ["unsteady"]), (False, [])], ids=["told", "not told"])
def test_a_drafting_engine_whose_repeats_disagree_is_unsteady_where_it_tells_its_drafts(
    tmp_path: Path, mtp: PlannedCell, tells: bool, reasons: list[str]
) -> None:
    """Where it doesn't, a slow repeat may as well be one whose drafts were worth less."""

    def prepare(client: FakeClient) -> None:
        client.tells_drafts = tells
        hear = client.hear

        async def slower(ready: Ready) -> Heard:
            client.token_s = [0.01 if (client.asked["stream"] - 1) % 4 else 0.02] * 8
            return await hear(ready)

        client.hear = slower  # type: ignore[method-assign]

    said = attempt(tmp_path, mtp, step(1), prepare=prepare).said
    assert all([one.reason.value for one in each.findings] == reasons for each in said)
    assert all("decoding steps/s" in one.sentence for each in said for one in each.findings)


def test_a_request_that_failed_rejects_what_was_measured_beside_it(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        hear = client.hear

        async def failing(ready: Ready) -> Heard:
            if client.asked["stream"] == 30:
                client.asked["stream"] += 1
                raise RequestFailed("cut short")
            return await hear(ready)

        client.hear = failing  # type: ignore[method-assign]

    done = attempt(tmp_path, mtp, step(4), prepare=prepare)
    [window] = done.windows
    assert (window["requests"], window["failed"], len(done.requests)) == (PROMPTS, 1, PROMPTS - 1)
    assert window["first_failure"] == "request 26: cut short"
    assert {each.verdict for each in done.said} == {"rejected"}
    assert {finding.reason for each in done.said for finding in each.findings} == {"request_failed"}


def test_a_client_that_was_slow_to_send_makes_the_load_suspect(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        hear = client.hear

        async def resting(ready: Ready) -> Heard:
            await asyncio.sleep(0.02)  # beside requests of 0.1 s
            return await hear(ready)

        client.hear = resting  # type: ignore[method-assign]

    done = attempt(tmp_path, mtp, step(4), prepare=prepare)
    assert done.windows[0]["delivered_share"] == pytest.approx(0.83, abs=0.02)
    assert {finding.reason for each in done.said for finding in each.findings} == {"client_limited"}
    assert {each.verdict for each in done.said} == {"suspect"}


def test_drafts_that_requests_and_the_engine_count_differently_are_rejected(tmp_path: Path, mtp: PlannedCell) -> None:
    done = attempt(tmp_path, mtp, step(1))
    apart = [row | {"engine_draft_steps": 11, "engine_accepted_tokens": 10} for row in done.requests]
    said = judge_load(mtp.cell, mtp.gpu, Offered(concurrency=1), done.windows, apart)
    assert {finding.reason for each in said for finding in each.findings} == {"acceptance_mismatch"}


def test_too_few_prompts_for_a_steady_state_are_suspect(tmp_path: Path, mtp: PlannedCell) -> None:
    """Of a user's file nobody can tell before it is read."""
    few = attempt(tmp_path, mtp, step(8).model_copy(update={"requests_per_category": 1}))
    [whole] = [each for each in few.said if each.condition == "load c=8"]
    assert whole.verdict == "suspect" and "11 requests have no steady state of 8" in whole.findings[0].sentence


def test_a_warm_up_that_failed_rejects_the_window_behind_it(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        hear = client.hear
        asked = iter(range(1, 1000))

        async def failing(ready: Ready) -> Heard:
            if next(asked) == 2:
                raise RequestFailed("HTTP 500: out of luck")
            return await hear(ready)

        client.hear = failing  # type: ignore[method-assign]

    done = attempt(tmp_path, mtp, step(4), prepare=prepare)
    [window] = done.windows
    assert (window["failed"], window["first_failure"]) == (1, "warm-up, request 1: HTTP 500: out of luck")
    assert len(done.requests) == PROMPTS
    assert {finding.reason for each in done.said for finding in each.findings} == {"request_failed"}


def real_ar(planned: PlannedCell, model: str, **changed: Any) -> Cell:
    named = load_model(model).model_copy(update=changed)
    served = {"model": named, "precision": load_precision("fp8"), "engine": load_engine("vllm")}
    return planned.cell.model_copy(update=served | {"technique": load_technique("ar"), "k": None})


@pytest.mark.parametrize(("token_ms", "reasons"), [(14.0, set()), (113.0, {"too_slow"})])
def test_a_31b_at_8_8_tokens_per_second_is_too_slow_under_a_load_and_in_prompts(
    tmp_path: Path, mtp: PlannedCell, token_ms: float, reasons: set[str]
) -> None:
    def plain(client: FakeClient) -> None:
        client.accepted = None

    done = attempt(tmp_path, mtp, step(1), prepare=plain)
    cell, gpu = real_ar(mtp, "gemma-4-31b"), load_gpu("h100")
    # its words are no tokens: prompts are taken as short, for prompts
    streamed = [row | {"tpot_ms": token_ms, "prompt_tokens": 8, "counted_prompt_tokens": 8} for row in done.requests]
    said = judge_load(cell, gpu, Offered(concurrency=1), done.windows, streamed)
    assert {finding.reason.value for each in said for finding in each.findings} == reasons
    names = ("tpot_ms", "ttft_ms", "first_chunk_tokens", "largest_chunk_tokens")
    whole = [{name: value for name, value in row.items() if name not in names} for row in streamed]
    whole = [row | {"wall_s": token_ms * TOKENS / 1000} for row in whole]
    about = judge_workload(cell, gpu, "qa c=1", "natural", done.windows, whole)
    assert {finding.reason.value for finding in about.findings} == reasons
    long = [row | {"prompt_tokens": 4096, "counted_prompt_tokens": 4096} for row in whole]
    assert judge_workload(cell, gpu, "qa c=1", "natural", done.windows, long).verdict == "ok", (
        "a prefill is in its time"
    )


@pytest.mark.parametrize(("concurrency", "reasons"), [(1, set()), (4, {"same_experts"})])
def test_experts_that_made_up_weights_share_are_seen_under_a_load(
    tmp_path: Path, mtp: PlannedCell, concurrency: int, reasons: set[str]
) -> None:
    def plain(client: FakeClient) -> None:
        client.accepted = None

    done = attempt(tmp_path, mtp, step(concurrency), prepare=plain)
    cell = real_ar(mtp, "gemma-4-26b-a4b", weights="dummy")
    said = judge_load(cell, load_gpu("h100"), Offered(concurrency=concurrency), done.windows, done.requests)
    assert {finding.reason.value for each in said for finding in each.findings} == reasons


def test_prompts_that_were_read_at_another_length_are_suspect(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        count = client.count_tokens

        async def counted(prompt: Prompt) -> int:
            return 2 * await count(prompt)

        client.count_tokens = counted  # type: ignore[method-assign]

    done = attempt(tmp_path, mtp, step(1), prepare=prepare)
    assert {each.verdict for each in done.said} == {"suspect"}
    assert {finding.reason for each in done.said for finding in each.findings} == {"prompt_length"}


def test_an_engine_that_counts_no_prompts_is_measured_without_that_guard(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        async def absent(prompt: Prompt) -> int:
            raise RequestFailed("/tokenize: HTTP 404")

        client.count_tokens = absent  # type: ignore[method-assign]

    done = attempt(tmp_path, mtp, step(1), prepare=prepare)
    assert {row["counted_prompt_tokens"] for row in done.requests} == {None}
    assert {each.verdict for each in done.said} == {"ok"}
