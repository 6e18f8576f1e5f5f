"""What the engine itself says of one request, in the body of its answer: its own clock, and its own drafts.

vLLM from 0.25 with --enable-per-request-metrics; drafts from 0.29 with --per-request-spec-decode-metrics. Source: vLLM
0.32.0, `entrypoints/generate/base/{protocol,serving}.py`, `v1/metrics/stats.py`. Streams have it beside the last usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class EngineTruth(NamedTuple):
    """One request by the engine's account; None for what it didn't say.

    Times in ms: `queue_ms` from arrival until it was scheduled, `ttft_ms` from there to the first token,
    `generation_ms` from the first token to the last, `itl_ms` the same per token after the first. A draft step is one
    that verified a draft. Of the accepted tokens some may stand behind the request's last one.
    """

    queue_ms: float | None = None
    ttft_ms: float | None = None
    generation_ms: float | None = None
    itl_ms: float | None = None
    draft_steps: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_histogram: list[int] | None = None
    """Draft steps that accepted 0, 1, ..., K tokens."""


def engine_truth(metrics: Mapping[str, Any] | None) -> EngineTruth:
    """The `metrics` of an answer."""
    said = metrics or {}
    drafts = said.get("speculative_decoding") or {}
    return EngineTruth(
        queue_ms=said.get("queue_time_ms"),
        ttft_ms=said.get("time_to_first_token_ms"),
        generation_ms=said.get("generation_time_ms"),
        itl_ms=said.get("mean_itl_ms"),
        draft_steps=drafts.get("num_spec_steps"),
        draft_tokens=drafts.get("num_draft_tokens"),
        accepted_tokens=drafts.get("num_accepted_draft_tokens"),
        accepted_histogram=drafts.get("acceptance_histogram"),
    )
