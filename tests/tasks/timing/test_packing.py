"""Large answers of a load take little room while others are timed, and say the same afterwards."""

from __future__ import annotations

import asyncio
import json

from tasks.client import Heard, Ready, stream_reply_of
from tasks.client.replies import PACK_FROM_BYTES
from tasks.timing.loops import Load, closed_loop, constant_moments, open_loop
from tasks.wire.connection import Arrivals, Patience
from tests.tasks.test_cell import wait_until

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
    assert heard.is_large and len(heard.data) > PACK_FROM_BYTES
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

    with Load(send) as load:
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
