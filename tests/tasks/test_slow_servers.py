"""Servers that take their time: a byte now and then is no progress, and a slow engine is not ended for it."""

from __future__ import annotations

import asyncio

import pytest

from tasks.client import Client, StreamReply, Unanswered
from tests.tasks.test_client import BODY, DONE, HEAD, ask, chunk
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
