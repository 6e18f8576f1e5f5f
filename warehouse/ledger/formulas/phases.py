"""The two parts of a run of a depth step, as windows of the speed machinery: tokens, and the seconds they took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from configs.steps.depth import DECODE, PREFILL, DepthShape

UNCOUNTED = (
    "engine_drafts", "engine_draft_tokens", "engine_accepted_tokens", "engine_accepted_by_position",
    "engine_denoising_steps",
)  # fmt: skip
"""What belongs to the decoding alone."""

OF_THE_RUN = ("chars", "energy_j", "power_w", "prefill_s", "decode_s")
"""What neither part has: sums over both, and the seconds that `wall_s` already is."""


def phases_of(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Prefill and decoding of one row of `depth_windows`; without a time there is no such part.

    `completion_tokens` and `wall_s` are what the rate is made of: of the prefill all tokens of the prompts, until the
    last of them has its first answer token; of the decoding the tokens behind first chunks, from the first of these to
    the last token of all.
    """
    shape = shape_of(run)
    parts = []
    if run["prefill_s"]:
        made = {"condition": shape.prefill_name, "mode": PREFILL, "completion_tokens": run["prompt_tokens"]}
        parts.append({**run, **dict.fromkeys(UNCOUNTED), **made, "wall_s": run["prefill_s"]})
    if run["decode_s"]:
        made = {"condition": shape.decode_name, "mode": DECODE, "completion_tokens": run["decode_tokens"]}
        parts.append({**run, **made, "wall_s": run["decode_s"]})
    return [part | dict.fromkeys(OF_THE_RUN) for part in parts]


def shape_of(run: Mapping[str, Any]) -> DepthShape:
    """What the run was asked for."""
    depth = run["depth_tokens"]
    return DepthShape(depth, run["context_tokens"] - depth, run["output_tokens"], run["concurrency"])
