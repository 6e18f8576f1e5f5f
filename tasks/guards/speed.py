"""Guards over rates: can this machine do that, should it do better, and do two ways of measuring agree?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from statistics import fmean, geometric_mean, median_low
from typing import Any

from configs.cell import Cell, Gpu
from configs.vllm_arguments import given_by
from tasks.meters import Counters
from warehouse.ledger.formulas import student_quantile
from warehouse.ledger.verdicts import Finding, Reason

SLOW_BANDWIDTH_SHARE = 0.5
"""Share of the memory bandwidth that decoding reaches at the least, once its overhead is taken off. Fitted to published
AR figures it is 0.8 (`flows/forecast/estimates.py`)."""

SLOW_OVERHEAD_S = 0.010
"""Most time per decoding step that bandwidth doesn't explain: launches, sampling, host. Fitted to the same figures it
is 0.0032; small models on large cards take nothing but that."""

SLOW_GENERATE_OVERHEAD_S = 0.060
"""The same of `generate()`, which has no graphs. Eager PyTorch launches some 20 kernels a layer, 20 to 40 us each: 24
to 48 ms a step for the 60 layers of a 31B. The rest is `generate()`'s own work."""

PREFILL_FLOPS_FACTOR = 4.0  # most by which numbers below 16 bits speed arithmetic up: 4 bits on cards that have them

WITHOUT_GRAPHS = re.compile(r"(?<!\S)(-O|--optimization[-_]level)[ =]?0(?!\S)|cudagraph_mode\W+none", re.IGNORECASE)
"""vLLM's further ways to capture no CUDA graphs, in addition to `--enforce-eager`."""

STREAM_SHARE = 0.30
"""Most by which streaming the same work may be slower or faster, plus the time per token below and chance. On one H200
(2026-11-22) large shapes were within 0.06, tiny ones up to 0.24 faster."""

STREAM_TOKEN_S = 0.001
"""Most that sending and reading a token by itself adds. On the same card the tiny family (549 tok/s) streamed at 0.69
of its rate: 0.8 ms a token."""

STREAM_MOST = 2.0  # beyond this factor streams are rejected however much they scatter: they show bursts, not tokens
LUMPS_SHARE = 0.1  # share of streams that may come so: a client that slept once is no engine that holds answers back

ONE_OF = 5
"""From so many streams on one may come so. Of eight, one of 32 tokens brought five steps at once after a pause of 18
ms, on a card whose other streams were sound (H200, bench/h200, 2026-11-23)."""

JOINED_STEPS = 2
"""Decoding steps that come in one chunk where the server's front end or the client was busy for a moment: one waits
while another is sent. Seen on two loaded cores in answers of 16 tokens with K = 4 (2026-11)."""

SHORT_LUMPS_SHARE = 0.5  # of streams of up to four steps, which may come in halves: two joined steps are half of one
FEWEST_STREAMS = 3  # of one or two streams, all may have come while the engine's front end was busy
STREAM_ALPHA = 0.05  # error of the interval by which chance widens the bounds


def tokens_per_step(cell: Cell, tokens: int, counted: Counters) -> float | None:
    """Tokens that a sequence commits per decoding step, over all its steps; None if the counters don't say.

    A step commits one token and those accepted, so steps = tokens - accepted. vLLM's own acceptance length counts only
    steps that have a draft: 10 drafts with 25 accepted of 512 tokens are 3.5 there, and 1.05 here. Tokens accepted
    after a request's end are counted too, so K + 1 is the most. Block diffusion counts its steps.
    """
    technique = cell.technique
    if technique.is_baseline:
        return 1.0
    if technique.denoises:
        return tokens / counted.denoising_steps if counted.denoising_steps else None
    if counted.accepted_tokens is None:
        return None
    most = tokens if cell.most_drafted is None else cell.most_drafted + 1
    return min(most, tokens / max(1.0, tokens - counted.accepted_tokens))


