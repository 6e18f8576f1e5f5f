"""The load step against a fake engine of known speed, in virtual time: what is measured, kept, resumed and judged."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from configs.cell import Cell
from configs.load import load_engine, load_gpu, load_model, load_precision, load_technique
from configs.schema import PlannedCell
from configs.steps.load import LoadStep, Offered
from configs.steps.throughput import WARM_UP_LENGTHS
from tasks.client import Heard, Ready, Unanswered
from tasks.steps.load import judge_load, schedule, suite_of
from tasks.steps.prompts import judge_workload
from tests.tasks import timed_step
from tests.tasks.timed_step import FakeClient, Hear, changed, dies_after, hearing
from warehouse.dataset.loads import followed
from warehouse.ledger.formulas import loops

PROMPTS, CATEGORIES, TOKENS = 88, 11, 20  # of the twin
attempt = partial(timed_step.attempt, token_s=(0.01,) * 8)


def step(*concurrencies: int, **more: Any) -> LoadStep:
    fields = {"step": "load", "dataset": "twin", "concurrencies": concurrencies, "max_tokens": TOKENS, **more}
    return LoadStep.model_validate(fields)


def test_every_prompt_is_asked_at_every_concurrency_and_counted_by_category(tmp_path: Path, mtp: PlannedCell) -> None:
    done = attempt(tmp_path, mtp, step(1, 4))
    assert [sum(row["concurrency"] == c for row in done.requests) for c in (1, 4)] == [PROMPTS, PROMPTS]
    first = next(row for row in done.requests if row["concurrency"] == 1)
    assert (first["condition"], first["mode"], first["completion_tokens"]) == ("load c=1", "natural", TOKENS)
    assert first["ttft_ms"] == pytest.approx(5) and first["tpot_ms"] == first["chunk_ms"] == pytest.approx(5)
    assert first["wall_s"] == pytest.approx(0.1)
    assert {row["repeat"] for row in done.requests} == {0, 1, 2, 3}
    last = done.told[-1]
    assert (last.percent, last.line) == (100, "load c=4: 88/88 answered, 800 tok/s")
    windows = done.windows
    alone = [row for row in windows if row["concurrency"] == 1]
    assert len(alone) == len({row["category"] for row in alone}) == CATEGORIES
    assert {row["requests"] for row in alone} == {PROMPTS // CATEGORIES}
    [mixed] = [row for row in windows if row["concurrency"] == 4]
    assert (mixed["category"], mixed["requests"], mixed["completion_tokens"]) == (None, PROMPTS, PROMPTS * TOKENS)
    assert len(done.found) == 2 * (1 + CATEGORIES)
    assert {"load c=1", "load c=4", "load c=4, coding"} <= set(done.found)


def test_a_load_that_a_killed_start_began_is_timed_in_one_start(tmp_path: Path, mtp: PlannedCell) -> None:
    """Starts differ: tokens at 100 and at 200 a second would be one figure of about 130."""

    def faster(client: FakeClient) -> None:
        client.token_s = [0.005] * 8
        dies_after(5 + 45)(client)

    with pytest.raises(Unanswered):
        attempt(tmp_path, mtp, step(1), prepare=faster)
    again = attempt(tmp_path, mtp, step(1), number=2)
    timed = loops(again.requests)
    assert all(row["wall_s"] == pytest.approx(0.1) for rows in timed for row in rows)
    assert sum(map(len, timed)) == PROMPTS
    assert again.verdicts == {"ok"}
    assert sum(row["attempt"] == 1 for row in again.requests) == 40, "five categories were finished, and can be read"


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
        changed(
            ready=lambda body, **how: (done.append("encoded"), ready(body, **how))[1],
            connect=lambda number: (done.append(f"{number} connected"), connect(number))[1],
            hear=lambda sent: (done.append("sent"), hear(sent))[1],
        )(client)

    attempt(tmp_path, mtp, step(4), prepare=prepare)
    warm_up = ["encoded"] * 4 + ["sent"] * 4
    lengths = ["encoded"] * WARM_UP_LENGTHS + ["sent"] * WARM_UP_LENGTHS
    asked_twice = ["encoded"] * 16 + ["sent"] * 16
    assert done == [*warm_up, *lengths, *["encoded"] * PROMPTS, "4 connected", *["sent"] * PROMPTS, *asked_twice]


def test_a_client_that_slept_makes_its_category_and_the_suite_suspect_and_nothing_else(
    tmp_path: Path, mtp: PlannedCell
) -> None:
    # of the first category, behind the warm-up: a third of a request
    done = attempt(tmp_path, mtp, step(1), prepare=changed(naps={("stream", 3): 0.03}))
    found = {name: reasons for name, reasons in done.found.items() if reasons}
    assert found == {"load c=1": ["client_starved"], "load c=1, coding": ["client_starved"]}


@pytest.mark.parametrize(
    ("slow_pairs", "reasons"), [(8, set()), (99, {"prefix_cache_hit"})], ids=["a busy machine", "a cache"]
)
def test_an_engine_that_seems_to_know_prompts_is_asked_more(
    tmp_path: Path, ar: PlannedCell, slow_pairs: int, reasons: set[str]
) -> None:
    """The first of each two equal prompts waits; a busy machine does so by chance, and not for ever."""
    waits = {2 * pair: 0.4 for pair in range(slow_pairs)}
    assert attempt(tmp_path, ar, step(1), prepare=changed(slow_prefills=waits)).all_reasons == reasons


def asleep_while_prompts_are_read(numbers: Callable[[int], bool]) -> Callable[[FakeClient], None]:
    """The first tokens of some streams are told 90 ms late; all answers take two seconds."""

    async def sleepy(client: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        client.token_s, client.prefill_token_s = [0.2] * 8, 0.001
        if numbers(client.asked["stream"]):
            asyncio.get_running_loop().call_later(0.001, client.clock.nap, 0.09)
        return await hear(ready)

    return hearing(sleepy)


def test_a_client_that_sleeps_while_prompts_are_read_is_suspect(tmp_path: Path, mtp: PlannedCell) -> None:
    done = attempt(tmp_path, mtp, step(1), prepare=asleep_while_prompts_are_read(lambda _: True))
    assert min(row["ttft_ms"] for row in done.requests) > 180 and min(row["wall_s"] for row in done.requests) > 2
    assert done.all_reasons == {"client_starved"} and done.verdicts == {"suspect"}


def test_one_late_moment_is_in_its_categorys_percentiles_only(tmp_path: Path, mtp: PlannedCell) -> None:
    done = attempt(tmp_path, mtp, step(1), prepare=asleep_while_prompts_are_read(lambda number: number == 20))
    assert sum(row["client_late_moments"] for row in done.windows) == 1
    starved = {name for name, reasons in done.found.items() if "client_starved" in reasons}
    assert len(starved) == 1 and "load c=1" not in starved


async def one_repeat_is_slower(client: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
    client.token_s = [0.01 if (client.asked["stream"] - 1) % 4 else 0.02] * 8  # every fourth
    return await hear(ready)


def test_repeats_that_disagree_make_every_category_suspect_as_well(tmp_path: Path, ar: PlannedCell) -> None:
    found = attempt(tmp_path, ar, step(1), prepare=hearing(one_repeat_is_slower)).found
    assert len(found) == 1 + CATEGORIES and all(reasons == ["unsteady"] for reasons in found.values())


@pytest.mark.parametrize("tells", [True, False], ids=["told", "not told"])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_easy_prompts_are_no_unsteady_engine(tmp_path: Path, mtp: PlannedCell, concurrency: int, tells: bool) -> None:
    """Drafts are worth more on some prompts."""
    spec = step(concurrency)
    easy = {each.prompt.text for each in suite_of(spec).prompts if each.repeat == 0}

    async def worth_more(client: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        client.tells_drafts, share = tells, 0.8 if ready.body["messages"][-1]["content"] in easy else 0.2
        client.accepted = lambda _: share
        return await hear(ready)

    done = attempt(tmp_path, mtp, spec, prepare=hearing(worth_more))
    assert {row["repeat"] == 0: round(row["wall_s"] * 100) for row in done.requests} == {True: 4, False: 16}
    assert done.verdicts == {"ok"}, done.said[0].findings


@pytest.mark.parametrize(("tells", "reasons"), [(True, ["unsteady"]), (False, [])], ids=["told", "not told"])
def test_a_slow_repeat_is_seen_by_its_drafts(tmp_path: Path, mtp: PlannedCell, tells: bool, reasons: list[str]) -> None:
    """Where it doesn't, a slow repeat may as well be one whose drafts were worth less."""

    def prepare(client: FakeClient) -> None:
        client.tells_drafts = tells
        hearing(one_repeat_is_slower)(client)

    said = attempt(tmp_path, mtp, step(1), prepare=prepare).said
    assert all([one.reason.value for one in each.findings] == reasons for each in said)
    assert all("decoding steps/s" in one.sentence for each in said for one in each.findings)


