"""Throughput: non-streaming completion tokens over wall clock, fixed output, prompts that never repeat.

The same work is counted twice, by the client (usage) and by the engine (its counters before and after). A short
streamed twin gives TTFT and TPOT; it is checked against the headline, and is never the headline itself.

Answers are of a fixed length, so with several in flight those of AR end together. The next prompts are then sent
together and wait for one another's prefills, wave after wave. A draft's answers end apart. There TTFT favours drafts,
and so does TPOT a little, by the last requests, which run on while slots empty. (Simulated for 8 at a time, 2000 tokens
of prompt: 413 ms of AR, 116 of a draft.) Such a load brings this, so it is reported as it is. What users would wait is
a load step's TTFT, where answers end by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil
from statistics import fmean, median

from configs.cell import Cell, Gpu
from configs.steps.smoke import OUTPUT_TOKENS
from configs.steps.throughput import NATURAL, PREFILL_TRIES, Condition, ThroughputStep
from tasks.client import Ready, Reply
from tasks.context import StepContext
from tasks.guards.speed import stream_mismatch
from tasks.guards.steadiness import half_width
from tasks.guards.text import improbable_text
from tasks.timing.conditions import TimedCondition, Window, measure_conditions, tried, window_of, windows_wanted
from tasks.timing.loops import paces_of, steady_state
from tasks.timing.timed import AllFailed, OwnPrompts, Row, ready_of, untimed
from tasks.timing.verdict import Paces, Work, verdict
from warehouse.ledger.formulas import rate_of
from warehouse.ledger.timed_tables import THROUGHPUT
from warehouse.ledger.verdicts import Finding, Judgement, Reason


async def measure(ctx: StepContext, spec: ThroughputStep) -> list[Judgement]:
    """Measure every condition; rows go to `requests` and `windows`, one part of each per window."""
    conditions = [_Condition(ctx, spec.prompts, each) for each in spec.conditions]
    measured = zip(spec.conditions, await measure_conditions(ctx, THROUGHPUT, conditions), strict=True)
    return [said for each, rows in measured for said in judge_condition(ctx.cell, ctx.planned.gpu, each, *rows)]


class _Condition(TimedCondition):
    """One load shape: fixed windows until their pace is settled, then natural ones likewise, then the stream."""

    def __init__(self, ctx: StepContext, kind: str, asked: Condition) -> None:
        super().__init__(ctx, asked.name, asked.concurrency, asked.warmup)
        self._asked, self._prompts = asked, OwnPrompts(kind, asked.context_tokens, asked.output_tokens)

    def next_window(self, windows: Sequence[Row]) -> tuple[str, int] | None:
        """Mode and repeat."""
        asked = self._asked
        for mode in asked.modes:
            there = _of_mode(mode, windows)
            if len(there) < windows_wanted(asked.repeats, there):
                taken = {row["repeat"] for row in there}
                return mode, next(repeat for repeat in range(len(there) + 1) if repeat not in taken)
        if asked.stream_requests and not _of_mode("stream", windows):
            return "stream", 0
        return None

    async def warming(self, number: int) -> list[Ready]:
        """With prompts of their own; they are asked how probable their tokens are, which timed ones can't be."""
        names = (self.name, f"warm-up-{number}")
        return ready_of(await self._prompts.ask(self.ctx, names, self.at_once, logprobs="written"))

    async def first_tokens(self, window: str, number: int) -> list[Ready]:
        return ready_of(await self._prompts.ask(self.ctx, (self.name, window), number, cut=1))

    async def measure(self, wanted: tuple[str, int]) -> Window:
        mode, repeat = wanted
        window = await self.until_kept_up(partial(self._window, mode, repeat), f"{mode}-{repeat}")
        if wanted == ("fixed", 0):
            told = [reply.mean_logprob for reply in self.warm_replies if isinstance(reply, Reply)]
            known = [each for each in told if each is not None]
            window.row["warmup_logprob"] = fmean(known) if known else None
        return window

    async def _window(self, mode: str, repeat: int, name: str) -> Window:
        asked, is_stream = self._asked, mode == "stream"
        number = asked.streams if is_stream else max(asked.requests, asked.concurrency)
        names, fixed = (self.name, name), mode != NATURAL
        sent = await self._prompts.ask(self.ctx, names, number, fixed=fixed, streams=is_stream, token_ids=not is_stream)
        prefill_s, probes_failed = await self._prefill(name) if is_stream else (None, [])
        same = {"condition": self.name, "mode": mode, "repeat": repeat, "concurrency": asked.concurrency}
        same |= {"context_tokens": asked.context_tokens, "output_tokens": asked.output_tokens}
        window = await window_of(self.ctx, sent, same, beside=probes_failed)
        spans = window.load.spans
        first_ended_s = min(span.ended_s for span in spans)
        for row, span in zip(window.requests, spans, strict=True):
            if is_stream and asked.concurrency > 1 and span.sent_s < first_ended_s:
                row |= {"ttft_ms": None, "tpot_ms": None}  # sent in step: their prefills wait for one another
        steady = steady_state(spans, asked.concurrency)
        own = {
            "prefill_s": prefill_s,
            "steady_s": steady.seconds if steady else None,
            "steady_tokens": steady.tokens if steady else None,
        }
        return window._replace(row=window.row | own)

    async def _prefill(self, name: str) -> tuple[float, list[str]]:
        """Seconds to a first token without streaming (wall clock less these: decode time), and which probes failed."""
        at_once, taken_s, failures = self.at_once, list[float](), list[str]()
        for probe in range(PREFILL_TRIES):
            requests = await self.first_tokens(f"{name}-prefill-{probe}", at_once)
            await self.ctx.client.connect(at_once)
            answered = await untimed(self.ctx, "prefill", requests, at_once)
            failures += answered.failures
            if spans := [span for span, _ in answered.each]:
                taken_s.append(max(span.ended_s for span in spans) - min(span.sent_s for span in spans))
        if not taken_s:
            raise AllFailed(failures)
        return min(taken_s), failures

    def size(self, windows: Sequence[Row]) -> tuple[int, int]:
        """In windows: what noisy repeats will take is guessed from those so far."""
        repeats = [_of_mode(mode, windows) for mode in self._asked.modes]
        return len(windows), sum(map(self._expected, repeats)) + bool(self._asked.stream_requests)

    def _expected(self, there: Sequence[Row]) -> int:
        """Windows of a mode: a half-width shrinks with the root of n."""
        repeats = self._asked.repeats
        wanted = windows_wanted(repeats, there)
        if repeats.within is None or wanted <= max(len(there), repeats.min):
            return wanted
        short = half_width(paces_of(there)) / repeats.within
        return max(wanted, min(repeats.max, ceil(len(there) * short**2)))

    def line(self, last: Row) -> tuple[str, float | None]:
        repeats, rate = self._asked.repeats, rate_of([last])
        of = f"/{repeats.max}" if repeats.within is None else f" of at most {repeats.max}"
        number = f"{last['repeat'] + 1}{of}" if last["mode"] != "stream" else "1/1"
        return f"{self.name} {last['mode']} {number}: {rate:.0f} tok/s", rate


