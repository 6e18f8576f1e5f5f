"""The loops that the bench compares: each asks the engine for the same, so each is answered with as much."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bench.client_loops import LOOPS, TOKENS, body_of
from tests.tasks.wire.scripted_server import Scripted

USAGE = {"prompt_tokens": 60, "completion_tokens": TOKENS}
CHOICE = {"message": {"content": "word " * TOKENS}, "finish_reason": "length"}
WHOLE = json.dumps({"choices": [CHOICE], "usage": USAGE}).encode()
EVENT = {"choices": [{"delta": {"content": "word " * TOKENS}, "finish_reason": "length"}], "usage": USAGE}
EVENTS = b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(EVENT).encode()
ANSWERS = {
    False: b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(WHOLE), WHOLE),
    True: b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(EVENTS), EVENTS),
}


def asked(client: str, streams: bool) -> Any:
    """The body that the server got."""

    async def whole() -> Any:
        async with Scripted(ANSWERS[streams]) as server:
            await LOOPS[client](server.url, body_of(streams), 1, 1)
            return next(json.loads(each.partition(b"\r\n\r\n")[2]) for each in server.requests if b"POST" in each)

    return asyncio.run(whole())


@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
def test_every_loop_asks_for_what_our_client_asks_for(streams: bool) -> None:
    [body] = {json.dumps(asked(client, streams), sort_keys=True) for client in LOOPS}
    said = json.loads(body)
    assert said["max_tokens"] == TOKENS and said["ignore_eos"] is True
    assert said.get("return_token_ids") is said.get("stream") is (True if streams else None)
