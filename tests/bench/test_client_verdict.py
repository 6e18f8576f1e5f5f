"""The bench of clients: its loops, and what it says of its table."""

import asyncio
import json
from typing import Any

import pytest

from bench.client import DELIVERED, TARGETS, behind, delivered, misses, without_peers
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


COST = {"cpu_ms": 0.1, "start_s": 0.4, "memory_mb": 40.0, "tok_s_error": 0.0, "delivered": 0.5}


def ours(**changed: float) -> dict[str, dict[str, Any]]:
    """Figures of ours that are all well, but for those of the stream (or, by `latency__NAME`, of the latency load)."""
    latency = {**COST, "latency_ms": 102.0, "latency_truth_ms": 100.0, "delivered": 0.97, "all_cpu_s": 0.5}
    stream = {**COST, "ttft_ms": 52.0, "ttft_truth_ms": 51.0, "delivered": 0.98, "all_cpu_s": 1.0, "tok_s_error": 1e-4}
    for name, value in changed.items():
        load, _, key = name.rpartition("__")
        (latency if load else stream)[key] = value
    return {"latency": latency, "stream": stream, "cost 1": {**COST}, "cost 256": {**COST}}


def peer(**changed: float | None) -> dict[str, dict[str, Any]]:
    """A peer that times streams only, and is a little worse in each column."""
    stream = {"ttft_ms": 60.0, "ttft_truth_ms": 51.0, "tok_s_error": -0.03, "delivered": 0.9, "all_cpu_s": 9.0}
    return {"stream": {**stream, "start_s": 5.0, "memory_mb": 200.0, **changed}}


def test_no_target_is_missed_where_every_figure_is_within_it_and_a_table_without_any_peer_says_so() -> None:
    at_the_edge = {"ttft_ms": TARGETS["ttft_ms"], "delivered": DELIVERED, "memory_mb": TARGETS["memory_mb"]}
    assert misses(ours(**at_the_edge)) == []
    assert without_peers(["vllm", "aiperf"], {"ours": ours()}) == ["no peer was measured"]
    assert without_peers(["vllm", "aiperf"], {"ours": ours(), "aiperf": peer()}) == []
    assert without_peers(["ours", "floor"], {"ours": ours()}) == [], "none was asked for"


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"ttft_ms": 75.1}, "ttft_ms 75.1, target 75"),
        ({"latency__latency_ms": 136.0}, "latency_ms 136, target 135"),
        ({"tok_s_error": -0.02}, "tok_s_error 0.02, target 0.01"),
        ({"latency__tok_s_error": 0.02}, "tok_s_error 0.02, target 0.01"),
        ({"memory_mb": 61.0}, "memory_mb 61, target 60"),
        ({"delivered": 0.94}, "delivered 0.94 under stream, target 0.95"),
    ],
)
def test_a_missed_target_is_named_with_its_figure(changed: dict[str, float], named: str) -> None:
    assert misses(ours(**changed)) == [named]


def test_the_dearest_concurrency_and_the_quickest_start_are_held_to_their_targets() -> None:
    found = ours()
    found["cost 256"]["cpu_ms"] = 0.3
    found["cost 1"]["start_s"] = 9.0
    assert misses(found) == ["cpu_ms 0.3, target 0.2"]
    for each in found.values():
        each["start_s"] = 1.6
    assert misses(found) == ["cpu_ms 0.3, target 0.2", "start_s 1.6, target 1.5"]


@pytest.mark.parametrize(
    ("theirs", "named"),
    [
        ({"ttft_ms": 51.0, "ttft_truth_ms": 51.0}, None),  # both within what the table shows
        ({"ttft_ms": 45.0, "ttft_truth_ms": 51.0}, None),  # too early is as wrong as too late
        ({"delivered": 1.0}, None),
        ({"delivered": 1.04}, "delivered under stream"),
        ({"tok_s_error": -0.00001}, None),
        ({"all_cpu_s": 0.96}, None),
        ({"all_cpu_s": 0.94}, "CPU s under stream"),
        ({"start_s": 0.39}, None),
        ({"start_s": 0.3}, "start, s"),
        ({"memory_mb": 38.0}, "memory, MB"),
    ],
)
def test_ours_may_be_five_per_cent_behind_the_best_peer(theirs: dict[str, float], named: str | None) -> None:
    late = behind({"ours": ours(), "guidellm": peer(**theirs), "vllm": peer()})
    assert [each.rsplit(" ", 4)[0].rstrip(",") for each in late] == ([] if named is None else [named])
    assert all("guidellm has" in each for each in late)


def test_an_error_is_held_to_its_own_truth_and_the_bare_loop_or_a_missing_column_to_nothing() -> None:
    """Ours reports less than the peer, and is the worse of the two: its truth was less still."""
    late = behind({"ours": ours(ttft_ms=58.0), "aiperf": peer(ttft_ms=64.0, ttft_truth_ms=62.0)})
    assert late == ["TTFT error, ms 7, aiperf has 2"]
    late = behind({"ours": ours(tok_s_error=-0.03), "aiperf": peer(tok_s_error=0.02)})
    assert late == ["tok/s error under stream 0.03, aiperf has 0.02"]
    best = peer(all_cpu_s=0.1, start_s=0.1, memory_mb=20.0)
    assert behind({"ours": ours(), "floor": best, "httpx": best}) == []
    assert behind({"ours": ours(latency__latency_ms=400.0), "aiperf": peer(ttft_ms=None)}) == []
    assert behind({"vllm": best}) == []


@pytest.mark.parametrize(
    ("truth", "share"),
    [
        ([[0.0, 0.1, 4.0, 1], [0.0, 0.1, 4.0, 1], [2.0, 2.1, 4.0, 1]], 1.0),  # two, until the last came
        ([[0.0, 0.1, 1.0, 1], [2.0, 2.1, 3.0, 1]], 0.25),  # one, half of the time
        ([[5.0, 5.1, 6.0, 1]], 1.0),  # a load of one moment
    ],
)
def test_delivered_is_the_share_of_what_was_asked_until_the_last_came(truth: list[list[float]], share: float) -> None:
    assert delivered(truth, 2) == pytest.approx(share)
