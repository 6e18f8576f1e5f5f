"""Whether our client tells the truth, and what it costs, beside its peers and a bare loop, against one mock engine.

    bin/run python bench/client.py [CLIENT ...]

Clients: ours, floor (a bare asyncio protocol that does nothing but this), httpx (its own transport), and the peers that
`bench/peers.py` knows and finds installed. Each test starts a client in a process of its own, ours in the environment
of a node. Loads are closed loops:

- `latency`: 256 in flight, not streamed, each held 100 ms; `cost`: the same answered at once, at 1 to 256 in flight;
- `stream`: 256 in flight, 64 tokens, the first after 50 ms, then one each 20 ms.

Truth is what the mock saw (`bench/mock_engine.py`); "delivered" is its own mean of requests in flight while there were
some left to send, over those asked. Processor time is the client's own within its window; of a peer it is all that its
processes took, with their start. Exit 1: ours misses a target, is behind a peer (`behind`), or none of the
peers that were asked for was measured. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from bench import peers
from configs.checkout import ROOT
from tasks.host.environments import ensure

OWN = ("ours", "floor", "httpx")  # clients that bench/client_loops.py runs

TARGETS = {"cpu_ms": 0.2, "latency_ms": 135.0, "ttft_ms": 75.0, "tok_s_error": 0.01, "start_s": 1.5, "memory_mb": 60.0}
"""Most that ours may show.

`cpu_ms`: CPU per request at any concurrency. `latency_ms`: reported latency where the truth is 100. `ttft_ms`: reported
TTFT where the truth is 51. `tok_s_error`: error of tokens per second. `start_s`: process start to first request.
`memory_mb`: memory at 256 requests in flight."""

DELIVERED = 0.95
"""Least share of the requested streams that is in flight. Streams of 100 ms spend much of their round on the way,
whichever client sends."""

WITHIN = 0.05  # share of the best peer's figure by which ours may be behind it
Loads = dict[str, dict[str, Any]]  # what one client did under each load that it was given
TOKENS = 64


class Load(NamedTuple):
    """One test: what the mock does, and what the client is to send."""

    name: str
    mock_ms: tuple[float, float, float]
    streams: bool
    concurrency: int
    requests: int


LOADS = (
    Load("latency", (100, 0, 0), False, 256, 3072),
    *(Load(f"cost {concurrency}", (0, 0, 0), False, concurrency, 3000) for concurrency in (1, 16, 64, 256)),
    Load("stream", (0, 50, 20), True, 256, 768),
)


class Mock:
    """The mock engine as a process."""

    def __init__(self, mock_ms: tuple[float, float, float]) -> None:
        argv = [sys.executable, str(ROOT / "bench/mock_engine.py"), *map(str, mock_ms)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.url = self.process.stdout.readline().strip()

    def truth(self) -> Any:
        """Of each request: when it came, when its first and last token were sent, its tokens."""
        with urllib.request.urlopen(f"{self.url}/truth", timeout=60) as response:
            return json.load(response)

    def close(self) -> None:
        """End it."""
        self.process.communicate(timeout=30)


def body_of(streams: bool) -> str:
    """What our own clients ask for, made in another process: what this one imported would count as their memory."""
    argv = [str(ensure("node")), str(ROOT / "bench/client_loops.py"), "stream" if streams else "whole"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def measured(client: str, load: Load, folder: Path) -> dict[str, Any]:
    """One client under one load: what it reported, what was true, what it cost."""
    mock = Mock(load.mock_ms)
    try:
        counts = [str(load.concurrency), str(load.requests)]
        if client in OWN:
            loop = [str(ensure("node")), str(ROOT / "bench/client_loops.py"), client, mock.url, *counts]
            command = peers.Command([*loop, body_of(load.streams)], {})
        else:
            shape = [mock.url, "stream" if load.streams else "whole", *counts]
            command = peers.command(client, shape, TOKENS, folder)
        begun_s = time.monotonic()
        with (folder / "said.txt").open("w+") as said:
            process = subprocess.Popen(
                command.argv, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, **command.env}, cwd=ROOT
            )
            _, status, usage = os.wait4(process.pid, 0)
            said.seek(0)
            words = said.read()
        if status:
            raise RuntimeError(f"{client} under {load.name}: {words.strip().splitlines()[-1:]}")
        reported = json.loads(words.splitlines()[-1]) if client in OWN else peers.reported(client, folder)
        truth = mock.truth()[-load.requests :]
    finally:
        mock.close()
    span_s = max(row[2] for row in truth) - min(row[0] for row in truth)
    tok_s = sum(row[3] for row in truth) / span_s
    if load.mock_ms[0]:
        reported["latency_truth_ms"] = 1000 * fmean(row[2] - row[0] for row in truth)
    if load.streams:
        reported["ttft_truth_ms"] = 1000 * fmean(row[1] - row[0] for row in truth)
    all_cpu_s = usage.ru_utime + usage.ru_stime
    reported.setdefault("cpu_ms", 1000 * all_cpu_s / load.requests)
    return {
        **reported,
        "tok_s_error": reported["tok_s"] / tok_s - 1,
        "delivered": delivered(truth, load.concurrency),
        "start_s": min(row[0] for row in truth) - begun_s,
        "all_cpu_s": all_cpu_s,
        "memory_mb": usage.ru_maxrss / 1024,
    }


def line(client: str, of: dict[str, dict[str, Any]]) -> str:
    """A client's row of the table."""

    def shown(load: str, name: str, form: str = ".0f") -> str:
        value = of.get(load, {}).get(name)
        return "-" if value is None else format(value, form)

    def both(load: str, name: str) -> str:
        return f"{shown(load, name + '_ms')} ({shown(load, name + '_truth_ms')})"

    cpu = "/".join(shown(f"cost {concurrency}", "cpu_ms", ".2f") for concurrency in (1, 16, 64, 256))
    starts = [each["start_s"] for each in of.values() if "start_s" in each]
    memory = [each["memory_mb"] for each in of.values() if "memory_mb" in each]
    cells = [
        client,
        both("latency", "latency"),
        shown("latency", "delivered", ".2f"),
        both("stream", "ttft"),
        shown("stream", "tok_s_error", "+.1%"),
        shown("stream", "delivered", ".2f"),
        cpu,
        shown("stream", "cpu_ms", ".2f"),
        f"{min(starts):.1f}" if starts else "-",
        f"{max(memory):.0f}" if memory else "-",
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| Client | latency, ms (truth) | delivered | TTFT, ms (truth) | tok/s error | delivered | CPU ms a request, "
    "c=1/16/64/256 | CPU ms a stream | start, s | MB |\n|---|---|---|---|---|---|---|---|---|---|"
)