def step_bytes(cell: Cell, prompt_tokens: float, output_tokens: int, concurrency: int) -> float:
    """Bytes that a decoding step reads at the least: active weights once, and each sequence's own cache.

    Of a mixture of experts a batch, or the check of a draft, reads more than one token's experts: it is a lower bound.
    So is the cache: where a step commits several tokens, steps may be more frequent early in an answer, so only the
    prompt is sure to be there. The first and the last step's mean is that of all, or less where an attention reads no
    more than so many tokens. Source: Pope et al., arXiv 2211.05102, section 2.
    """
    written = output_tokens - 1 if cell.technique.is_baseline else 0
    weights = cell.model.active_params_b * 1e9 * cell.precision.bytes_per_param
    cache = (cell.kv_bytes_read(prompt_tokens) + cell.kv_bytes_read(prompt_tokens + written)) / 2
    return weights + cell.serving.together(concurrency) * cache


def ceiling_tok_s(cell: Cell, gpu: Gpu, bytes_read: float, per_step: float | None, concurrency: int) -> float | None:
    """Most tok/s that all cards' bandwidth allows, by `step_bytes` and `tokens_per_step`; None: one is unknown."""
    if gpu.bandwidth_gb_s is None or per_step is None:
        return None
    return gpu.bandwidth_gb_s * 1e9 * cell.cards / bytes_read * per_step * cell.serving.together(concurrency)


def impossible_speed(tok_s: float, ceiling: float | None) -> Finding | None:
    """Nothing is faster than its memory; `ceiling` in tok/s, None if unknown."""
    if ceiling is None or tok_s <= ceiling:
        return None
    sentence = f"{tok_s:.0f} tok/s is above the memory ceiling of {ceiling:.0f}"
    return Finding(Reason.IMPOSSIBLE_SPEED, "rejected", sentence)


def impossible_prefill(cell: Cell, gpu: Gpu, tok_s: float) -> Finding | None:
    """No prompt is read faster than the cards can multiply: two operations per active parameter and token.

    A prefix cache, or a first chunk without a token, looks so. Source: Kaplan et al., arXiv 2001.08361, section 2.1.
    """
    if gpu.bf16_tflops is None:
        return None
    flops = gpu.bf16_tflops * 1e12 * cell.cards * PREFILL_FLOPS_FACTOR
    ceiling = flops / (2 * cell.model.active_params_b * 1e9)
    if tok_s <= ceiling:
        return None
    sentence = f"{tok_s:.0f} prompt tokens/s are above the {ceiling:.0f} that the cards can compute"
    return Finding(Reason.IMPOSSIBLE_SPEED, "rejected", sentence)


def floor_tok_s(cell: Cell, gpu: Gpu, bytes_read: float) -> float | None:
    """Tokens per second that a healthy engine decodes one request with, without drafts; None where none can be named.

    1 / (bytes per step / (bandwidth x 0.5) + 10 ms), of `generate()` + 60 ms. Not for engines that their own arguments
    slow down: without CUDA graphs launches bound a step, with weights in the host's memory its bus does.
    """
    words = cell.engine_words  # told to do without graphs, or without the card's memory?
    is_slowed = WITHOUT_GRAPHS.search(" ".join(words)) or {"enforce_eager", "cpu_offload_gb"} & set(given_by(words))
    if gpu.bandwidth_gb_s is None or not cell.technique.is_baseline or is_slowed:
        return None
    read_s = bytes_read / (gpu.bandwidth_gb_s * 1e9 * cell.tensor_parallel * SLOW_BANDWIDTH_SHARE)
    return 1 / (read_s + (SLOW_GENERATE_OVERHEAD_S if cell.engine.kind == "transformers" else SLOW_OVERHEAD_S))


def too_slow(decode_tok_s: float, floor: float | None) -> Finding | None:
    """An engine that is healthy does better: another one, other weights, or a machine that was busy was measured."""
    if floor is None or decode_tok_s >= floor:
        return None
    sentence = f"{decode_tok_s:.1f} tok/s without prefill; this machine's memory gives {floor:.0f} or more"
    return Finding(Reason.TOO_SLOW, "suspect", sentence)


