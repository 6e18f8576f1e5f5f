"""Guards over machine and windows: is it the planned card, what slowed it, do repeats agree, did the client keep up?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, sqrt
from statistics import fmean, mean, stdev
from typing import Any

from configs.cell import Gpu, Model, Technique
from warehouse.ledger.formulas import student_quantile
from warehouse.ledger.tables import Row
from warehouse.ledger.verdicts import Finding, Reason

CV_BOUND = 0.15
"""Coefficient of variation of the repeats from which they are not of one thing. Healthy on two cores: 1 to 3 % alone,
below 10 % four at a time. A starved client had 35 and 43 %, two machines under one name 18.7 % (2026-11)."""

LATE_BOUND = 0.05
"""Largest lateness, as a share of the clock's time: what one missed moment can cost. Beyond it a figure may be off by
more than repeats of a healthy machine differ."""

WAITED_BOUND = 0.2
"""Share of the time in which the client waited for a processor, its watch's own wake-ups included. With seven busy
tasks on two cores rates were off by about a quarter of it (2 % at .07 and .11, 8 % at .30; 2026-11), so by 5 % here."""

CALM_LATE_MS = 10.0
"""A calm machine's timers are this late now and then (7 to 10 ms on two cores with a busy engine that yields)."""

DELIVERED_BOUND = 0.95
"""Least share of the asked requests that must be in flight on average: below it a rate is that of another load. Own
client at 256 in flight on two loaded cores: 0.97, streamed 0.99; peers there deliver 0.44 to 0.90 of the load, httpx as
it comes 0.03 and 0.19 (bench/README.md)."""

BEHIND_SHARE = 0.05
"""Share of an open loop's requests that may be late. Late means by more than `LATE_BOUND` of the time to a first token,
and by more than a calm machine is. Beyond it the 95th percentile of their latencies is the client's."""

BURSTS = (Reason.STREAM_BURST, Reason.STREAM_MISMATCH, Reason.LATE_FIRST_TOKEN)  # as a client that slept sees a stream


def half_width(rates: Sequence[float]) -> float:
    """Half of the 95 % t interval of the mean log rate, as a share: t(0.975, n - 1) s / sqrt(n), s of the logs.

    Infinite for a single rate, and where one is not above 0.
    """
    if len(rates) < 2 or min(rates) <= 0:
        return float("inf")
    return student_quantile(0.025, len(rates) - 1) * stdev(map(log, rates)) / sqrt(len(rates))


def unsteady(paces: Sequence[float], within: float | None, what: str = "decoding steps/s") -> Finding | None:
    """Repeats of a start must agree, and have settled their pace where a half-width `within` was asked for.

    `paces` are decoding steps/s of each repeat: tok/s would scatter by prompt where drafts do.
    """
    number = len(paces)
    if number < 2:
        return None
    if min(paces) <= 0:
        stood = sum(pace <= 0 for pace in paces)
        return Finding(Reason.UNSTEADY, "suspect", f"{stood} of {number} repeats have no decoding steps")
    cv, half = stdev(paces) / mean(paces), half_width(paces)
    said = []
    if cv > CV_BOUND:
        said.append(f"{what} of {number} repeats differ by {cv:.1%} (their cv, bound {CV_BOUND:.0%})")
    if within is not None and half > within:
        said.append(f"{number} repeats leave the {what} within ±{half:.1%}, asked was ±{within:.1%}")
    return Finding(Reason.UNSTEADY, "suspect", "; ".join(said)) if said else None


def is_starved(window: Mapping[str, Any]) -> bool:
    """Whether a window's client was kept waiting, once for long or often; unknown in older windows is no.

    Its clock is the wall clock. For streams it is the time to a first token (`prefill_s`), the shortest that is read in
    them, or one request's time where that is unknown.
    """
    if window.get("client_late_ms") is None:
        return False
    clock_s = window["wall_s"]
    if window["mode"] == "stream":
        clock_s = window.get("prefill_s") or clock_s * window["concurrency"] / window["requests"]
    late_ms, share = window["client_late_ms"], window.get("client_late_share") or 0.0
    return late_ms > max(CALM_LATE_MS, 1000 * LATE_BOUND * clock_s) or share > WAITED_BOUND


def client_starved(windows: Sequence[Mapping[str, Any]]) -> Finding | None:
    """In no window may the client have been kept waiting for longer than its figure bears."""
    starved = [row for row in windows if is_starved(row)]
    if not starved:
        return None
    row = max(starved, key=lambda each: float(each["client_late_ms"]))
    share = row.get("client_late_share")
    waited = "" if share is None else f", for {share:.0%} of it without a processor"
    sentence = (
        f"{len(starved)} of {len(windows)} windows timed a client that was kept waiting: its timer woke up to "
        f"{row['client_late_ms']:.0f} ms late in {row['wall_s']:.2f} s{waited} (measured {row.get('tries') or 1} times)"
    )
    return Finding(Reason.CLIENT_STARVED, "suspect", sentence)


def is_client_limited(window: Mapping[str, Any]) -> bool:
    """Whether the client kept fewer requests in flight than asked; a window of before that was measured is none."""
    delivered = window.get("delivered_share")
    return delivered is not None and delivered < DELIVERED_BOUND