def _of_mode(mode: str, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["mode"] == mode]


def judge_condition(
    served: Cell, gpu: Gpu, condition: Condition, windows: Sequence[Row], requests: Sequence[Row]
) -> list[Judgement]:
    """What the guards say about a condition's fixed windows, and its natural and streamed ones, of one engine start."""
    name, of_length = condition.name, (condition.concurrency, condition.context_tokens, condition.output_tokens)
    works = {
        mode: Work(served, gpu, _of_mode(mode, windows), _of_mode(mode, requests), *of_length)
        for mode in (*condition.modes, "stream")
    }
    fixed, natural, streams = works["fixed"], works.get(NATURAL), works["stream"]
    prefill_s = _prefill_s(streams.windows, streams.requests)
    decoding = _decode_tok_s(condition, fixed.requests, prefill_s)
    warm = improbable_text([row.get("warmup_logprob") for row in fixed.windows], is_real=fixed.is_real)
    found = [*fixed.done(), *fixed.answers(), fixed.too_fast(), _slow(fixed, decoding, prefill_s), warm]
    paces = Paces(paces_of(fixed.windows), condition.repeats.within)
    said = [verdict(name, "fixed", found, fixed.windows, paces=paces)]
    if natural is not None and natural.windows:
        # its answers differ in length, and each has its prefill in its time: the fixed ones judge the machine
        natural = natural._replace(output_tokens=None)
        found = [*natural.done(), *natural.answers(), natural.too_fast()]
        said.append(verdict(name, NATURAL, found, natural.windows))
    if streams.requests:
        found = [*streams.done(), *streams.answers(), *streams.late()]
        if not served.technique.denoises:  # a canvas arrives at once: there is no streamed rate to compare
            found.append(_stream(streams.requests, decoding))
        said.append(verdict(name, "stream", found, streams.windows))
    return said


