"""What `bench/client.py` says of its table: targets that ours missed, and columns in which a peer is ahead of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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
