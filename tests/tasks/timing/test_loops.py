"""When requests are sent, in virtual time, how large answers are kept meanwhile, and how the client watches itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from tasks.client import Heard, Ready, RequestFailed, Unanswered, stream_reply_of
from tasks.client.replies import PACK_FROM_BYTES
from tasks.timing.loops import Exchange, Exchanges, closed_loop, constant_moments, open_loop, poisson_moments
from tasks.timing.timed import TICK_S, ClientWatch, Lateness
from tasks.wire.connection import Arrivals, Patience
from tests.tasks.test_cell import wait_until
from tests.tasks.virtual_time import Clock, run


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


def moments(exchanges: Sequence[Exchange], start_s: float = 1000.0) -> list[float]:
    return [exchange.heard.arrivals.sent_s - start_s for exchange in exchanges if exchange.heard]


def test_a_closed_loop_keeps_so_many_in_flight_and_no_more() -> None:
    async def load(clock: Clock) -> tuple[list[Exchange], int]:
        served = Served(clock, 1.0)
        return await closed_loop(served.hear, requests(10), 4), served.most

    exchanges, most = run(load)
    assert most == 4
    assert moments(exchanges) == pytest.approx([0] * 4 + [1] * 4 + [2] * 2)
    assert [exchange.ready.body["index"] for exchange in exchanges] == list(range(10)), "in the order asked"
    assert {exchange.scheduled_s for exchange in exchanges} == {None}, "nothing was scheduled"


def test_a_closed_loop_says_how_many_have_ended_as_they_do() -> None:
    told: list[tuple[int, str | None]] = []

    async def load(clock: Clock) -> None:
        served = Served(clock, 1.0, {1: RequestFailed("cut")})
        await closed_loop(served.hear, requests(3), 1, lambda ended, exchange: told.append((ended, exchange.failure)))

    run(load)
    assert told == [(1, None), (2, "cut"), (3, None)]


def test_an_open_loop_sends_at_its_moments_whatever_is_in_flight() -> None:
    async def load(clock: Clock) -> tuple[list[Exchange], int]:
        served = Served(clock, 3.0)
        return await open_loop(served.hear, requests(5), constant_moments(2.0, 5)), served.most

    exchanges, most = run(load)
    assert moments(exchanges) == pytest.approx([0, 0.5, 1.0, 1.5, 2.0]) and most == 5
    assert [exchange.heard.wall_s for exchange in exchanges if exchange.heard] == pytest.approx([3.0] * 5)


def test_a_client_that_slept_sends_late_and_the_scheduled_moments_stay() -> None:
    async def load(clock: Clock) -> list[Exchange]:
        served = Served(clock, 0.1)
        sending = asyncio.create_task(open_loop(served.hear, requests(10), constant_moments(10.0, 10)))
        await asyncio.sleep(0.45)
        clock.nap(0.4)  # five of ten fall due meanwhile
        return await sending

    exchanges = run(load)
    assert max(exchange.heard.wall_s for exchange in exchanges if exchange.heard) < 0.6
    scheduled = [exchange.scheduled_s or 0.0 for exchange in exchanges]
    assert [each - scheduled[0] for each in scheduled] == pytest.approx(constant_moments(10.0, 10))
    late = [sent - due for sent, due in zip(moments(exchanges, 0.0), scheduled, strict=True)]
    assert late[:4] == pytest.approx([0] * 4) and late[5] == pytest.approx(0.35) and late[8] == pytest.approx(0.05)


def test_poisson_arrivals_are_seeded_and_have_their_rate() -> None:
    times = poisson_moments(5.0, 4000, seed=7)
    assert times == poisson_moments(5.0, 4000, seed=7) != poisson_moments(5.0, 4000, seed=8)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert fmean(gaps) == pytest.approx(0.2, rel=0.05) and pstdev(gaps) == pytest.approx(0.2, rel=0.05)


def test_a_request_that_fails_is_kept_as_such_and_the_others_go_on() -> None:
    async def load(clock: Clock) -> list[Exchange]:
        return await closed_loop(Served(clock, 1.0, {2: RequestFailed("cut")}).hear, requests(6), 2)

    exchanges = run(load)
    assert [exchange.failure for exchange in exchanges] == [None, None, "cut", None, None, None]
    assert exchanges[2].heard is None


@pytest.mark.parametrize("open_", [False, True])
def test_an_engine_that_is_gone_ends_the_load_and_what_is_in_flight(open_: bool) -> None:
    async def load(clock: Clock) -> int:
        served = Served(clock, 1.0, {1: Unanswered("nobody listens")})
        with pytest.raises(Unanswered):
            if open_:
                await open_loop(served.hear, requests(6), constant_moments(2.0, 6))
            else:
                await closed_loop(served.hear, requests(6), 3)
        return served.cancelled

    assert run(load) > 0


TOKENS = 1000


def streamed() -> Heard:
    """A stream as vLLM sends it, a token an event, one each ms."""
    events = []
    for token in range(1, TOKENS + 1):
        choice = {"index": 0, "delta": {"content": f"{token} "}, "logprobs": None, "finish_reason": None}
        if token == TOKENS:
            choice["finish_reason"] = "length"
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


def test_what_has_ended_is_packed_while_others_are_still_timed() -> None:
    async def send(_: Ready) -> Heard:
        return streamed()

    def is_packed(place: int) -> bool:
        heard = load.exchanges[place].heard
        return heard is not None and heard.is_packed

    with Exchanges(send) as load:
        asyncio.run(load.exchange(0, Ready(b"", {}, True, Patience())))
        wait_until(lambda: is_packed(0), "the answer to be packed")


def test_loops_bring_the_same_answers_packed_or_not() -> None:
    async def send(_: Ready) -> Heard:
        await asyncio.sleep(0)
        return streamed()

    asked = [Ready(b"", {}, True, Patience())] * 4
    wanted = stream_reply_of(streamed())
    for loop in (closed_loop(send, asked, 2), open_loop(send, asked, constant_moments(1e6, 4))):
        exchanges = asyncio.run(loop)
        assert [each.heard and stream_reply_of(each.heard) for each in exchanges] == [wanted] * 4


def watched(nap_s: float) -> Lateness:
    async def window(clock: Clock) -> Lateness:
        async with ClientWatch() as watch:
            await asyncio.sleep(0.505)
            clock.nap(nap_s)
            await asyncio.sleep(0.5)
        return watch.lateness

    return run(window)


def test_a_timer_that_wakes_in_time_is_not_late() -> None:
    assert watched(0.0).late_ms == pytest.approx(0, abs=0.01)


def test_a_nap_of_the_client_shows_in_full_but_for_a_tick() -> None:
    assert 400 - 1000 * TICK_S <= watched(0.4).late_ms <= 400


def test_a_client_that_sleeps_until_the_window_ends_is_late_too() -> None:
    async def window(clock: Clock) -> Lateness:
        async with ClientWatch() as watch:
            await asyncio.sleep(0.5)
            clock.nap(0.4)
        return watch.lateness

    assert run(window).late_ms == pytest.approx(400 - 1000 * TICK_S)


def test_the_real_kernel_counts_the_share_without_a_processor() -> None:
    async def window() -> Lateness:
        async with ClientWatch() as watch:
            await asyncio.sleep(2 * TICK_S)
        return watch.lateness

    share = asyncio.run(window()).share
    assert share is None or 0 <= share <= 1
