"""One attempt at a timed step, by the real code, against a FAKE engine of known speed, in virtual time."""

import asyncio
import json
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from configs.schema import PlannedCell
from configs.step import MeasuredStep
from configs.steps.smoke import SmokeStep
from configs.visits import Measurement
from tasks.client import Client, Heard, Ready, RequestFailed, Unanswered
from tasks.context import Progress, StepContext, file_of, trial_of
from tasks.frameworks.process import Frameworks
from tasks.prompts import Prompt
from tasks.timing import timed
from tasks.wire.connection import Arrivals
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store
from warehouse.ledger.tables import decode
from warehouse.ledger.verdicts import Finding, Judgement

T = TypeVar("T")


class Clock(selectors.SelectSelector):
    """What an event loop waits with: it jumps to its next timer, so minutes of waiting take milliseconds.

    A rate measured in it is exact, whatever else the machine does; a coroutine that sleeps in `nap` starves the loop.
    """

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if timeout is None else 0)  # without a timer it is a thread that is waited for
        if not ready and timeout is not None:
            self.now_s += max(0.0, timeout)
        return ready

    def nap(self, seconds: float) -> None:
        """Let time pass in which the loop does nothing, as if it had no processor."""
        self.now_s += seconds

    def loop(self) -> asyncio.AbstractEventLoop:
        return _Loop(self)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._time_of = clock

    def time(self) -> float:
        return self._time_of.now_s


def run(main: Callable[[Clock], Coroutine[Any, Any, T]]) -> T:
    clock = Clock()
    no_wait = patch.object(timed, "_waited_for_processor_s", lambda: None)  # its seconds are real ones, the clock's not
    with no_wait, asyncio.Runner(loop_factory=clock.loop) as runner:
        return runner.run(main(clock))


Pace = Callable[[int], float]  # factor on the seconds of the n-th request of a kind, from 0


