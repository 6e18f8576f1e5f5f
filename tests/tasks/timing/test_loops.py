"""When requests are sent, in virtual time, how large answers are kept meanwhile, and how the client watches itself."""

import asyncio
import heapq
import json
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from tasks.client import Heard, Ready, RequestFailed, Unanswered, stream_reply_of
from tasks.client.replies import PACK_FROM_BYTES
from tasks.timing import loops
from tasks.timing.timed import TICK_S, ClientWatch
from tasks.wire.connection import Arrivals, Patience
from tests.tasks.test_cell import wait_until
from tests.tasks.timed_step import Clock
from warehouse.ledger.formulas import Span, steps_of


class Served:
    """A FAKE client's `hear`: each request takes so long, and some go wrong."""

    def __init__(self, clock: Clock, seconds: float, wrong: dict[int, Exception] | None = None) -> None:
        self.clock, self.seconds, self.wrong = clock, seconds, wrong or {}
        self.sent = self.now = self.most = self.cancelled = 0

    async def hear(self, ready: Ready) -> Heard:
        number, sent_s = self.sent, self.clock.now_s
        self.sent += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.seconds)
            if number in self.wrong:
                raise self.wrong[number]
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.now -= 1
        return Heard({}, 200, b"", Arrivals(sent_s, [], [], self.clock.now_s))


def requests(number: int) -> list[Ready]:
    return [Ready(b"", {"index": index}, False, Patience()) for index in range(number)]


def moments(exchanges: Sequence[loops.Exchange], start_s: float = 1000.0) -> list[float]:
    return [exchange.heard.arrivals.sent_s - start_s for exchange in exchanges if exchange.heard]


async def test_a_closed_loop_keeps_so_many_in_flight_and_says_how_many_have_ended(clock: Clock) -> None:
    served = Served(clock, 1.0)
    exchanges = await loops.closed_loop(served.hear, requests(10), 4)
    assert served.most == 4
    assert moments(exchanges) == pytest.approx([0] * 4 + [1] * 4 + [2] * 2)
    assert [exchange.ready.body["index"] for exchange in exchanges] == list(range(10)), "in the order asked"
    assert {exchange.scheduled_s for exchange in exchanges} == {None}, "nothing was scheduled"
    told: list[tuple[int, str | None]] = []
    cuts = Served(clock, 1.0, {1: RequestFailed("cut")})
    await loops.closed_loop(cuts.hear, requests(3), 1, lambda ended, exchange: told.append((ended, exchange.failure)))
    assert told == [(1, None), (2, "cut"), (3, None)]


async def test_an_open_loop_sends_at_its_moments_whatever_is_in_flight(clock: Clock) -> None:
    served = Served(clock, 3.0)
    exchanges = await loops.open_loop(served.hear, requests(5), loops.constant_moments(2.0, 5))
    assert moments(exchanges) == pytest.approx([0, 0.5, 1.0, 1.5, 2.0]) and served.most == 5
    assert [exchange.heard.wall_s for exchange in exchanges if exchange.heard] == pytest.approx([3.0] * 5)


async def test_a_client_that_slept_sends_late_and_the_scheduled_moments_stay(clock: Clock) -> None:
    served = Served(clock, 0.1)
    sending = asyncio.create_task(loops.open_loop(served.hear, requests(10), loops.constant_moments(10.0, 10)))
    await asyncio.sleep(0.45)
    clock.nap(0.4)  # five of ten fall due meanwhile
    exchanges = await sending
    assert max(exchange.heard.wall_s for exchange in exchanges if exchange.heard) < 0.6
    scheduled = [exchange.scheduled_s or 0.0 for exchange in exchanges]
    assert [each - scheduled[0] for each in scheduled] == pytest.approx(loops.constant_moments(10.0, 10))
    late = [sent - due for sent, due in zip(moments(exchanges, 0.0), scheduled, strict=True)]
    assert late[:4] == pytest.approx([0] * 4) and late[5] == pytest.approx(0.35) and late[8] == pytest.approx(0.05)


def test_poisson_arrivals_are_seeded_and_have_their_rate() -> None:
    times = loops.poisson_moments(5.0, 4000, seed=7)
    assert times == loops.poisson_moments(5.0, 4000, seed=7) != loops.poisson_moments(5.0, 4000, seed=8)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert fmean(gaps) == pytest.approx(0.2, rel=0.05) and pstdev(gaps) == pytest.approx(0.2, rel=0.05)


