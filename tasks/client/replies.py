"""What came back to a request: bytes and moments, and what they say. Nothing is decoded while others are timed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple, cast

from configs.errors import SpecsweepError
from tasks.wire.connection import Arrivals, Patience


class RequestFailed(SpecsweepError):
    """An answer that can't be measured: an error status, a broken stream, or a request that the engine gave up."""


class Unanswered(RequestFailed):
    """No answer at all: nobody listens, or nothing moves. The next request would fare no better."""


EVENT = b"data: "  # how a line of a stream begins that carries an event (WHATWG HTML, 9.2.5)
PACK_FROM_BYTES = 1 << 16  # shorter answers are kept as they came: only streams are longer, and they repeat themselves


class Ready(NamedTuple):
    """A request that is encoded: sending it needs nothing but the wire."""

    data: bytes
    body: Mapping[str, Any]
    streams: bool
    patience: Patience


class Heard(NamedTuple):
    """What came back to one request, with its moments by `time.monotonic`."""

    body: Mapping[str, Any]
    status: int
    data: bytes
    arrivals: Arrivals
    is_packed: bool = False

    @property
    def content(self) -> bytes:
        """The body."""
        return zlib.decompress(self.data) if self.is_packed else self.data

    def packed(self) -> Heard:
        """The same in a fraction of the room."""
        return self if self.is_packed else self._replace(data=zlib.compress(self.data, 1), is_packed=True)

    @property
    def wall_s(self) -> float:
        """Seconds on the wire."""
        return self.arrivals.ended_s - self.arrivals.sent_s

    def json(self) -> dict[str, Any]:
        """The answer's JSON object. Raises RequestFailed: an error status, or no JSON object."""
        self._good()
        try:
            answer = json.loads(self.content)
        except ValueError as error:
            raise RequestFailed(f"the answer is no JSON: {self.content[:300]!r}") from error
        if not isinstance(answer, dict):
            raise RequestFailed(f"the answer is no JSON object: {self.content[:300]!r}")
        return answer

    def events(self) -> list[tuple[float, bytes]]:
        """Events of a stream, each with the seconds from the request to its last byte. Raises as `json` does."""
        self._good()
        events, end, piece = [], 0, 0
        for line in self.content.splitlines(keepends=True):
            end += len(line)
            if line.startswith(EVENT) and line.endswith((b"\n", b"\r")):
                while self.arrivals.sizes[piece] < end:
                    piece += 1
                events.append((self.arrivals.pieces_s[piece] - self.arrivals.sent_s, line[len(EVENT) :].strip()))
        return events

    def _good(self) -> None:
        if self.status != 200:
            raise RequestFailed(f"HTTP {self.status}: {self.content[:300].decode(errors='replace')}")


class EngineTruth(NamedTuple):
    """One request by the engine's account, `engine_...` in the columns of requests; None for what it didn't say.

    Times in ms: `queue_ms` from arrival to scheduling, `ttft_ms` from there to the first token, `generation_ms` from
    the first token to the last, `itl_ms` the same per later token. A draft step is one that verified a draft. Some
    accepted tokens may stand after the request's last one.
    """

    queue_ms: float | None = None
    ttft_ms: float | None = None
    generation_ms: float | None = None
    itl_ms: float | None = None
    draft_steps: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_histogram: list[int] | None = None  # draft steps that accepted 0, 1, ..., K tokens


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


