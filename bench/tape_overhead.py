"""What the tape costs (budget: under 2 ms per request, under 3 % of a core, at 64 requests in flight).

    bin/run python bench/tape_overhead.py [SECONDS]

Three processes: a fake engine whose answers have 8000 tokens, the tape with parts stored in a
folder, and 64 clients. First answers take no time, which shows how many requests a second the tape can carry. Then they
take 10 s on average, for 64 clients with the tape and 64 without it, side by side: a busy machine slows both. A request
says how long its answer shall take; whatever it takes beyond that is overhead, and the tape's is the difference of the
two. The last line is one JSON document.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web

from configs.checkout import ROOT
from tasks.evals.policy import Policy
from tasks.evals.tape import Tape
from warehouse.evals.tables import EXCHANGES
from warehouse.parts import Row, encode

IN_FLIGHT = 64
ANSWER_S = (5.0, 15.0)
ANSWER_TOKENS = 8000
AT_ONCE_S = (0.0, 0.0)
STRESS_S = 4.0
CELL = "0" * 16


class Load(NamedTuple):
    """What a number of clients saw: requests, seconds, and what each request took beyond its answer, in ms."""

    requests: int
    wall_s: float
    over_ms: list[float]

    def percentile(self, percent: int) -> float:
        """Of the overhead, in ms."""
        return quantiles(self.over_ms, n=100, method="inclusive")[percent - 1]


async def serve_engine() -> None:
    """The fake engine: an answer as long as a real one, when the request says, and a `/metrics` page of real size."""
    thinking, generated = "so it is, because " * (ANSWER_TOKENS * 4 // 18), 0
    histogram = "".join(
        f'vllm:fake_{n}_bucket{{engine="0",le="{le}",model_name="m"}} 1.0\n' for n in range(25) for le in range(20)
    )

    async def chat(request: web.Request) -> web.Response:
        nonlocal generated
        content = (await request.json())["messages"][0]["content"]
        await asyncio.sleep(float(content.split()[0]))
        generated += ANSWER_TOKENS
        message = {"role": "assistant", "content": "The answer is (B)", "reasoning": thinking}
        usage = {"prompt_tokens": 300, "completion_tokens": ANSWER_TOKENS, "total_tokens": 300 + ANSWER_TOKENS}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "stop_reason": None}
        return web.json_response({"id": "x", "model": "m", "choices": [choice], "usage": usage})

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=f'{histogram}vllm:generation_tokens_total{{engine="0"}} {generated}\n')

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


async def serve_tape(upstream: str, folder: str) -> None:
    """The tape; at the end of stdin it stores what is left."""
    stamp = {"run_id": "r", "cell_key": CELL, "step": "eval-gpqa", "attempt": 1, "measured_at": "2026-11-22"}

    def store(rows: Sequence[Row]) -> None:
        data = encode(EXCHANGES, [{**stamp, **row} for row in rows])
        (Path(folder) / f"{time.monotonic_ns()}.parquet").write_bytes(data)

    async def write(rows: Sequence[Row]) -> None:
        await asyncio.to_thread(store, rows)

    sampling = {"model": "m", "max_tokens": 32768, "temperature": 0.6, "top_p": 0.95}
    policy = Policy(CELL, sampling, {"enable_thinking": True}, 0)
    async with Tape(upstream, policy, "eval-gpqa", [], write) as tape:
        print(tape.url(0), flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def load(base_url: str, seconds: float, answer_s: tuple[float, float]) -> Load:
    """Keep `IN_FLIGHT` requests going for so long. The first round begins in the middle of an answer: no bursts."""
    random_s, over_ms = random.Random(0), list[float]()
    prompt = "what is the answer to this question? " * 30
    started = time.perf_counter()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def client(number: int) -> None:
            take_s = random_s.uniform(0, answer_s[1])
            for turn in range(10**9):
                if time.perf_counter() - started + take_s > seconds:
                    return
                content = f"{take_s} {number} {turn} {prompt}"
                body: dict[str, Any] = {"messages": [{"role": "user", "content": content}], "stop": ["</s>"]}
                begun = time.perf_counter()
                async with session.post(f"{base_url}/chat/completions", json=body) as response:
                    await response.read()
                    assert response.status == 200, await response.text()
                over_ms.append(1000 * (time.perf_counter() - begun - take_s))
                take_s = random_s.uniform(*answer_s)

        await asyncio.gather(*(client(number) for number in range(IN_FLIGHT)))
    return Load(len(over_ms), time.perf_counter() - started, over_ms)


async def together(engine_url: str, tape_url: str, seconds: float) -> tuple[Load, Load]:
    """The realistic load without the tape and with it, side by side."""
    return await asyncio.gather(load(f"{engine_url}/v1", seconds, ANSWER_S), load(tape_url, seconds, ANSWER_S))


class Part:
    """This file as another process, which prints its address and ends with its stdin."""

    def __init__(self, *args: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, __file__, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self.process.stdout
        self.url = self.process.stdout.readline().strip()

    def cpu_s(self) -> float:
        """Processor seconds so far, of all threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.communicate(timeout=30)


def measured(title: str, direct: Load, taped: Load, cpu_s: float) -> dict[str, Any]:
    """One line of the table, printed, and its figures."""
    added = {f"added_p{percent}_ms": taped.percentile(percent) - direct.percentile(percent) for percent in (50, 99)}
    figures = {
        "requests": taped.requests,
        "direct_req_s": direct.requests / direct.wall_s,
        "tape_req_s": taped.requests / taped.wall_s,
        **{f"direct_p{percent}_ms": direct.percentile(percent) for percent in (50, 99)},
        **added,
        "cpu_share": cpu_s / taped.wall_s,
        "cpu_ms_per_request": 1000 * cpu_s / taped.requests,
    }
    print(f"{title:<10}" + "".join(f"{name} {value:.4g}  " for name, value in figures.items()), flush=True)
    return figures


def main(seconds: float) -> None:
    """Measure both loads, with and without the tape."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Part("engine")
        tape = Part("tape", engine.url, folder)
        try:
            direct = asyncio.run(load(f"{engine.url}/v1", STRESS_S, AT_ONCE_S))
            before_s = tape.cpu_s()
            taped = asyncio.run(load(tape.url, STRESS_S, AT_ONCE_S))
            document = {"stress": measured("stress", direct, taped, tape.cpu_s() - before_s)}
            before_s = tape.cpu_s()  # the first part that a process ever stores costs 0.2 s; it is behind us
            direct, taped = asyncio.run(together(engine.url, tape.url, seconds))
            document["realistic"] = measured("realistic", direct, taped, tape.cpu_s() - before_s)
        finally:
            tape.kill()
            engine.kill()
    print(json.dumps(document))


if __name__ == "__main__":
    if sys.argv[1:2] == ["engine"]:
        asyncio.run(serve_engine())
    elif sys.argv[1:2] == ["tape"]:
        asyncio.run(serve_tape(*sys.argv[2:]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 40.0)