class FakeClient(Client):
    """Answers of the length asked for. A request takes the first free slot, at that slot's seconds per token.

    One that finds none waits, and is served in its turn.
    """

    def __init__(self, planned: PlannedCell, clock: Clock, token_s: Sequence[float]) -> None:
        super().__init__("http://fake", planned.cell.model, planned.cell.technique)
        self.clock, self.token_s = clock, token_s
        self.pace: Pace = lambda number: 1.0  # of timed requests without streaming
        self.accepted: Callable[[int], float] | None = None
        """Share of the tokens of the n-th such request that a draft of K = 4 gave; each step takes a token's time."""
        self.tells_drafts = True  # of each stream, beside its last usage
        self.naps: dict[tuple[str, int], float] = {}
        """(fixed, stream or prefill, n-th of its kind): seconds in which the client has no processor."""
        self.prefill_token_s: float | None = None
        """Of streams: seconds per word of the prompt before the answer begins; none: no time, and 64 tokens each."""
        self.hidden = 0  # first tokens of a stream that have no chunk: they come with the one behind them
        self.slow_prefills: dict[int, float] = {}  # n-th prefill probe: seconds that it takes longer
        self.asked = {"fixed": 0, "stream": 0, "prefill": 0}
        self.compiles_s = 0.0
        """What the first prompt of each kind of length waits for a kernel; kinds are even and odd, in characters."""
        self.rest_s = 0.0  # what the client needs before it can send the next timed request
        self.mean_logprob = -0.5  # of answers that were asked for it
        self.bodies: list[tuple[str, bool]] = []  # kind of each request, and whether it asked for token ids
        self.ends_after: int | None = (
            None  # tokens behind which an answer ends by itself, where it may; None: at its cap
        )
        self.counted_after_s = 0.0  # how long its counters lag behind its answers
        self._compiled: set[int] = set()
        self._busy: set[int] = set()
        self._free = asyncio.Semaphore(len(token_s))
        self._booked = {"tokens": 0, "requests": 0, "accepted": 0, "drafts": 0}

    async def _serve(self, kind: str, tokens: int, factor: float = 1.0) -> tuple[float, int]:
        """Seconds, and how many tokens drafts gave."""
        number = self.asked[kind]
        self.asked[kind] += 1
        started_s = self.clock.now_s
        await self._free.acquire()
        slot = next(index for index in range(len(self.token_s)) if index not in self._busy)
        self._busy.add(slot)
        extra_s = self.slow_prefills.get(number, 0.0) if kind == "prefill" else 0.0
        given = 0 if self.accepted is None or kind == "prefill" else round(tokens * self.accepted(number))
        await asyncio.sleep((tokens - given) * self.token_s[slot] * factor + extra_s)
        self.clock.nap(self.naps.get((kind, number), 0.0))
        self._busy.discard(slot)
        self._free.release()
        if self.counted_after_s:
            asyncio.get_running_loop().call_later(self.counted_after_s, self._book, tokens, given)
        else:
            self._book(tokens, given)
        return self.clock.now_s - started_s, given

    def _book(self, tokens: int, given: int) -> None:
        self._booked["tokens"] += tokens
        self._booked["accepted"] += given
        self._booked["drafts"] += tokens - given
        self._booked["requests"] += 1

    def _length(self, body: Mapping[str, Any]) -> tuple[int, str]:
        most = int(body["max_tokens"])
        if body.get("ignore_eos") or self.ends_after is None or self.ends_after >= most:
            return most, "length"
        return self.ends_after, "stop"

    async def connect(self, number: int) -> None:
        return

    async def hear(self, ready: Ready) -> Heard:
        return await (self._heard_stream(ready) if ready.streams else self._heard_whole(ready))

    async def _heard_whole(self, ready: Ready) -> Heard:
        if self.rest_s:
            await asyncio.sleep(self.rest_s)
        body, sent_s = ready.body, self.clock.now_s
        tokens, finish = self._length(body)
        kind = "prefill" if tokens == 1 else "fixed"
        self.bodies.append(("warm-up" if "logprobs" in body else kind, "return_token_ids" in body))
        await self._compile(len(body["messages"][-1]["content"]) % 2)
        await self._serve(kind, tokens, self.pace(self.asked["fixed"]) if kind == "fixed" else 1.0)
        choice: dict[str, Any] = {"message": {"content": said(body, tokens)}, "finish_reason": finish}
        choice["token_ids"] = list(range(tokens))
        if "logprobs" in body:
            choice["logprobs"] = {"content": [{"logprob": self.mean_logprob}] * tokens}
        answer = {"choices": [choice], "usage": {"prompt_tokens": read(body), "completion_tokens": tokens}}
        content = json.dumps(answer).encode()
        return Heard(body, 200, content, Arrivals(sent_s, [self.clock.now_s], [len(content)], self.clock.now_s))

    async def _compile(self, kind_of_length: int) -> None:
        if kind_of_length not in self._compiled:
            self._compiled.add(kind_of_length)
            await asyncio.sleep(self.compiles_s)

    async def _heard_stream(self, ready: Ready) -> Heard:
        body, sent_s = ready.body, self.clock.now_s
        (tokens, finish), number = self._length(body), self.asked["stream"]
        self.bodies.append(("stream", "return_token_ids" in body))
        await self._compile(len(body["messages"][-1]["content"]) % 2)
        if self.prefill_token_s is not None:
            await asyncio.sleep(read(body) * self.prefill_token_s)
        begun_s = self.clock.now_s
        wall_s, given = await self._serve("stream", tokens)
        burst = ("stream", number) in self.naps  # what came while the client slept comes at once
        written = [tokens] if burst else range(1 + self.hidden, tokens + 1)
        events = [event(body, "", each) for each in written]
        moments = [begun_s + wall_s * each / tokens for each in written]
        events += [event(body, said(body, tokens), tokens, finish, **self._account(tokens, given))]
        events += [b"data: [DONE]\n\n"]
        moments += [begun_s + wall_s] * 2
        sizes = list(accumulate(map(len, events)))
        return Heard(body, 200, b"".join(events), Arrivals(sent_s, moments, sizes, begun_s + wall_s))

    def _account(self, tokens: int, given: int) -> dict[str, Any]:
        """What vLLM says of a request's own drafts, if it drafts."""
        if self.accepted is None or not self.tells_drafts:
            return {}
        steps = {"num_spec_steps": tokens - given, "num_draft_tokens": 4 * (tokens - given)}
        return {"metrics": {"speculative_decoding": {**steps, "num_accepted_draft_tokens": given}}}

    async def count_tokens(self, prompt: Prompt) -> int:
        return len(prompt.text.split())

    async def text(self, path: str) -> str:
        if path == "/health":
            return ""
        assert path == "/metrics"
        labels = '{engine="0",model_name="m"}'
        drafts = {"drafts": "drafts", "accepted_tokens": "accepted"} if self.accepted else {}
        counted = [f"vllm:spec_decode_num_{name}_total{labels} {self._booked[key]}\n" for name, key in drafts.items()]
        if drafts:
            counted.append(f"vllm:spec_decode_num_draft_tokens_total{labels} {4 * self._booked['drafts']}\n")
        return "".join(counted) + (
            f"vllm:generation_tokens_total{labels} {self._booked['tokens']}\n"
            f'vllm:request_success_total{{engine="0",finished_reason="length"}} {self._booked["requests"]}\n'
            f"vllm:prefix_cache_hits_total{labels} 0\nvllm:num_preemptions_total{labels} 0\n"
        )


def event(body: Mapping[str, Any], text: str, tokens: int, finish_reason: str | None = None, **more: Any) -> bytes:
    choice = {"delta": {"content": text}, "finish_reason": finish_reason}
    usage = {"prompt_tokens": read(body), "completion_tokens": tokens}
    return f"data: {json.dumps({'choices': [choice], 'usage': usage, **more})}\n\n".encode()


def read(body: Mapping[str, Any]) -> int:
    return len(body["messages"][-1]["content"].split())


