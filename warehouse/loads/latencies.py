"""Rows of `load`: percentiles of latencies that the number of prompts can certify, and goodput under stated limits."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from statistics import fmean

from configs.steps.load import Limits
from warehouse.consolidate.rows import Row
from warehouse.statistics.percentiles import certified
from warehouse.tables import LATENCIES, PERCENTILES

NAMED = ("run_id", "cell_key", "model", "precision", "technique", "k", "engine", "gpu", "machine", "step", "condition")
"""What a row of `load` has from its row of `results_consolidated`."""


def load_row(row: Row, category: str | None, requests: Sequence[Row], limits: Limits | None) -> Row:
    """Latencies and goodput of one condition.

    Args:
        row: its row of `results_consolidated`.
        category: of its prompts; None: the whole suite.
        requests: its requests, `timed`, of all visits on the row's machine.
        limits: for goodput; None: none were stated.
    """
    steady = [each for each in requests if each["is_steady"]]
    prompts = len({each["prompt_id"] for each in steady})
    return {
        **{name: row[name] for name in NAMED},
        "concurrency": row["concurrency"],
        "category": category,
        "requests": len(steady),
        "prompts": prompts,
        "answer_tokens": fmean(each["completion_tokens"] for each in requests) if requests else None,
        "cut_off": sum(each["finish_reason"] == "length" for each in requests),
        **_percentiles(steady, prompts),
        **_goodput(steady, row["concurrency"], limits),
    }


def _percentiles(steady: Sequence[Row], prompts: int) -> Row:
    """Of each latency: in which requests it exists, over how many prompts."""
    found: Row = {}
    for name in LATENCIES:
        known = [(_latency_ms(each, name), each["prompt_id"]) for each in steady]
        values = [value for value, _ in known if value is not None]
        asked = min(prompts, len({prompt for value, prompt in known if value is not None}))
        found |= {f"{name}_p{percent}_ms": certified(values, percent, asked) for percent in PERCENTILES}
    return found


def _latency_ms(request: Row, name: str) -> float | None:
    value: float | None = 1000 * request["wall_s"] if name == "e2e" else request[f"{name}_ms"]
    return value


def _goodput(steady: Sequence[Row], concurrency: int, limits: Limits | None) -> Row:
    """Requests per second that kept every limit. By Little's law requests per second are concurrency / mean time.

    Source: `--goodput` of vLLM's `bench serve`, after DistServe (Zhong et al., arXiv 2401.09670): good requests over
    seconds. An answer of one chunk has no TPOT, and breaks no limit on it.
    """
    seconds = fsum(each["wall_s"] for each in steady)
    if not seconds:
        return {}
    requests_s = concurrency * len(steady) / seconds
    if limits is None:
        return {"requests_s": requests_s}
    share = fmean(_keeps(each, limits) for each in steady)
    return {
        "requests_s": requests_s,
        "ttft_limit_ms": limits.ttft_ms,
        "tpot_limit_ms": limits.tpot_ms,
        "goodput_s": requests_s * share,
        "goodput_share": share,
    }


def _keeps(request: Row, limits: Limits) -> bool:
    bounds = ((request["ttft_ms"], limits.ttft_ms), (request["tpot_ms"], limits.tpot_ms))
    return all(limit is None or value is None or value <= limit for value, limit in bounds)
