"""The engine's own counters, read before and after a piece of work: the second count of every token.

Names and labels are those of vLLM's Prometheus metrics (`/metrics`). A counter that a server does not have is None:
"absent" (it does not speculate) and 0 (its draft is dead) are different findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

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
        positions = None
        if self.accepted_by_position is not None and before.accepted_by_position is not None:
            pairs = zip(self.accepted_by_position, before.accepted_by_position, strict=True)
            positions = tuple(after - earlier for after, earlier in pairs)
        plain = {
            field: _difference(getattr(self, field), getattr(before, field))
            for field in self._fields
            if field != "accepted_by_position"
        }
        return Counters(**plain, accepted_by_position=positions)

    @property
    def acceptance_length(self) -> float | None:
        """Mean tokens per verification step, 1 + accepted / drafts; None if nothing was drafted."""
        if not self.drafts or self.accepted_tokens is None:
            return None
        return 1 + self.accepted_tokens / self.drafts


def parse(text: str) -> Counters:
    """The counters on a `/metrics` page; None for each that it lacks."""
    found = list(samples(text))
    by_position: dict[int, float] = {}
    for name, labels, value in found:
        if name == "vllm:spec_decode_num_accepted_tokens_per_pos_total":
            position = int(labels["position"])
            by_position[position] = by_position.get(position, 0.0) + value

    def total(name: str) -> float | None:
        values = [value for named, _, value in found if named == f"vllm:{name}_total"]
        return sum(values) if values else None

    return Counters(
        generation_tokens=total("generation_tokens"),
        requests_finished=total("request_success"),
        drafts=total("spec_decode_num_drafts"),
        draft_tokens=total("spec_decode_num_draft_tokens"),
        accepted_tokens=total("spec_decode_num_accepted_tokens"),
        accepted_by_position=tuple(by_position[p] for p in sorted(by_position)) if by_position else None,
        denoising_steps=total("diffusion_num_denoising_steps"),
        committed_tokens=total("diffusion_num_committed_tokens"),
        prefix_hits=total("prefix_cache_hits"),
        preemptions=total("num_preemptions"),
    )


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of every figure on a `/metrics` page."""
    for line in text.splitlines():
        found = None if line.startswith("#") else _SAMPLE.match(line)
        if found:
            yield found["name"], dict(_LABEL.findall(found["labels"] or "")), float(found["value"])


def _difference(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before