def said(body: Mapping[str, Any], tokens: int) -> str:
    start = sum(body["messages"][-1]["content"].encode()) % 1000
    return " ".join(str(start + 7 * index) for index in range(tokens))


TOKEN_S = 0.05  # so slow that no real delay of this machine matters beside it
PREFILL_TOKEN_S = 0.002  # of a depth, whose figure it is

Prepare = Callable[[FakeClient], None]
Hear = Callable[[Ready], Awaitable[Heard]]


def nothing(client: FakeClient) -> None:
    """An engine as it is."""


def changed(**attributes: Any) -> Prepare:
    return lambda client: [setattr(client, name, value) for name, value in attributes.items()] and None


class Measured:
    """What one attempt brought: judgements, the rows of its commit, and what it told and asked meanwhile."""

    def __init__(self) -> None:
        self.said: list[Judgement] = []
        self.told: list[Progress] = []
        self.windows: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.asked: dict[str, int] = {}

    def judged(self, condition: str, mode: str | None = None) -> Judgement:
        (found,) = [each for each in self.said if each.condition == condition and mode in (None, each.mode)]
        return found

    def reasons(self, condition: str, mode: str | None = None) -> list[str]:
        return [finding.reason.value for finding in self.judged(condition, mode).findings]

    @property
    def found(self) -> dict[str | None, list[str]]:
        """Reasons by condition, of a step that has one judgement for each."""
        return {each.condition: [finding.reason.value for finding in each.findings] for each in self.said}

    @property
    def verdicts(self) -> set[str]:
        return {each.verdict for each in self.said}

    @property
    def all_reasons(self) -> set[str]:
        return {reason for reasons in self.found.values() for reason in reasons}


def attempt(
    folder: Path,
    planned: PlannedCell,
    spec: MeasuredStep,
    token_s: Sequence[float] = (TOKEN_S,) * 8,
    prepare: Prepare = nothing,
    number: int = 1,
    machine: str = "here",
) -> Measured:
    """Measure a step with slots of known speed; half of what drafts write is accepted. What fails leaves its rows."""
    done = Measured()

    async def whole(clock: Clock) -> Measured:
        ledger = Ledger(open_store(str(folder / "store")), "r1")
        async with FakeClient(planned, clock, token_s) as client, Frameworks(folder) as frameworks:
            client.accepted = (lambda _: 0.5) if planned.cell.technique.drafts else None
            client.prefill_token_s = PREFILL_TOKEN_S if spec.step == "depth" else None
            prepare(client)
            ctx = StepContext(
                planned=planned, served=planned.cell, client=client, ledger=ledger, measurement=Measurement(spec),
                attempt=number, tell=done.told.append, frameworks=frameworks,
            )  # fmt: skip
            await ctx.begin({"attempt": number, "machine": machine})
            done.said = await file_of(spec).measure(ctx, spec)
            done.asked = client.asked
            for part in await ctx.end():
                rows = decode(ledger.store.get(part.key) or b"", part.key)
                done.windows += rows if part.table.endswith("windows") else []
                done.requests += rows if part.table.endswith("requests") else []
        return done

    return run(whole)


def smoked(folder: Path, planned: PlannedCell, spec: MeasuredStep, items: int) -> tuple[list[Finding], dict[str, int]]:
    """Try a few items of a step: what the guards say, and what was asked."""
    trial = trial_of(spec)
    assert trial is not None

    async def whole(clock: Clock) -> tuple[list[Finding], dict[str, int]]:
        ledger = Ledger(open_store(str(folder / "store")), "r1")
        async with FakeClient(planned, clock, [0.01]) as client, Frameworks(folder) as frameworks:
            client.accepted = lambda _: 0.5
            smoke = Measurement(SmokeStep(step="smoke"))
            ctx = StepContext(
                planned=planned, served=planned.cell, client=client, ledger=ledger, measurement=smoke, attempt=1,
                tell=lambda progress: None, frameworks=frameworks,
            )  # fmt: skip
            return [each for each in await trial(ctx, spec, items) if each is not None], client.asked

    return run(whole)


def hearing(instead: Callable[[FakeClient, int, Ready, Hear], Awaitable[Heard]]) -> Prepare:
    """An engine behind `instead`, which is given the client, which request it is, from 1, and who would answer it."""

    def prepare(client: FakeClient) -> None:
        hear, asked = client.hear, iter(range(1, 100_000))

        async def heard(ready: Ready) -> Heard:
            return await instead(client, next(asked), ready, hear)

        client.hear = heard  # type: ignore[method-assign]

    return prepare


def failing(*at: int) -> Prepare:
    """An engine that lives, and answers HTTP 500 to these of its requests, from 1."""

    async def fails(_: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        if number in at:
            raise RequestFailed("HTTP 500: out of luck")
        return await hear(ready)

    return hearing(fails)


def dies_after(most: int) -> Prepare:
    async def dies(_: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        if number > most:
            raise Unanswered("the engine is gone")
        return await hear(ready)

    return hearing(dies)