def _prefill_s(windows: Sequence[Row], streamed: Sequence[Row]) -> float | None:
    """Seconds to the first token: least of probes, which may meet a compiler, and streams' median; None: no stream."""
    probes = [row["prefill_s"] for row in windows if row["prefill_s"] is not None]
    first = [row["ttft_ms"] / 1000 for row in streamed if row["ttft_ms"] is not None]
    return min([*probes, *([median(first)] if first else [])], default=None)


def _decode_tok_s(condition: Condition, sent: Sequence[Row], prefill_s: float | None) -> list[float]:
    """Each repeat's decode rate of one request, tok/s: later tokens over mean seconds less prefill.

    Repeats that were over before a first token could come are left out: the prefill is then that of another load.
    """
    repeats: dict[int, list[float]] = {}
    for row in sent:
        repeats.setdefault(row["repeat"], []).append(row["wall_s"])
    seconds = [fmean(each) - (prefill_s or 0.0) for each in repeats.values()]
    return [(condition.output_tokens - 1) / decode_s for decode_s in seconds if decode_s > 0]


def _slow(fixed: Work, decoding: Sequence[float], prefill_s: float | None) -> Finding | None:
    """One request at a time, and with the prefill known or short: else a long prompt would look like slow decoding."""
    prefill_known = prefill_s is not None or (fixed.context_tokens or 0) <= (fixed.output_tokens or 0)
    if fixed.concurrency != 1 or not prefill_known or not decoding:
        return None
    return fixed.too_slow(fmean(decoding))


def _stream(streamed: Sequence[Row], decoding: Sequence[float]) -> Finding | None:
    """Of the streams that were timed; none of them: all came in step."""
    if not decoding:
        sentence = "the first token came later than the same work took as a whole without streaming"
        return Finding(Reason.STREAM_MISMATCH, "rejected", sentence)
    timed = [row for row in streamed if row["ttft_ms"] is not None]
    return stream_mismatch([1000 / row["tpot_ms"] if row["tpot_ms"] else None for row in timed], decoding)


async def smoke(ctx: StepContext, spec: ThroughputStep, items: int) -> list[Finding | None]:
    """Make a few short generations of the first condition, one at a time."""
    first = spec.conditions[0]
    cut = min(OUTPUT_TOKENS, first.output_tokens)
    prompts = OwnPrompts(spec.prompts, first.context_tokens, first.output_tokens)
    asked = await prompts.ask(ctx, ("smoke",), items, cut=cut, token_ids=True, logprobs="written")
    same = {"mode": "fixed", "output_tokens": cut, "context_tokens": first.context_tokens, "repeat": 0}
    rows, counted = await tried(ctx, THROUGHPUT, asked, same, "generation")
    return Work(ctx.cell, ctx.planned.gpu, [], rows, 1, first.context_tokens, cut).smoke(counted)
