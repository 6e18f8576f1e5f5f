"""Rows of `load`: percentiles that the number of prompts can certify, goodput under stated limits, and overload.

An engine follows a schedule where what arrives also leaves; else more and more requests are in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt
from statistics import fmean, median
from typing import NamedTuple

from configs.steps.load import Limits
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.statistics.quantiles import certified, fewest_for, quantile
from warehouse.dataset.tables import LATENCIES, PERCENTILES
from warehouse.ledger.formulas import percentile_ms
from warehouse.ledger.verdicts import Reason

FILLED_SHARE = 0.25
"""Share of a schedule in which an engine fills. The number in flight stays the same afterwards, if the engine keeps
up. Filling takes as long as the longest answer does."""

GROWN_SHARE = 0.1
"""Share of what arrived since then that must have been left over. An engine that answers nine of ten requests keeps up,
or almost does, and so short a schedule doesn't show which."""

GROWN_DEVIATIONS = 3.0
"""And more than chance leaves over, in standard deviations. With independent arrivals the number in flight is
Poisson, so its variance is its mean L (M/G/inf: Cox and Miller, "The Theory of Stochastic Processes", 1965). The
difference between two moments has a variance of 2 L."""

ENDS_SHARE = 0.05
"""Share of the ends on either side that is no part of the rate: one long answer at the end would set it. In
between, as many end as arrive in as long a time if the engine keeps up; if it doesn't, the rate is its capacity."""

SWIFTER = 0.25
"""Quantile of the first ones' seconds per token: where a queue grows at once, most of them have waited already."""


class Followed(NamedTuple):
    """One schedule on one machine; requests in flight are counted from `FILLED_SHARE` of it to its last request."""

    offered_s: float  # requests per second that were asked for
    arrived_s: float | None
    """Requests per second that were due, between the first and the last `ENDS_SHARE` of them. By chance this rate
    differs from the one asked for, and `answered_s` is to be compared with this one. None: all were due at once."""
    answered_s: float | None
    """Requests per second that ended, between the first and the last `ENDS_SHARE` of all ends; None: it was filling."""
    in_flight: float  # mean number of requests in flight
    before: int  # in flight at its beginning
    after: int  # in flight at its end
    arrived: int  # requests that were due in it

    @property
    def is_overloaded(self) -> bool | None:
        """Whether more and more were in flight; None: the engine was still filling, so it can't be known."""
        if self.answered_s is None:
            return None
        grown = self.after - self.before
        chance = GROWN_DEVIATIONS * sqrt(2 * max(1, self.before))
        return grown > max(GROWN_SHARE * self.arrived, chance)

    @property
    def sentence(self) -> str:
        """The same in words, with the figures."""
        return (
            f"{Reason.OVERLOADED}: {self.before} requests in flight after a quarter of the schedule, {self.after} at "
            f"its end: {self.answered_s or 0.0:.3g} a second were answered of {self.offered_s:g} offered, so latencies "
            "are those of a queue that grows"
        )


def followed(rows: Sequence[Row]) -> Followed | None:
    """What became of a schedule, from rows of one load in one attempt; None: a closed loop, or too short to tell."""
    spans = [(row["due_s"], row["sent_s"] + row["wall_s"]) for row in rows if row["due_s"] is not None]
    end = max((due for due, _ in spans), default=0.0)
    begin = FILLED_SHARE * end
    answered_s = _middle_rate([ended for _, ended in spans])
    if end <= begin or answered_s is None:
        return None
    is_filled = _longest_s(rows, begin) <= begin
    inside_s = fsum(max(0.0, min(ended, end) - max(due, begin)) for due, ended in spans)
    return Followed(
        offered_s=rows[0]["rate_s"],
        arrived_s=_middle_rate([due for due, _ in spans]),
        answered_s=answered_s if is_filled else None,
        in_flight=inside_s / (end - begin),
        before=sum(due <= begin < ended for due, ended in spans),
        after=sum(due <= end < ended for due, ended in spans),
        arrived=sum(begin < due <= end for due, _ in spans),
    )


def _middle_rate(moments: Sequence[float]) -> float | None:
    """Moments per second between the first and the last `ENDS_SHARE` of them."""
    ordered = sorted(moments)
    left_out = int(ENDS_SHARE * len(ordered))
    first, last = left_out, len(ordered) - 1 - left_out
    seconds = ordered[last] - ordered[first] if ordered else 0.0
    return (last - first) / seconds if seconds > 0 else None


def _longest_s(rows: Sequence[Row], begin: float) -> float:
    """What the longest answer takes at the pace of the swifter of the first ones, before a queue could grow."""
    sent = [row for row in rows if row["due_s"] is not None and row["completion_tokens"]]
    paces = sorted(row["wall_s"] / row["completion_tokens"] for row in sent if row["due_s"] <= begin)
    longest = max((row["completion_tokens"] for row in sent), default=0)
    return float(longest * quantile(paces, SWIFTER)) if paces else 0.0


NAMED = ("run_id", "cell_key", "model", "precision", "technique", "k", "engine", "gpu", "machine", "step", "condition")
"""What a row of `load` has from its row of `results_consolidated`."""

ITL = "itl"  # the latency that is of tokens; all others are of requests
FROM_DUE = ("ttft", "e2e")  # latencies that begin with the request: on a schedule, when it was due
LATE_QUANTILE = 0.95  # of how late requests were sent