class Column(NamedTuple):
    """A column of the table as a figure to compare; `of` returns None where a client has none."""

    name: str
    of: Callable[[Loads], float | None]
    more_is_better: bool = False
    grain: float = 0.0  # errors may be next to nothing: least difference that the table shows


def delivered(truth: list[list[float]], concurrency: int) -> float:
    """Mean requests in flight at the mock over those asked, from the first to the last that came."""
    begin, end = min(row[0] for row in truth), max(row[0] for row in truth)
    inside_s = sum(max(0.0, min(row[2], end) - row[0]) for row in truth)
    return inside_s / (concurrency * (end - begin)) if end > begin else 1.0


def misses(ours: dict[str, dict[str, Any]]) -> list[str]:
    """Targets that ours missed, each with its figure."""
    stream, latency = ours["stream"], ours["latency"]
    cost = {name: each["cpu_ms"] for name, each in ours.items() if name.startswith("cost")}
    figures = {
        "cpu_ms": max(cost.values()),
        "latency_ms": latency["latency_ms"],
        "ttft_ms": stream["ttft_ms"],
        "tok_s_error": max(abs(stream["tok_s_error"]), abs(latency["tok_s_error"])),
        "start_s": min(each["start_s"] for each in ours.values()),
        "memory_mb": max(latency["memory_mb"], stream["memory_mb"]),
    }
    missed = [
        f"{name} {value:.3g}, target {TARGETS[name]:g}" for name, value in figures.items() if value > TARGETS[name]
    ]
    if stream["delivered"] < DELIVERED:
        missed.append(f"delivered {stream['delivered']:.2f} under stream, target {DELIVERED:g}")
    return missed


def without_peers(asked: Sequence[str], found: Mapping[str, Loads]) -> list[str]:
    """A table without a peer to compare with is no good news, though no client in it is ahead."""
    wanted = {*asked} - {*OWN}
    return ["no peer was measured"] if wanted and not wanted & {*found} else []