async def test_a_request_that_fails_is_kept_as_such_and_the_others_go_on(clock: Clock) -> None:
    exchanges = await loops.closed_loop(Served(clock, 1.0, {2: RequestFailed("cut")}).hear, requests(6), 2)
    assert [exchange.failure for exchange in exchanges] == [None, None, "cut", None, None, None]
    assert exchanges[2].heard is None


@pytest.mark.parametrize("is_open", [False, True])
async def test_an_engine_that_is_gone_ends_the_load_and_what_is_in_flight(clock: Clock, is_open: bool) -> None:
    served = Served(clock, 1.0, {1: Unanswered("nobody listens")})
    with pytest.raises(Unanswered):
        if is_open:
            await loops.open_loop(served.hear, requests(6), loops.constant_moments(2.0, 6))
        else:
            await loops.closed_loop(served.hear, requests(6), 3)
    assert served.cancelled > 0


def streamed() -> Heard:
    """A stream as vLLM sends it, a token an event, one each ms."""
    events, last = [], 1000
    for token in range(1, last + 1):
        finish_reason = "length" if token == last else None
        choice = {"index": 0, "delta": {"content": f"{token} "}, "logprobs": None, "finish_reason": finish_reason}
        usage = {"prompt_tokens": 3, "total_tokens": 3 + token, "completion_tokens": token}
        event = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], "usage": usage}
        events.append(f"data: {json.dumps(event)}\n\n".encode())
    events.append(b"data: [DONE]\n\n")
    sizes = [sum(map(len, events[: number + 1])) for number in range(len(events))]
    moments = [0.001 * number for number in range(len(events))]
    return Heard({}, 200, b"".join(events), Arrivals(0.0, moments, sizes, moments[-1]))


def test_a_packed_stream_says_the_same_in_a_tenth_of_the_room() -> None:
    heard = streamed()
    assert len(heard.data) > PACK_FROM_BYTES
    packed = heard.packed()
    assert len(packed.data) < 0.1 * len(heard.data)
    assert packed.content == heard.content and packed.packed() is packed
    assert stream_reply_of(packed) == stream_reply_of(heard)


async def test_what_has_ended_is_packed_while_others_are_still_timed() -> None:
    async def send(_: Ready) -> Heard:
        return streamed()

    def is_packed(place: int) -> bool:
        heard = load.exchanges[place].heard
        return heard is not None and heard.is_packed

    with loops.Exchanges(send) as load:
        await load.exchange(0, Ready(b"", {}, True, Patience()))
        await asyncio.to_thread(wait_until, lambda: is_packed(0), "the answer to be packed")


async def test_loops_bring_the_same_answers_packed_or_not() -> None:
    async def send(_: Ready) -> Heard:
        await asyncio.sleep(0)
        return streamed()

    asked = [Ready(b"", {}, True, Patience())] * 4
    wanted = stream_reply_of(streamed())
    for loop in (loops.closed_loop(send, asked, 2), loops.open_loop(send, asked, loops.constant_moments(1e6, 4))):
        assert [each.heard and stream_reply_of(each.heard) for each in await loop] == [wanted] * 4


TICK_MS = 1000 * TICK_S


@pytest.mark.parametrize(
    ("before_s", "nap_s", "after_s", "least_ms", "most_ms"),
    [
        (0.505, 0.0, 0.5, -0.01, 0.01),
        (0.505, 0.4, 0.5, 400 - TICK_MS, 400),
        (0.5, 0.4, None, 399.999 - TICK_MS, 400.001 - TICK_MS),
    ],
    ids=["a timer that wakes in time", "a nap in full but for a tick", "a nap until the window ends"],
)
async def test_a_client_is_as_late_as_it_slept(
    clock: Clock, before_s: float, nap_s: float, after_s: float | None, least_ms: float, most_ms: float
) -> None:
    async with ClientWatch() as watch:
        await asyncio.sleep(before_s)
        clock.nap(nap_s)
        if after_s is not None:
            await asyncio.sleep(after_s)
    assert least_ms <= watch.lateness.late_ms <= most_ms