def top2_gaps(choice: Mapping[str, Any]) -> list[float] | None:
    """Nats between the two best tokens at each output token of a choice; None: the engine sent no logprobs.

    Read in vLLM 0.32.0, with and without speculative decoding (`v1/sample/{sampler,rejection_sampler}.py`,
    `v1/worker/gpu/sample/sampler.py`, `v1/worker/gpu/spec_decode/rejection_sampler.py`,
    `entrypoints/openai/chat_completion/serving.py`):

    - Logprobs are allowed with a draft and with `return_token_ids`. There is one entry per output token, thinking and
      end token included.
    - They are the target's, before temperature and penalties (`logprobs_mode` raw_logprobs, the default). Of a drafted
      token they are taken where it was verified; rejected ones are filtered out.
    - Asking changes no greedy output: argmax is taken of the same float32 logits, and a verification computes the bonus
      token's logits anyway.
    - The sampled token comes first, then the best ones, cut to two. Where the sampled one isn't the best, the gap is to
      it, and wider. Hence the order here is by value.

    Raises RequestFailed: a token came without two candidates, or there are more or fewer entries than token ids.
    """
    entries = _logprobs(choice)
    if entries is None:
        return None
    best = [sorted((each["logprob"] for each in entry["top_logprobs"]), reverse=True) for entry in entries]
    short = sum(len(candidates) < 2 for candidates in best)
    if short:
        raise RequestFailed(f"{short} of {len(best)} output tokens came without their two best: top_logprobs was 2")
    token_ids = choice.get("token_ids")
    if token_ids is not None and len(token_ids) != len(best):
        raise RequestFailed(f"the engine sent {len(token_ids)} token ids and {len(best)} logprobs for one output")
    return [first - second for first, second, *_ in best]


LEAST_LOGPROB = -100.0  # vLLM writes -9999 for probability 0: one such token must not decide the mean of a thousand


def mean_logprob(choice: Mapping[str, Any]) -> float | None:
    """Mean log-probability of a choice's tokens, in nats; None: the engine sent no logprobs, or there is no token.

    They are the target's before temperature and penalties, also of drafted tokens (see `top2_gaps`). exp(-mean) is the
    perplexity of the output to its own model.
    """
    entries = _logprobs(choice)
    if not entries:
        return None
    return sum(max(float(entry["logprob"]), LEAST_LOGPROB) for entry in entries) / len(entries)