def behind(found: dict[str, Loads]) -> list[str]:
    """Columns in which ours is more than `WITHIN` behind the best peer; the bare loop and httpx are none."""
    late = []
    for column in COLUMNS:
        figures = {client: figure for client, of in found.items() if (figure := column.of(of)) is not None}
        ours, peers = figures.get("ours"), {name: each for name, each in figures.items() if name not in OWN}
        if ours is None or not peers:
            continue
        first = (max if column.more_is_better else min)(peers, key=lambda name: peers[name])
        best = peers[first]
        limit = best * (1 - WITHIN) if column.more_is_better else best * (1 + WITHIN) + column.grain
        if ours < limit if column.more_is_better else ours > limit:
            late.append(f"{column.name} {ours:.3g}, {first} has {best:.3g}")
    return late


def _figure(load: str, name: str) -> Callable[[Loads], float | None]:
    return lambda of: of.get(load, {}).get(name)


def _off(load: str, name: str) -> Callable[[Loads], float | None]:
    """How far the reported figures are from the truth of that client's own run."""

    def of_loads(of: Loads) -> float | None:
        reported, truth = (of.get(load, {}).get(f"{name}_{end}") for end in ("ms", "truth_ms"))
        return None if reported is None or truth is None else abs(reported - truth)

    return of_loads


def _rate_error(of: Loads) -> float | None:
    error = of.get("stream", {}).get("tok_s_error")
    return None if error is None else abs(error)


def _extreme(pick: Callable[..., float], name: str) -> Callable[[Loads], float | None]:
    return lambda of: pick((each[name] for each in of.values() if name in each), default=None)


COLUMNS = (
    Column("latency error, ms", _off("latency", "latency"), grain=1.0),
    Column("delivered under latency", _figure("latency", "delivered"), more_is_better=True),
    Column("TTFT error, ms", _off("stream", "ttft"), grain=1.0),
    Column("tok/s error under stream", _rate_error, grain=0.001),
    Column("delivered under stream", _figure("stream", "delivered"), more_is_better=True),
    # with the start of its process, as a peer's: `cpu_ms` of ours is within its window
    Column("CPU s under stream", _figure("stream", "all_cpu_s")),
    Column("start, s", _extreme(min, "start_s")),
    Column("memory, MB", _extreme(max, "memory_mb")),
)
"""Those of the table that peers can have: none is asked for the loads of `cost`."""


def main(names: list[str]) -> int:
    """Measure the clients, print the table; 1 if ours misses a target or is behind a peer, or none was measured."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for client in names or [*OWN, *peers.PEERS]:
        if client not in OWN and (why := peers.why_not(client)):
            print(f"{client}: left out: {why}", flush=True)
            continue
        for load in LOADS:
            if client not in OWN and not (load.streams or (client in peers.WHOLE and load.mock_ms[0])):
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    found.setdefault(client, {})[load.name] = measured(client, load, Path(folder))
                except (RuntimeError, OSError, KeyError, ValueError) as error:
                    print(f"{client}: {load.name}: {error!r}", flush=True)
        print(line(client, found.get(client, {})), flush=True)
    print(f"\n{HEAD}", *(line(client, of) for client, of in found.items()), sep="\n")
    missed = misses(found["ours"]) if len(found.get("ours", {})) == len(LOADS) else ["ours was not measured whole"]
    if "floor" in found and "ours" in found:
        for load, name in (("latency", "latency_ms"), ("stream", "ttft_ms"), ("cost 256", "cpu_ms")):
            ours, floor = found["ours"][load][name], found["floor"][load][name]
            print(f"{load}: {name} {ours:.3g}, {ours / floor:.2f} of the bare loop's {floor:.3g}")
    missed += without_peers(names or peers.PEERS, found)
    late = behind(found)
    for each in missed:
        print(f"missed: {each}")
    for each in late:
        print(f"behind: {each}")
    print(json.dumps({"clients": found, "missed": missed, "behind": late, "load_average": os.getloadavg()}))
    return 1 if missed or late else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = (*OWN, *peers.PEERS)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"of {', '.join(known)}; none: all")
    asked = parser.parse_args().clients
    for unknown in sorted(set(asked) - set(known)):
        parser.error(f"CLIENT {unknown}: none of {', '.join(known)}")
    sys.exit(main(asked))