async def test_the_real_kernel_counts_the_share_without_a_processor() -> None:
    async with ClientWatch() as watch:
        await asyncio.sleep(2 * TICK_S)
    assert watch.lateness.share is None or 0 <= watch.lateness.share <= 1


TOKENS = 256
SLOTS_TOK_S = (100.0, 87.0, 71.0, 60.0)


def served(number: int, seconds_of: Callable[[int], float], slots: int = len(SLOTS_TOK_S)) -> Iterator[Span]:
    """Requests as `slots` take them, each at once when its slot is free; `seconds_of` a slot's next request."""
    free = [(0.0, slot) for slot in range(slots)]
    for _ in range(number):
        sent_s, slot = heapq.heappop(free)
        ended_s = sent_s + seconds_of(slot)
        heapq.heappush(free, (ended_s, slot))
        yield Span(sent_s, ended_s, TOKENS)


def off(rate: float, truth: float) -> float:
    return rate / truth - 1


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.3])
def test_requests_of_uneven_length_in_time_are_measured_without_bias(spread: float) -> None:
    """As drafts that are accepted now and then make them."""
    draw = random.Random(5)
    steady, whole = [], []
    for _ in range(1500):
        spans = list(served(16, lambda slot: max(0.2, draw.gauss(1, spread))))
        found = loops.steady_state(spans, len(SLOTS_TOK_S))
        assert found is not None
        steady.append(found.tokens / found.seconds)
        whole.append(16 * TOKENS / max(span.ended_s for span in spans))
    truth = len(SLOTS_TOK_S) * TOKENS
    assert abs(off(fmean(steady), truth)) < 0.01
    assert off(fmean(whole), truth) < off(fmean(steady), truth)


def test_one_at_a_time_and_too_few_requests_have_no_steady_state() -> None:
    assert loops.steady_state([Span(0, 1, TOKENS), Span(1, 2, TOKENS)], 1) is None
    assert loops.steady_state(list(served(8, lambda slot: 1.0)), len(SLOTS_TOK_S)) is None, "two rounds, as of old"


def test_the_pace_is_that_of_decoding_steps() -> None:
    """A draft's tokens cost no step of their own; a diffusion's steps are counted; else a token is a step."""
    plain = {"completion_tokens": 512, "wall_s": 2.0}
    drafted = {**plain, "engine_accepted_tokens": 256}
    denoised = {**plain, "engine_denoising_steps": 64, "engine_accepted_tokens": None}
    assert [loops.paces_of([row]) for row in (plain, drafted, denoised)] == [[256.0], [128.0], [32.0]]


def test_what_was_accepted_behind_an_answers_end_saves_no_step() -> None:
    """Two answers of 16 tokens: a first token and two steps of K = 7 each, of which 3 tokens are behind the end."""
    window = {"completion_tokens": 32, "engine_accepted_tokens": 28, "engine_drafts": 4, "requests": 2}
    assert steps_of(window) == 6 and loops.paces_of([{**window, "wall_s": 2.0}]) == [3.0]
    assert steps_of({**window, "requests": None}) == 4, "of graded answers nobody counted prefills"
    assert steps_of({**window, "mode": "decode"}) == 4, "behind the first tokens"
    request = {"completion_tokens": 16, "engine_accepted_tokens": 14, "engine_draft_steps": 2}
    assert loops.steps_of_answer(request) == 3
    assert loops.steps_of_answer({**request, "engine_draft_steps": None}) is None


def test_slots_that_are_refilled_at_once_deliver_the_whole_load() -> None:
    spans = list(served(32, lambda slot: TOKENS / SLOTS_TOK_S[slot]))
    assert loops.delivered_share(spans, len(SLOTS_TOK_S)) == pytest.approx(1.0)
    assert loops.delivered_share(spans[:4], len(SLOTS_TOK_S)) == pytest.approx(1.0), "one round, without any refill"
    assert loops.delivered_share([Span(0.0, 1.0, TOKENS)], 1) == 1.0
    rests = [Span(1.25 * index, 1.25 * index + 1, TOKENS) for index in range(20)]
    assert loops.delivered_share(rests, 1) == pytest.approx(0.8), "a client that rests between requests delivers less"
