"""What the engine counts: of each request, and in sum on `/metrics`, under the names that vLLM has for it.

The page speaks vLLM's names because it is vLLM's door that is imitated: the readers of one engine's page are those of
the other's. What can only be 0 here says so in its HELP line; it isn't a dead counter: nothing of that kind happens.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple


class Drafts:
    """The drafting steps of one request, or of all. A step is one that had something to verify."""

    def __init__(self, k: int) -> None:
        self.steps = self.drafted = self.accepted = 0
        self.histogram = [0] * (k + 1)
        """Steps that accepted 0, 1, ..., K tokens."""

    def add(self, drafted: int, accepted: int) -> None:
        """Count a step; of `drafted` tokens `accepted` were committed. One without a draft is none."""
        if drafted == 0:
            return
        self.steps += 1
        self.drafted += drafted
        self.accepted += accepted
        self.histogram[accepted] += 1

    @property
    def by_position(self) -> list[int]:
        """Steps that accepted the first token, the second, ..., the Kth."""
        return [sum(self.histogram[position:]) for position in range(1, len(self.histogram))]

    def as_metrics(self) -> dict[str, Any]:
        """A request's account of them, as vLLM 0.29 and later give it in an answer."""
        return {
            "num_spec_steps": self.steps,
            "num_draft_tokens": self.drafted,
            "num_accepted_draft_tokens": self.accepted,
            "acceptance_histogram": list(self.histogram),
        }


class Clock(NamedTuple):
    """Moments of one request by `time.monotonic`, in seconds; None: there was no token."""

    arrived_s: float
    scheduled_s: float
    first_token_s: float | None
    last_token_s: float | None

    def as_metrics(self, tokens: int) -> dict[str, Any]:
        """A request's account of its time in ms, as vLLM 0.25 and later give it in an answer."""
        said: dict[str, Any] = {"queue_time_ms": 1000 * (self.scheduled_s - self.arrived_s)}
        if self.first_token_s is None or self.last_token_s is None:
            return said
        said["time_to_first_token_ms"] = 1000 * (self.first_token_s - self.scheduled_s)
        said["generation_time_ms"] = 1000 * (self.last_token_s - self.first_token_s)
        if tokens > 1:
            said["mean_itl_ms"] = said["generation_time_ms"] / (tokens - 1)
        return said


class Counters:
    """Running totals of the engine. Its one worker counts; any thread may show the page."""

    def __init__(self, model_name: str, k: int | None) -> None:
        """Nothing counted yet.

        Args:
            model_name: as served, for the labels.
            k: tokens drafted per step; None: nothing drafts, and there are no counters of drafts.
        """
        self._label = f'engine="0",model_name="{model_name}"'
        self._lock = threading.Lock()
        self._prompt_tokens = self._generation_tokens = 0
        self._finished: dict[str, int] = {}
        self._drafts = None if k is None else Drafts(k)

    def prompt(self, tokens: int) -> None:
        """A request was scheduled."""
        with self._lock:
            self._prompt_tokens += tokens

    def written(self, tokens: int) -> None:
        """A step committed so many tokens."""
        with self._lock:
            self._generation_tokens += tokens

    def drafted(self, drafted: int, accepted: int) -> None:
        """A step verified a draft."""
        with self._lock:
            if self._drafts is not None:
                self._drafts.add(drafted, accepted)

    def finished(self, reason: str) -> None:
        """A request ended."""
        with self._lock:
            self._finished[reason] = self._finished.get(reason, 0) + 1

    def page(self, gauges: Mapping[str, float]) -> str:
        """The page in Prometheus' text format.

        Args:
            gauges: further figures by name, labels included.
        """
        with self._lock:
            lines = [
                self._counter("vllm:prompt_tokens_total", self._prompt_tokens),
                self._counter("vllm:generation_tokens_total", self._generation_tokens),
                *(
                    self._counter("vllm:request_success_total", number, f',finished_reason="{reason}"')
                    for reason, number in sorted(({"stop": 0, "length": 0} | self._finished).items())
                ),
                "# HELP vllm:prefix_cache_hits_total always 0: generate() keeps no cache from one request to the next",
                self._counter("vllm:prefix_cache_hits_total", 0),
                "# HELP vllm:num_preemptions_total always 0: a request that was begun is ended before the next one",
                self._counter("vllm:num_preemptions_total", 0),
                *self._of_drafts(),
            ]
        return "\n".join([*lines, *(f"{name} {value:.12g}" for name, value in gauges.items())]) + "\n"

    def _of_drafts(self) -> list[str]:
        if self._drafts is None:
            return []
        return [
            self._counter("vllm:spec_decode_num_drafts_total", self._drafts.steps),
            self._counter("vllm:spec_decode_num_draft_tokens_total", self._drafts.drafted),
            self._counter("vllm:spec_decode_num_accepted_tokens_total", self._drafts.accepted),
            *(
                self._counter("vllm:spec_decode_num_accepted_tokens_per_pos_total", number, f',position="{position}"')
                for position, number in enumerate(self._drafts.by_position)
            ),
        ]

    def _counter(self, name: str, value: int, more: str = "") -> str:
        return f"{name}{{{self._label}{more}}} {value}"
