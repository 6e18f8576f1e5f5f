"""One request at a time, in the order in which they came: `generate` isn't batched here.

The door's threads queue requests, one worker computes. So the concurrency of several is a queue, and no throughput.
"""

from __future__ import annotations

import collections
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tasks.transformers_engine.asked import Asked
from tasks.transformers_engine.writing import Text, Writer


class Drafts:
    """The drafting steps of one request, or of all. A step is one that had something to verify."""

    def __init__(self, k: int) -> None:
        self.steps = self.drafted = self.accepted = 0
        self.histogram = [0] * (k + 1)  # steps that accepted 0, 1, ..., K tokens; more where K grows

    def add(self, drafted: int, accepted: int) -> None:
        """Count a step; of `drafted` tokens `accepted` were committed. One without a draft is none."""
        if drafted == 0:
            return
        self.steps += 1
        self.drafted += drafted
        self.accepted += accepted
        self.histogram += [0] * (accepted + 1 - len(self.histogram))
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
    """Running totals of the engine. Its one worker counts; any thread may show the page.

    The page has vLLM's names for the readers of either engine; a HELP line says of what it can only be 0 here.
    """

    def __init__(self, model_name: str, k: int | None) -> None:
        """With `k` None nothing drafts, and there are no counters of drafts. `model_name` is for the labels."""
        self._label = f'engine="0",model_name="{model_name}"'
        self._lock = threading.Lock()
        self._prompt_tokens = self._generation_tokens = 0
        self._finished = collections.Counter(stop=0, length=0)
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
            self._finished[reason] += 1

    def page(self, gauges: Mapping[str, float]) -> str:
        """The page in Prometheus' text format; `gauges` are further figures by name, labels included."""

        def total(name: str, value: int, more: str = "") -> str:
            return f"vllm:{name}_total{{{self._label}{more}}} {value}"

        with self._lock:
            lines = [total("prompt_tokens", self._prompt_tokens), total("generation_tokens", self._generation_tokens)]
            for reason, number in sorted(self._finished.items()):
                lines.append(total("request_success", number, f',finished_reason="{reason}"'))
            lines += [
                "# HELP vllm:prefix_cache_hits_total always 0: generate() keeps no cache from one request to the next",
                total("prefix_cache_hits", 0),
                "# HELP vllm:num_preemptions_total always 0: a request that was begun is ended before the next one",
                total("num_preemptions", 0),
            ]
            if self._drafts is not None:
                lines.append(total("spec_decode_num_drafts", self._drafts.steps))
                lines.append(total("spec_decode_num_draft_tokens", self._drafts.drafted))
                lines.append(total("spec_decode_num_accepted_tokens", self._drafts.accepted))
                for position, number in enumerate(self._drafts.by_position):
                    lines.append(total("spec_decode_num_accepted_tokens_per_pos", number, f',position="{position}"'))
        return "\n".join([*lines, *(f"{name} {value:.12g}" for name, value in gauges.items())]) + "\n"


DEADLY = ("CUDA error", "device-side assert")
"""Words of an error after which a card answers nothing any more: an engine that is gone is noticed, one that only says
500 isn't."""


class Logprob(NamedTuple):
    """A written token's log-probability in nats, and those of the best candidates at its place, best first."""

    token_id: int
    logprob: float
    best: Sequence[tuple[int, float]]


class Step(NamedTuple):
    """What one step added to an answer; `tokens` is their running number."""

    text: Text
    tokens: int


class Done(NamedTuple):
    """An answer's end."""

    token_ids: list[int]
    text: Text  # all of it
    rest: Text  # what no step has shown yet
    finish_reason: str
    stopped_by: str | None
    clock: Clock
    drafts: Drafts | None
    logprobs: Sequence[Logprob] | None