def stream_mismatch(streamed: Sequence[float | None], fixed: Sequence[float]) -> Finding | None:
    """The streamed decode rate must match that of the same work without streaming, as closely as both are known.

    `streamed`: of each stream, tokens after the first chunk per second of them; None if there was only one chunk.
    `fixed`: of each repeat of the same shape without streaming, later tokens over its time less prefill.
    """
    rates = [rate for rate in streamed if rate is not None]
    if len(rates) < len(streamed) or not rates:
        sentence = "all tokens of a stream came in one burst: no TPOT can be read off it"
        return Finding(Reason.STREAM_BURST, "rejected", sentence)
    stream_tok_s, fixed_tok_s = geometric_mean(rates), geometric_mean(fixed)
    ratio, chance = stream_tok_s / fixed_tok_s, _chance(rates, fixed)
    low = 1 / (1 + STREAM_SHARE + STREAM_TOKEN_S * fixed_tok_s) / chance
    low, high = max(low, 1 / STREAM_MOST), min((1 + STREAM_SHARE) * chance, STREAM_MOST)
    if low <= ratio <= high:
        return None
    sentence = (
        f"streamed {stream_tok_s:.0f} tok/s against {fixed_tok_s:.0f} without streaming "
        f"(ratio {ratio:.2f}, bounds {low:.2f} to {high:.2f})"
    )
    return Finding(Reason.STREAM_MISMATCH, "rejected", sentence)


def streamed_in_lumps(answers: Sequence[tuple[int, int]], step_tokens: int) -> Finding | None:
    """Tokens of a streamed answer must come as they are made: one that comes in halves has a TPOT of its own making.

    A front end that was busy for one step sends two at once, which is half of an answer of four steps. So short answers
    are judged together. A busy machine joins the steps of some answers, an engine that holds answers back joins those
    of all. `answers` are tokens of each and of its largest chunk; one of up to two steps of `step_tokens` isn't judged.
    """
    short, longer = 2 * step_tokens, 2 * JOINED_STEPS * step_tokens
    kinds = (
        ([each for each in answers if each[0] > longer], "", LUMPS_SHARE),
        ([each for each in answers if short < each[0] <= longer], f" of up to {longer} tokens", SHORT_LUMPS_SHARE),
    )
    for judged, which, allowed in kinds:
        lumps = sum(2 * largest >= tokens for tokens, largest in judged)
        if lumps > max(allowed * len(judged), len(judged) >= ONE_OF):
            said = f"{lumps} of {len(judged)} streams{which} brought half of their tokens or more at once"
            return Finding(Reason.STREAM_BURST, "rejected", f"{said}: no TPOT is in them")
    return None


def late_first_token(cell: Cell, requests: Sequence[Mapping[str, Any]]) -> Finding | None:
    """The first token must be seen when it is made: a prefill makes one, also where drafts follow.

    An engine that sends nothing of its first steps makes TTFT late by whole decoding steps, as vLLM did of tokens that
    its reasoning parser hides. Without a draft it is later than with one, so that a draft seems to speed up prefills. A
    busy front end joins the first two steps of some streams: of 12 of 64 on two cores under fivefold load (vLLM 0.32.0,
    the tiny family, 2026-11-24). Hence most of them must have come so. Not for generate(), whose first step verifies a
    draft, nor for a canvas. `first_chunk_tokens` is null where nothing was streamed, or by an older client.
    """
    first = [row["first_chunk_tokens"] for row in requests if row.get("first_chunk_tokens")]
    makes_one = cell.engine.kind == "vllm" and not cell.technique.denoises
    if not makes_one or len(first) < FEWEST_STREAMS or median_low(first) <= 1:
        return None
    sentence = (
        f"the first chunk of {sum(tokens > 1 for tokens in first)} of {len(first)} streams had several tokens (median "
        f"{median_low(first)}), and a prefill makes one: time to first token holds decoding"
    )
    return Finding(Reason.LATE_FIRST_TOKEN, "suspect", sentence)


def _chance(streamed: Sequence[float], fixed: Sequence[float]) -> float:
    """Factor within which the ratio of two geometric means lies by chance, from both samples' common deviation.

    exp(t sqrt(s^2 (1/n + 1/m))) of the log rates: Student's two-sample interval, at most `STREAM_MOST`.
    """
    degrees = len(streamed) + len(fixed) - 2
    if not degrees:
        return STREAM_MOST
    samples = [[log(rate) for rate in rates] for rates in (streamed, fixed)]
    squares = sum((value - fmean(sample)) ** 2 for sample in samples for value in sample)
    error = sqrt(squares / degrees * (1 / len(streamed) + 1 / len(fixed)))
    return exp(min(student_quantile(STREAM_ALPHA / 2, degrees) * error, log(STREAM_MOST)))


