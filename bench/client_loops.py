"""One closed loop of `bench/client.py`, in a process of its own: ours, a bare asyncio protocol, or httpx as it comes.

    python bench/client_loops.py CLIENT URL CONCURRENCY REQUESTS BODY
    python bench/client_loops.py whole|stream

The first asks for BODY, and prints one JSON document: what this client believes it measured, and its processor time
within the window. The second prints BODY, as our client makes it: the bare loops import nothing of ours.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from statistics import fmean
from time import monotonic
from typing import Any

TOKENS = 64
Times = list[tuple[float, float | None, float]]  # of each request: sent, first token, ended
Body = dict[str, Any]  # a chat request; its answer streams if it asks for it
Loop = Callable[[str, Body, int, int], Coroutine[Any, Any, tuple[Times, float]]]


def body_of(streams: bool) -> Body:
    """A request of the steps."""
    from configs.cell import Model, Technique
    from tasks.client import request_body, streamed
    from tasks.prompts import Prompt

    model = Model(name="m", family="m", hub_id="m/m", total_params_b=1, active_params_b=1)
    prompt = Prompt("why is the sky blue? " * 12)
    body = request_body(model, Technique(name="ar", method="ar"), prompt, TOKENS, fixed=True)
    return streamed(body) if streams else body


async def ours(url: str, body: Body, concurrency: int, requests: int) -> tuple[Times, float]:
    """The client of the steps, under the load shape of the steps; decoded when the clock has stopped."""
    from configs.cell import Model, Technique
    from tasks.client import Client, reply_of, stream_reply_of
    from tasks.timing.loops import closed_loop

    streams = bool(body.get("stream"))
    model = Model(name="m", family="m", hub_id="m/m", total_params_b=1, active_params_b=1)
    async with Client(url, model, Technique(name="ar", method="ar")) as client:
        ready = [client.ready(body, streams=streams) for _ in range(requests)]
        await client.connect(concurrency)
        begun_s = time.process_time()
        exchanges = await closed_loop(client.hear, ready, concurrency)
        cpu_s = time.process_time() - begun_s
    times: Times = []
    for heard in (exchange.heard for exchange in exchanges):
        assert heard is not None
        reply = stream_reply_of(heard) if streams else None
        if reply is None:
            assert reply_of(heard).completion_tokens == body["max_tokens"]
        first_s = heard.arrivals.sent_s + reply.first_token_s if reply and reply.first_token_s is not None else None
        times.append((heard.arrivals.sent_s, first_s, heard.arrivals.ended_s))
    return times, cpu_s


class _Bare(asyncio.Protocol):
    """A connection that asks again as soon as it is answered, and looks for nothing but the ends."""

    def __init__(self, data: bytes, left: Iterator[int], times: Times, streams: bool) -> None:
        self.data, self.left, self.times, self.streams = data, left, times, streams
        self.done = asyncio.get_running_loop().create_future()
        self.last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def ask(self) -> None:
        if next(self.left, None) is None:
            self.done.set_result(None)
            return
        self.sent_s, self.first_s, self.got, self.wanted, self.last = monotonic(), 0.0, 0, 0, b""
        self.transport.write(self.data)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        now_s = monotonic()
        self.first_s = self.first_s or now_s
        if self.streams:
            self.last = (self.last + data)[-5:]
            ended = self.last == b"0\r\n\r\n"
        else:
            if not self.wanted:
                at = data.index(b"\r\n\r\n")
                self.wanted = at + 4 + int(data[data.index(b"content-length: ") + 16 : at])
            self.got += len(data)
            ended = self.got >= self.wanted
        if ended:
            self.times.append((self.sent_s, self.first_s, now_s))
            self.ask()


async def floor(url: str, body: Body, concurrency: int, requests: int) -> tuple[Times, float]:
    """What this machine and this event loop can do at best."""
    host, port = url.removeprefix("http://").split(":")
    data, streams = json.dumps(body).encode(), bool(body.get("stream"))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(data)}\r\n\r\n"
    left, times = iter(range(requests)), Times()
    loop = asyncio.get_running_loop()
    bare = []
    for _ in range(concurrency):
        made = await loop.create_connection(lambda: _Bare(head.encode() + data, left, times, streams), host, int(port))
        bare.append(made[1])
    begun_s = time.process_time()
    for each in bare:
        each.ask()
    await asyncio.gather(*(each.done for each in bare))
    cpu_s = time.process_time() - begun_s
    for each in bare:
        each.transport.close()
    return times, cpu_s


async def httpx_default(url: str, body: Body, concurrency: int, requests: int) -> tuple[Times, float]:
    """The same with httpx as it comes: its own transport, without limits, bodies encoded beforehand."""
    import httpx

    data = json.dumps(body).encode()
    left, times = iter(range(requests)), Times()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, trust_env=False, limits=limits, timeout=600) as client:

        async def slot() -> None:
            for _ in left:
                sent_s, first_s = monotonic(), None
                headers = {"content-type": "application/json"}
                async with client.stream("POST", "/v1/chat/completions", content=data, headers=headers) as response:
                    async for _line in response.aiter_lines():
                        first_s = first_s or monotonic()
                times.append((sent_s, first_s, monotonic()))

        begun_s = time.process_time()
        await asyncio.gather(*(slot() for _ in range(concurrency)))
        return times, time.process_time() - begun_s


LOOPS: dict[str, Loop] = {"ours": ours, "floor": floor, "httpx": httpx_default}


def main(client: str, url: str, concurrency: int, requests: int, body: Body) -> None:
    """Run the loop and say what it saw."""
    times, cpu_s = asyncio.run(LOOPS[client](url, body, concurrency, requests))
    assert len(times) == requests
    span_s = max(ended_s for _, _, ended_s in times) - min(sent_s for sent_s, _, _ in times)
    first = [first_s - sent_s for sent_s, first_s, _ in times if first_s is not None]
    said = {
        "latency_ms": 1000 * fmean(ended_s - sent_s for sent_s, _, ended_s in times),
        "ttft_ms": 1000 * fmean(first) if first and body.get("stream") else None,
        "tok_s": requests * body["max_tokens"] / span_s,
        "cpu_ms": 1000 * cpu_s / requests,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    if len(sys.argv) == 2:
        print(json.dumps(body_of(sys.argv[1] == "stream")))
        sys.exit()
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5]))