class Generates(Protocol):
    """What computes. `on_tokens` gets the tokens of each step and says whether to stop there."""

    def generate(
        self,
        prompt: Sequence[int],
        asked: Asked,
        max_tokens: int,
        on_draft: Callable[[int, int], None],
        on_tokens: Callable[[list[int]], bool],
    ) -> Sequence[Logprob] | None:
        """Decode one request; returns its tokens' probabilities if it asks for them."""

    def ends(self, token: int) -> bool:
        """Whether the token ends an answer."""


class Job:
    """A request that waits, or is being answered."""

    def __init__(
        self, asked: Asked, prompt: Sequence[int], max_tokens: int, writer: Writer, is_gone: Callable[[], bool]
    ) -> None:
        """A request that just came; `is_gone` says whether its sender has hung up."""
        self.asked, self.prompt, self.max_tokens, self.writer, self.is_gone = asked, prompt, max_tokens, writer, is_gone
        self.arrived_s = time.monotonic()
        self._said: queue.SimpleQueue[Step | Done | Exception] = queue.SimpleQueue()

    def tell(self, said: Step | Done | Exception) -> None:
        """For the worker: what came of it so far."""
        self._said.put(said)

    def events(self) -> Iterator[Step | Done]:
        """Its steps as they come, and its end; raises what went wrong with it."""
        while True:
            said = self._said.get()
            if isinstance(said, Exception):
                raise said
            yield said
            if isinstance(said, Done):
                return


class HungUp(Exception):
    """The other side has hung up: nobody reads the answer."""


class Turns:
    """The queue and its worker."""

    def __init__(self, generator: Generates, counters: Counters, k: int | None, die: Callable[[], None]) -> None:
        """A queue without its worker. With `k` None nothing drafts; `die` ends the process at once."""
        self._generator, self._counters, self._k, self._die = generator, counters, k, die
        self._waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()

    def start(self) -> None:
        """Start the worker."""
        threading.Thread(target=self._work, name="generate", daemon=True).start()

    def add(self, job: Job) -> None:
        """Queue a request behind those that came before."""
        self._waiting.put(job)

    @property
    def waiting(self) -> int:
        """Requests that were not begun."""
        return self._waiting.qsize()

    def _work(self) -> None:
        while True:
            job = self._waiting.get()
            try:
                job.tell(HungUp() if job.is_gone() else self._answer(job))
            except HungUp as error:
                self._counters.finished("abort")
                job.tell(error)
            except Exception as error:
                traceback.print_exc()  # the engine's log is where the cause is looked for
                job.tell(error)
                if any(words in str(error) for words in DEADLY):
                    self._die()

    def _answer(self, job: Job) -> Done:
        scheduled_s = time.monotonic()
        moments: list[float] = []
        ids: list[int] = []
        drafts = None if self._k is None else Drafts(self._k)
        whole = Text()

        def on_draft(drafted: int, accepted: int) -> None:
            self._counters.drafted(drafted, accepted)
            if drafts is not None:
                drafts.add(drafted, accepted)

        def on_tokens(new: list[int]) -> bool:
            nonlocal whole
            if job.is_gone():
                raise HungUp
            moments.append(time.monotonic())
            ids.extend(new)
            self._counters.written(len(new))
            text = job.writer.push(new)
            whole = whole.then(text)
            if job.asked.streams:
                job.tell(Step(text, len(ids)))
            return job.writer.stopped_by is not None

        self._counters.prompt(len(job.prompt))
        logprobs = self._generator.generate(job.prompt, job.asked, job.max_tokens, on_draft, on_tokens)
        rest = job.writer.end()
        ended = job.writer.stopped_by is not None or (not job.asked.ignore_eos and self._generator.ends(ids[-1]))
        reason = "stop" if ended else "length"
        self._counters.finished(reason)
        clock = Clock(job.arrived_s, scheduled_s, moments[0] if moments else None, moments[-1] if moments else None)
        return Done(ids, whole.then(rest), rest, reason, job.writer.stopped_by, clock, drafts, logprobs)