def _logprobs(choice: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """One entry per token as chats have them; of completions, which have lists and a table of candidates, the same."""
    told = choice.get("logprobs") or {}
    if "token_logprobs" not in told:
        return cast("list[dict[str, Any]] | None", told.get("content"))
    tables = told.get("top_logprobs") or [None] * len(told["token_logprobs"])
    return [
        {"logprob": written, "top_logprobs": [{"logprob": each} for each in (table or {}).values()]}
        for written, table in zip(told["token_logprobs"], tables, strict=True)
    ]


class Reply(NamedTuple):
    """One finished, non-streamed answer. `completion_tokens` counts thinking, body and end token."""

    body: str
    reasoning: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    token_ids: list[int] | None
    wall_s: float
    top2_gap: list[float] | None = None  # see `top2_gaps`
    mean_logprob: float | None = None  # see `mean_logprob`
    engine: EngineTruth = EngineTruth()
    cached_tokens: int = 0  # of the prompt's, by its usage; 0 where an engine says nothing of it


class StreamReply(NamedTuple):
    """One streamed answer. Times run from the request; `first_chunk_tokens` came with the first chunk."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    first_token_s: float | None
    last_token_s: float | None
    first_chunk_tokens: int
    largest_chunk_tokens: int
    chunks: int
    wall_s: float
    engine: EngineTruth = EngineTruth()
    counts: tuple[tuple[float, int], ...] = ()  # of each chunk with tokens: when it came, the running count
    token_id_count: int | None = None  # how many ids came; None: none did, of an engine that doesn't know them
    cached_tokens: int = 0  # as of a `Reply`

    @property
    def gaps(self) -> list[tuple[float, int]]:
        """Of each chunk but the first, the seconds since the one before it, and its tokens."""
        return [(later[0] - earlier[0], later[1] - earlier[1]) for earlier, later in pairwise(self.counts)]

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first chunk, by token counts; None if one chunk held all tokens."""
        later_tokens = self.completion_tokens - self.first_chunk_tokens
        if self.first_token_s is None or self.last_token_s is None or later_tokens <= 0:
            return None
        return (self.last_token_s - self.first_token_s) / later_tokens


ENDINGS = ("stop", "length", "repetition")
"""How an answer may end: by itself, at its length, or where it was asked to end as soon as it repeats itself."""


def reply_of(heard: Heard) -> Reply:
    """Decode an answer. Raises RequestFailed: an error status, no completion, or ended by none of `ENDINGS`."""
    answer = heard.json()
    with _formed("no chat completion with its usage", answer):
        choice, usage = answer["choices"][0], answer["usage"]
        message = {"content": choice["text"]} if "prompt" in heard.body else choice["message"]
        finish_reason = str(choice["finish_reason"])
        if finish_reason not in ENDINGS:
            raise RequestFailed(f"the engine ended a request with finish_reason {finish_reason!r}")
        return Reply(
            body=_text(message, "content"),
            reasoning=_text(message, "reasoning") or _text(message, "reasoning_content"),
            finish_reason=finish_reason,
            prompt_tokens=int(usage["prompt_tokens"]),
            completion_tokens=int(usage["completion_tokens"]),
            token_ids=choice.get("token_ids"),
            wall_s=heard.wall_s,
            top2_gap=top2_gaps(choice) if 2 in (heard.body.get("top_logprobs"), heard.body.get("logprobs")) else None,
            mean_logprob=mean_logprob(choice),
            engine=engine_truth(answer.get("metrics")),
            cached_tokens=_cached(usage),
        )


def stream_reply_of(heard: Heard) -> StreamReply:
    """Decode a streamed answer; tokens are counted by the engine's running usage, a chunk comes with its last byte.

    Raises RequestFailed: an error status or event, no [DONE], no usage, or not ended by stop or length.
    """
    events = heard.events()
    if not events or events[-1][1] != b"[DONE]":
        raise RequestFailed("the stream ended without [DONE]")
    steps: list[tuple[float, int]] = []  # when the running count of tokens rose, and to what
    pieces: list[str] = []
    finish_reason = ""
    prompt_tokens: int | None = None
    engine = EngineTruth()
    cached_tokens = 0
    ids: list[int] = []
    for at_s, data in events[:-1]:
        event = _event(data)
        with _formed("no chunk of a chat completion", event):
            usage = event.get("usage") or {}
            engine = engine_truth(event["metrics"]) if event.get("metrics") else engine
            prompt_tokens = usage.get("prompt_tokens", prompt_tokens)
            cached_tokens = max(cached_tokens, _cached(usage))  # vLLM tells it with the last usage only
            tokens = usage.get("completion_tokens", 0)
            if tokens > (steps[-1][1] if steps else 0):
                steps.append((at_s, tokens))
            for choice in event.get("choices", []):
                if choice.get("token_ids") is not None:
                    ids.append(len(choice["token_ids"]))
                pieces.append(_text(choice.get("delta") or choice, "reasoning", "content", "text"))
                finish_reason = choice.get("finish_reason") or finish_reason
    if finish_reason not in ("stop", "length"):
        raise RequestFailed(f"the engine ended a stream with finish_reason {finish_reason!r}")
    if prompt_tokens is None:
        raise RequestFailed("a stream without usage: nobody can tell its tokens")
    counts = [0, *(tokens for _, tokens in steps)]
    sizes = [later - earlier for earlier, later in pairwise(counts)]
    return StreamReply(
        text="".join(pieces),
        finish_reason=finish_reason,
        prompt_tokens=prompt_tokens,
        completion_tokens=counts[-1],
        first_token_s=steps[0][0] if steps else None,
        last_token_s=steps[-1][0] if steps else None,
        first_chunk_tokens=sizes[0] if sizes else 0,
        largest_chunk_tokens=max(sizes, default=0),
        chunks=len(sizes),
        wall_s=heard.wall_s,
        engine=engine,
        counts=tuple(steps),
        token_id_count=sum(ids) if ids else None,
        cached_tokens=cached_tokens,
    )


def _cached(usage: Mapping[str, Any]) -> int:
    """Reported where vLLM was started with --enable-prompt-tokens-details."""
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def _text(said: Mapping[str, Any], *names: str) -> str:
    return "".join(said.get(name) or "" for name in names)


@contextmanager
def _formed(otherwise: str, answer: object) -> Iterator[None]:
    """Whatever a body has in place of what it should have is a failed request, and no end of the attempt."""
    try:
        yield
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise RequestFailed(f"{otherwise}: {error!r} in {str(answer)[:300]}") from error


def _event(data: bytes) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError as error:
        raise RequestFailed(f"a stream's event is no JSON: {data[:200]!r}") from error
    if not isinstance(event, dict):
        raise RequestFailed(f"no chunk of a chat completion: {data[:200]!r}")
    if event.get("error") is not None:
        raise RequestFailed(f"an error inside the stream: {event['error']}")
    return event
