"""The engine's own counters, read before and after a piece of work: the second count of every token.

Names and labels are those of vLLM's Prometheus metrics (`/metrics`). A counter that a server does not have is None:
"absent" (it does not speculate) and 0 (its draft is dead) are different findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

NAMES = {
    "generation_tokens": ("vllm:generation_tokens_total",),
    "requests_finished": ("vllm:request_success_total",),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "denoising_steps": ("vllm:diffusion_num_denoising_steps_total",),
    "committed_tokens": ("vllm:diffusion_num_committed_tokens_total",),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "preemptions": ("vllm:num_preemptions_total",),
}
"""Name of each plain counter in vLLM 0.32.0, then older ones (early v1 engines counted hits of the "gpu" cache, some in
blocks). The first that a page has is read: versions of a transition show both."""

BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Counters(NamedTuple):
    """Running totals of one engine, summed over its engine processes."""

    generation_tokens: float | None
    requests_finished: float | None
    drafts: float | None
    draft_tokens: float | None
    accepted_tokens: float | None
    accepted_by_position: tuple[float, ...] | None
    denoising_steps: float | None
    committed_tokens: float | None
    prefix_hits: float | None
    preemptions: float | None

    def since(self, before: Counters) -> Counters:
        """What was counted between `before` and now; None where either reading lacks the counter."""
        positions, now, then = None, self.accepted_by_position, before.accepted_by_position
        if now is not None and then is not None and len(now) >= len(then):
            positions = tuple(after - earlier for after, earlier in zip_longest(now, then, fillvalue=0.0))
        counted: dict[str, float | None] = {}
        for field in NAMES:
            after, earlier = getattr(self, field), getattr(before, field)
            counted[field] = None if after is None or earlier is None else after - earlier
        return Counters(**counted, accepted_by_position=positions)

    def columns(self) -> dict[str, int | list[int] | None]:
        """As `ENGINE_COLUMNS` of the warehouse names them."""
        positions = self.accepted_by_position
        columns: dict[str, int | list[int] | None] = {
            "engine_accepted_by_position": None if positions is None else [int(value) for value in positions]
        }
        for field in NAMES:
            if field != "requests_finished":
                value = getattr(self, field)
                columns[f"engine_{field}"] = None if value is None else int(value)
        return columns


def parse(text: str) -> Counters:
    """The counters on a `/metrics` page; None for each that it lacks."""
    totals: dict[str, float] = {}
    by_position: dict[int, float] = {}
    for name, labels, value in samples(text):
        totals[name] = totals.get(name, 0.0) + value
        if name == BY_POSITION:
            position = int(labels["position"])
            by_position[position] = by_position.get(position, 0.0) + value
    plain = {field: next((totals[name] for name in names if name in totals), None) for field, names in NAMES.items()}
    positions = tuple(by_position[position] for position in sorted(by_position)) or None
    return Counters(**plain, accepted_by_position=positions)


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of every figure on a `/metrics` page."""
    for line in text.splitlines():
        found = None if line.startswith("#") else _SAMPLE.match(line)
        if found:
            yield found["name"], dict(_LABEL.findall(found["labels"] or "")), float(found["value"])