ROUNDING_MS = 1.0
"""What two readings of one machine's monotonic clock may lose by being written down. Of 7022 requests to vLLM and
generate(), on two cores and on an H200, the client's was .8 ms longer at the least (2026-11)."""

HELD_BACK_MS = 1000.0
"""What a busy front end may take for a first token: tokenizing, detokenizing, the wire, the client's own reading.
Medians of the 165 conditions of streams among those requests were 1 to 17 ms, the worst single one 748 ms. With 11 busy
tasks on two cores most of a short load's were beyond 100 ms, of a fake engine that held nothing back."""


def clock_mismatch(requests: Sequence[Mapping[str, Any]]) -> Finding | None:
    """A client can't see a token, or an answer's end, before the engine made it: its time has the engine's inside.

    From sending to the first token there are queueing and prefill, to the last byte the generation as well. Where that
    doesn't hold one of the two clocks is wrong, and nobody knows which.
    """
    told = [row for row in requests if _own_ms(row) is not None]
    short = [each for row in told for each in _shorter(row)]
    if not short:
        return None
    ours_ms, own_ms, what = max(short, key=lambda each: each[1] - each[0])
    off = sum(bool(_shorter(row)) for row in told)
    sentence = (
        f"{off} of {len(told)} requests took the client less time than the engine says that it took itself, e.g. "
        f"{ours_ms:.1f} ms {what}, of which the engine's own {own_ms:.1f}"
    )
    return Finding(Reason.CLOCK_MISMATCH, "suspect", sentence)


def held_back(requests: Sequence[Mapping[str, Any]]) -> Finding | None:
    """A first token must be seen when the engine has made it, by the engine's own clock.

    An engine, or a proxy, that finishes an answer and then plays it has a first chunk of one token and a true rate.
    Only its clock gives it away. A front end's time is part of what users wait for, and grows with load and prompt. So
    a token is held back if it is later than `HELD_BACK_MS`, than the engine took for it, and than half of the
    generation. Most of the streams must have come so. Rows without both accounts of the first token are left out.
    """
    streams = [row for row in requests if row.get("ttft_ms") is not None and _own_ms(row) is not None]
    late = [row["ttft_ms"] - (_own_ms(row) or 0.0) for row in streams if _is_held_back(row)]
    if len(streams) < FEWEST_STREAMS or 2 * len(late) <= len(streams):
        return None
    sentence = (
        f"{len(late)} of {len(streams)} first tokens were seen {min(late):.0f} ms or more after the engine had made "
        "them, by its own clock: they were held back on their way"
    )
    return Finding(Reason.LATE_FIRST_TOKEN, "suspect", sentence)


def _own_ms(row: Mapping[str, Any]) -> float | None:
    """The engine's time until a first token, queueing included; None: it didn't say."""
    made_ms: float | None = row.get("engine_ttft_ms")
    return None if made_ms is None else made_ms + (row.get("engine_queue_ms") or 0.0)


def _shorter(row: Mapping[str, Any]) -> list[tuple[float, float, str]]:
    """The client's time, the engine's inside it, and until when, wherever the first is shorter."""
    own_ms = _own_ms(row) or 0.0
    whole_ms = own_ms + (row.get("engine_generation_ms") or 0.0)
    spans = [(1000 * row["wall_s"], whole_ms, "to the last byte")]
    if row.get("ttft_ms") is not None:
        spans.append((row["ttft_ms"], own_ms, "to the first token"))
    return [each for each in spans if each[0] < each[1] - ROUNDING_MS]


def _is_held_back(row: Mapping[str, Any]) -> bool:
    own_ms = _own_ms(row) or 0.0
    return bool(row["ttft_ms"] - own_ms > max(HELD_BACK_MS, own_ms, (row.get("engine_generation_ms") or 0.0) / 2))
