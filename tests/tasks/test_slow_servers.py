"""Servers that take their time: a byte now and then is no progress, and a slow engine is not ended for it."""

from __future__ import annotations

import asyncio
import json

import pytest

from tasks.client import Client, Reply, StreamReply, Unanswered
from tests.tasks.test_client import BODY, DONE, HEAD, answer, ask, chunk, page
from tests.tasks.wire.hand_clock import HandClock, moved_by_hand
from tests.tasks.wire.scripted_server import Play, hang

QUIET_S = 20.0


def bytewise(clock: HandClock, at_once: bytes, then: bytes, every_s: float) -> Play:
    """Say something, then one byte after another, so many seconds apart, for ever."""

    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(at_once)
        while True:
            for byte in then:
                await asyncio.sleep(0.001)
                clock.now_s += every_s
                writer.write(bytes([byte]))

    return play


@pytest.mark.parametrize(
    ("at_once", "then"),
    [(b"", b"HTTP/1.1 200 OK\r\nx-" + b"v" * 5000), (HEAD, b"1\r\n \r\n"), (HEAD + chunk("a ", 1), b"1\r\n \r\n")],
    ids=["head", "body", "behind-a-token"],
)
def test_a_server_that_dribbles_is_ended_after_the_stated_time(
    monkeypatch: pytest.MonkeyPatch, at_once: bytes, then: bytes
) -> None:
    clock = moved_by_hand(monkeypatch)
    begun_s = clock.now_s
    with pytest.raises(Unanswered, match=rf"no progress for {QUIET_S:g} s: it dribbles"):
        ask(lambda client: client.stream(BODY), bytewise(clock, at_once, then, 1.0), quiet_s=QUIET_S)
    assert clock.now_s - begun_s < 3 * QUIET_S


def test_a_server_that_accepts_and_never_answers_is_ended_after_the_stated_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = moved_by_hand(monkeypatch)

    async def both(client: Client) -> StreamReply:
        asking = asyncio.ensure_future(client.stream(BODY))
        while not asking.done():
            await asyncio.sleep(0.001)
            clock.now_s += 1.0
        return await asking

    with pytest.raises(Unanswered, match="its first byte didn't come"):
        ask(both, hang, quiet_s=QUIET_S)


def test_an_engine_that_takes_long_for_each_token_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = moved_by_hand(monkeypatch)

    async def slow(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for tokens in range(1, 7):
            for _ in range(15):
                await asyncio.sleep(0.001)
                clock.now_s += 1.0
            writer.write(chunk("a ", tokens))
        writer.write(DONE)

    said = ask(lambda client: client.stream(BODY), slow, quiet_s=QUIET_S)
    assert said.completion_tokens == 6 and said.wall_s > 4 * QUIET_S


def test_a_request_waits_for_its_turn_while_the_prompts_before_it_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 prompts at once, one after another in 10 s each: the last has its token after 160 s, the engine is sound."""
    clock, quiet_s = moved_by_hand(monkeypatch), 300.0
    reads = asyncio.Lock()

    async def one_by_one(writer: asyncio.StreamWriter) -> None:
        async with reads:
            for _ in range(10):
                await asyncio.sleep(0.001)
                clock.now_s += 1.0
            writer.write(page(json.dumps(answer())))

    async def all_at_once(client: Client) -> list[Reply]:
        return await asyncio.gather(*(client.complete(BODY | {"max_tokens": 1}) for _ in range(16)))

    assert max(reply.wall_s for reply in ask(all_at_once, one_by_one, quiet_s=quiet_s)) >= 160


def test_a_request_may_wait_for_its_turn_but_not_trickle_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6 tokens that are asked there are ever more, 5 s each: 132 s after the first, which came after 200 s."""
    clock, ends_s = moved_by_hand(monkeypatch), []

    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for second in range(10**6):
            await asyncio.sleep(0.001)
            clock.now_s += 1.0
            if second >= 200 and second % 5 == 0:
                writer.write(chunk("a ", 1))

    async def timed(client: Client) -> StreamReply:
        begun_s = clock.now_s
        try:
            return await client.stream(BODY)
        finally:
            ends_s.append(clock.now_s - begun_s)

    with pytest.raises(Unanswered, match="not answered in 132 s from its turn on"):
        ask(timed, trickle, quiet_s=300.0)
    assert 200 + 132 < ends_s[0] < 200 + 132 + 30


def test_a_request_whose_turn_was_due_is_ended_although_the_engine_seems_to_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody counts its tokens, so it has the benefit of the doubt: for 20 s as the only one in flight, and 132 s."""
    clock, begun_s = moved_by_hand(monkeypatch), 1000.0
    monkeypatch.setattr("tasks.client.client.LOOKS", 2000)  # every 10 ms by the loop's clock, which is real

    async def never(_: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(0.01)
            clock.now_s += 1.0

    with pytest.raises(Unanswered, match="not answered in 132 s from its turn on"):
        ask(lambda client: client.complete(BODY), never, page("# nothing is counted\n"), quiet_s=QUIET_S)
    assert 20 + 132 < clock.now_s - begun_s < 20 + 132 + 30