def test_a_client_that_was_slow_to_send_makes_the_load_suspect(tmp_path: Path, mtp: PlannedCell) -> None:
    async def resting(_: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        await asyncio.sleep(0.02)  # beside requests of 0.1 s
        return await hear(ready)

    done = attempt(tmp_path, mtp, step(4), prepare=hearing(resting))
    assert done.windows[0]["delivered_share"] == pytest.approx(0.83, abs=0.02)
    assert done.all_reasons == {"client_limited"} and done.verdicts == {"suspect"}


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


def real_ar(planned: PlannedCell, model: str, **changed: Any) -> Cell:
    named = load_model(model).model_copy(update=changed)
    served = {"model": named, "precision": load_precision("fp8"), "engine": load_engine("vllm")}
    return planned.cell.model_copy(update=served | {"technique": load_technique("ar"), "k": None})


@pytest.mark.parametrize(("token_ms", "reasons"), [(14.0, set()), (113.0, {"too_slow"})])
def test_a_31b_at_8_8_tok_s_is_too_slow(tmp_path: Path, mtp: PlannedCell, token_ms: float, reasons: set[str]) -> None:
    done = attempt(tmp_path, mtp, step(1), prepare=changed(accepted=None))
    cell, gpu = real_ar(mtp, "gemma-4-31b"), load_gpu("h100")
    # its words are no tokens: prompts are taken as short, for prompts
    streamed = [row | {"tpot_ms": token_ms, "prompt_tokens": 8, "counted_prompt_tokens": 8} for row in done.requests]
    said = judge_load(cell, gpu, Offered(concurrency=1), done.windows, streamed)
    assert {finding.reason.value for each in said for finding in each.findings} == reasons
    names = ("tpot_ms", "ttft_ms", "first_chunk_tokens", "largest_chunk_tokens")
    whole = [{name: value for name, value in row.items() if name not in names} for row in streamed]
    whole = [row | {"wall_s": token_ms * TOKENS / 1000} for row in whole]
    about = judge_workload(cell, gpu, "qa c=1", done.windows, whole)
    assert {finding.reason.value for finding in about.findings} == reasons
    long = [row | {"prompt_tokens": 4096, "counted_prompt_tokens": 4096} for row in whole]
    assert judge_workload(cell, gpu, "qa c=1", done.windows, long).verdict == "ok", "a prefill is in its time"


@pytest.mark.parametrize(("concurrency", "reasons"), [(1, set()), (4, {"same_experts"})])
def test_shared_experts_are_seen_in_load(tmp_path: Path, mtp: PlannedCell, concurrency: int, reasons: set[str]) -> None:
    done = attempt(tmp_path, mtp, step(concurrency), prepare=changed(accepted=None))
    cell = real_ar(mtp, "gemma-4-26b-a4b", weights="dummy")
    said = judge_load(cell, load_gpu("h100"), Offered(concurrency=concurrency), done.windows, done.requests)
    assert {finding.reason.value for each in said for finding in each.findings} == reasons


def test_a_second_start_of_the_engine_compiles_in_its_warm_up_too(tmp_path: Path, mtp: PlannedCell) -> None:
    compiles, answer_s = changed(compiles_s=1.0), 0.1  # of 20 tokens at 10 ms, half of which are drafts
    with pytest.raises(Unanswered):
        attempt(tmp_path, mtp, step(1), prepare=lambda client: (compiles(client), dies_after(20)(client))[0])
    done = attempt(tmp_path, mtp, step(1), number=2, prepare=compiles)
    assert max(row["wall_s"] for row in done.requests if row["attempt"] == 2) == pytest.approx(answer_s)
    cold = attempt(tmp_path / "cold", mtp, step(1).model_copy(update={"warmup": 0}), prepare=compiles)
    assert max(row["wall_s"] for row in cold.requests) == pytest.approx(1 + answer_s), "nor is it asked to, unwarmed"


def test_each_request_is_sent_when_it_is_due_and_keeps_its_moment(tmp_path: Path, ar: PlannedCell) -> None:
    done = attempt(tmp_path, ar, step(rates=[10], arrival="constant"))
    assert [row["due_s"] for row in done.requests] == pytest.approx([number / 10 for number in range(PROMPTS)])
    assert [row["sent_s"] for row in done.requests] == pytest.approx([row["due_s"] for row in done.requests])
    row = done.requests[0]
    assert (row["condition"], row["mode"], row["concurrency"]) == ("load 10/s constant", "open", None)
    assert (row["rate_s"], row["arrival"]) == (10, "constant")
    [window] = done.windows
    assert (window["rate_s"], window["category"], window["delivered_share"]) == (10, None, None)
    assert {(each.mode, each.verdict) for each in done.said} == {("open", "ok")}, [each.findings for each in done.said]
    found = followed(done.requests)
    assert found and not found.is_overloaded


def test_a_schedule_is_made_of_the_load_alone_so_every_cell_and_visit_has_the_same() -> None:
    poisson = Offered(rate_s=4, arrival="poisson")
    assert schedule(poisson, 50) == schedule(poisson, 50) != schedule(Offered(rate_s=5, arrival="poisson"), 50)
    assert schedule(Offered(concurrency=4), 50) == []


def test_poisson_arrivals_share_an_engine_that_follows(tmp_path: Path, ar: PlannedCell) -> None:
    done = attempt(tmp_path, ar, step(rates=[20]))
    due = [row["due_s"] for row in done.requests]
    assert due[-1] == pytest.approx(PROMPTS / 20), "as many as asked for in the time that they should take"
    assert due == sorted(due) == schedule(Offered(rate_s=20, arrival="poisson"), PROMPTS)
    found = followed(done.requests)
    assert found and not found.is_overloaded
    answer_s = 0.2  # of 20 tokens at 10 ms: eight slots answer 40 a second
    assert found.in_flight == pytest.approx(20 * answer_s, rel=0.35)
    assert found.answered_s == pytest.approx(20, rel=0.35)
    assert done.verdicts == {"ok"}


def test_an_engine_that_can_not_follow_is_told_from_one_that_can(tmp_path: Path, ar: PlannedCell) -> None:
    done = attempt(tmp_path, ar, step(rates=[80]))
    found = followed(done.requests)
    assert found and found.is_overloaded and found.answered_s == pytest.approx(40, rel=0.15), "in lumps of eight"
    assert "a second were answered of 80 offered" in found.sentence
    assert done.verdicts == {"ok"}, "its latencies are true"
    walls = [row["wall_s"] for row in done.requests]
    assert max(walls) > 3 * min(walls)


def test_a_client_that_sends_late_is_the_limit_and_says_so(tmp_path: Path, ar: PlannedCell) -> None:
    async def dawdling(client: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        client.clock.nap(0.06)  # of the 0.1 s between two requests
        return await hear(ready)

    done = attempt(tmp_path, ar, step(rates=[10], arrival="constant"), prepare=hearing(dawdling))
    assert "client_limited" in done.all_reasons and done.verdicts == {"suspect"}
    assert min(row["sent_s"] - row["due_s"] for row in done.requests) > 0.05


def test_a_killed_schedule_is_sent_again_whole(tmp_path: Path, ar: PlannedCell) -> None:
    both = step(2, rates=[20])
    with pytest.raises(Exception, match="gone"):
        attempt(tmp_path, ar, both, prepare=dies_after(6 + PROMPTS + 41))
    again = attempt(tmp_path, ar, both, number=2)
    kept = [(row["condition"], row["attempt"], row["requests"]) for row in again.windows]
    assert kept == [("load c=2", 1, PROMPTS), ("load 20/s", 2, PROMPTS)]
    assert {row["attempt"] for row in again.requests if row["mode"] == "open"} == {2}