def client_limited(windows: Sequence[Mapping[str, Any]]) -> Finding | None:
    """In each window the asked load must have been delivered."""
    limited = [row for row in windows if is_client_limited(row)]
    if not limited:
        return None
    row = min(limited, key=lambda each: float(each["delivered_share"]))
    sentence = (
        f"{len(limited)} of {len(windows)} windows had fewer requests in flight than asked: down to "
        f"{row['delivered_share'] * row['concurrency']:.1f} of {row['concurrency']} on average "
        f"(bound {DELIVERED_BOUND:.0%}, measured {row.get('tries') or 1} times)"
    )
    return Finding(Reason.CLIENT_LIMITED, "suspect", sentence)


def client_behind(late_ms: Sequence[float], first_ms: Sequence[float]) -> Finding | None:
    """In an open loop requests must be sent when they are due, or the load is another one, and its latencies too long.

    `late_ms`: from a request's moment in the schedule to its sending; `first_ms`: from there to its first token.
    """
    if not late_ms:
        return None
    bound_ms = max(CALM_LATE_MS, LATE_BOUND * fmean(first_ms or [0.0]))
    behind = sum(late > bound_ms for late in late_ms)
    if behind <= BEHIND_SHARE * len(late_ms):
        return None
    sentence = (
        f"{behind} of {len(late_ms)} requests were sent more than {bound_ms:.0f} ms behind the schedule, up to "
        f"{max(late_ms):.0f} ms (bound {BEHIND_SHARE:.0%} of them)"
    )
    return Finding(Reason.CLIENT_LIMITED, "suspect", sentence)


def other_gpu(gpu: Gpu, gpu_name: str | None) -> Finding | None:
    """The card that the driver names must be the planned one: an "H100 PCIe" has 0.6 of an SXM's bandwidth.

    Nothing is found without `reported_as`, or where nobody gave a name. Without a card, `gpu_name` is the processor's.
    """
    if not gpu.reported_as or gpu_name is None or gpu_name in gpu.reported_as:
        return None
    planned = " or ".join(gpu.reported_as)
    return Finding(Reason.OTHER_GPU, "suspect", f"{gpu.name} was planned ({planned}), this is {gpu_name}")


PROTECTION = {
    "hw_thermal_slowdown": "it was too hot",
    "sw_thermal_slowdown": "it was as hot as it may be",
    "hw_power_brake": "its power supply braked it",
}
"""Reasons by which a card protects itself. Hardware halves the clock; long before that the driver (sw) lowers it to
keep card and memory at their maximum operating temperature. A power limit (sw_power_cap) is how cards run under full
load, and is only reported; hw_slowdown may also show as a card changes its clock. Source: NVML's
nvmlClocksEventReasons."""


def throttled(windows: Sequence[Row]) -> Finding | None:
    """A card that protects itself is slower than others of its kind."""
    for reason, why in PROTECTION.items():
        number = sum(reason in (row.get("throttle_reasons") or ()) for row in windows)
        if number:
            sentence = f"a card held its clock down in {number} of {len(windows)} windows: {why} ({reason})"
            return Finding(Reason.THROTTLED, "suspect", sentence)
    return None


def log_unread(unsaid: Sequence[str]) -> Finding | None:
    """A line that every start of such an engine writes, and that isn't there: its words are unknown."""
    if not unsaid:
        return None
    sentence = f"the engine's log has no line that we know for {', '.join(unsaid)}: null, not nothing"
    return Finding(Reason.LOG_UNREAD, "suspect", sentence)


SHARED = "share their experts"  # in each wording of the finding so far: a rate that is judged again is known by it


def same_experts(model: Model, technique: Technique, k: int | None, concurrency: int | None) -> Finding | None:
    """The tokens of a step must read about as many experts as those of real weights would.

    vLLM draws every dummy parameter from one seed, so embedding and head are alike. AR then repeats one token, the same
    in every request. (166 answers of "." alone on Qwen3.6 35B-A3B.) The router then sends all of them to one set of
    experts: a step at c=16 reads 8 of 256, where texts that differ read about 100. One H200, Gemma 4 26B-A4B in fp8,
    AR: 3262 tok/s at c=16 and 2017 with experts drawn (`routing: random`), 265 and 266 at c=1. The tokens that one
    request has verified are several, too: K=4 at c=1 419 and 380 (bench/h200).

    Of n experts, t tokens whose texts differ read n (1 - (1 - k/n)^t) if each takes k as if by chance. That is how
    vLLM 0.32.0 draws (top-k of uniform scores, PR #43680, `fused_moe/router/routing_simulator_router.py`). 0.25.1,
    which serves shapes without a network (engines/vllm-shapes.yaml), draws with replacement (`torch.randint`) and reads
    fewer: n (1 - (1 - 1/n)^(k t)). With k = 8 of 128 that is 7.78 for one token and 81.1 for 16, where 8 and 82.4 would
    be. So the experts' part of a step is too short by 2.7 % and 1.6 %.
    """
    if model.weights == "real" or not model.is_moe or model.routing is not None:
        return None
    requests = concurrency or 1
    if requests == 1 and technique.is_baseline:
        return None
    tokens = "canvas" if technique.denoises else "tokens" if k is None else f"{1 + k} tokens"
    of_each = "" if technique.is_baseline else f", the {tokens} of each,"
    said = f"{requests} request{'s' * (requests > 1)} at a time of dummy weights{of_each} {SHARED}"
    return Finding(Reason.SAME_EXPERTS, "suspect", f"{said}; remedy: `routing: random` in the file of {model.name}")