def load_row(
    row: Row, category: str | None, requests: Sequence[Row], limits: Limits | None, schedules: Sequence[Followed]
) -> Row:
    """Latencies and goodput of one condition, a category's or (None) the whole suite's.

    Requests are `timed`, of all starts on the row's machine. Closed loops have no schedules.
    """
    steady = [each for each in requests if each["is_steady"]]
    prompts = len({each["prompt_id"] for each in steady})
    chunks = [each["first_chunk_tokens"] for each in steady if each["first_chunk_tokens"] is not None]
    return {
        **{name: row[name] for name in NAMED},
        "concurrency": row["concurrency"],
        "category": category,
        "requests": len(steady),
        "prompts": prompts,
        "answer_tokens": fmean(each["completion_tokens"] for each in requests) if requests else None,
        "cut_off": sum(each["finish_reason"] == "length" for each in steady),
        "first_chunk_tokens": median(chunks) if chunks else None,
        **_percentiles(steady, prompts),
        **_scheduled(requests, schedules),
        **_goodput(steady, _requests_s(row, category, steady, schedules), limits),
    }


def _percentiles(steady: Sequence[Row], prompts: int) -> Row:
    """Of each latency: in which requests it exists, over how many prompts."""
    found: Row = {}
    for name in LATENCIES:
        if name == ITL:
            continue
        known = [(_latency_ms(each, name), each["prompt_id"]) for each in steady]
        values = [value for value, _ in known if value is not None]
        asked = min(prompts, len({prompt for value, prompt in known if value is not None}))
        found |= {f"{name}_p{percent}_ms": certified(values, percent, asked) for percent in PERCENTILES}
    return found | _of_tokens(steady)


def _of_tokens(steady: Sequence[Row]) -> Row:
    """Inter-token latencies, over all tokens; prompts certify them, since tokens of one answer resemble one another."""
    told = [each for each in steady if each["itl_histogram"]]
    prompts = len({each["prompt_id"] for each in told})
    histograms = [each["itl_histogram"] for each in told]
    return {
        f"{ITL}_p{percent}_ms": percentile_ms(histograms, percent) if prompts >= fewest_for(percent) else None
        for percent in PERCENTILES
    }


def late_ms(request: Row) -> float:
    """How late it was sent; in a closed loop it is due when it is sent."""
    return 0.0 if request["due_s"] is None else float(1000 * (request["sent_s"] - request["due_s"]))


def _scheduled(requests: Sequence[Row], schedules: Sequence[Followed]) -> Row:
    """What was offered, and whether it was too much; nothing for a closed loop."""
    if not schedules:
        return {}
    return {
        "offered_s": schedules[0].offered_s,
        "arrived_s": _mean_known([each.arrived_s for each in schedules]),
        "arrival": requests[0]["arrival"],
        "in_flight": fmean(each.in_flight for each in schedules),
        "overloaded": _any_known([each.is_overloaded for each in schedules]),
        "sent_late_ms": quantile(sorted(map(late_ms, requests)), LATE_QUANTILE),
    }


def _mean_known(values: Sequence[float | None]) -> float | None:
    """None if any of them is."""
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _any_known(found: Sequence[bool | None]) -> bool | None:
    """What one start saw is so; what none saw isn't, unless one of them can't tell."""
    return True if any(found) else None if None in found else False


def _latency_ms(request: Row, name: str) -> float | None:
    value: float | None = 1000 * request["wall_s"] if name == "e2e" else request[f"{name}_ms"]
    return value + late_ms(request) if value is not None and name in FROM_DUE else value


def _requests_s(row: Row, category: str | None, steady: Sequence[Row], schedules: Sequence[Followed]) -> float | None:
    """Requests answered per second, on a schedule all that ended; else by Little's law. None: it can't be known."""
    if schedules:
        return _mean_known([each.answered_s for each in schedules]) if category is None else None
    seconds = fsum(each["slot_share"] * each["wall_s"] for each in steady)
    return row["concurrency"] * len(steady) / seconds if seconds and row["concurrency"] else None


def _goodput(steady: Sequence[Row], requests_s: float | None, limits: Limits | None) -> Row:
    """Requests per second that kept every limit; an answer of one chunk has no TPOT, and breaks no limit on it.

    Source: `--goodput` of vLLM's `bench serve`, after DistServe (Zhong et al., arXiv 2401.09670).
    """
    if limits is None or not steady:
        return {"requests_s": requests_s}
    share = fmean(_keeps(each, limits) for each in steady)
    return {
        "requests_s": requests_s,
        "ttft_limit_ms": limits.ttft_ms,
        "tpot_limit_ms": limits.tpot_ms,
        "e2e_limit_s": limits.e2e_s,
        "goodput_s": None if requests_s is None else requests_s * share,
        "goodput_share": share,
    }


def _keeps(request: Row, limits: Limits) -> bool:
    e2e_ms = None if limits.e2e_s is None else 1000 * limits.e2e_s
    named = {"ttft": limits.ttft_ms, "tpot": limits.tpot_ms, "e2e": e2e_ms}
    bounds = ((_latency_ms(request, name), limit) for name, limit in named.items())
    return all(limit is None or value is None or value <= limit for value, limit in bounds)
