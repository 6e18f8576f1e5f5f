"""A FAKE engine behind a real client's door: slots of known speed on a virtual clock, which may starve the client."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from configs.schema import PlannedCell
from tasks.client import Client, Heard, Ready
from tasks.prompts import Prompt
from tasks.wire.connection import Arrivals
from tests.tasks.virtual_time import Clock

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
            None  # tokens after which an answer ends by itself, where it may; None: at its cap
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
    """Tokens of a prompt: its words."""
    return len(body["messages"][-1]["content"].split())


def said(body: Mapping[str, Any], tokens: int) -> str:
    start = sum(body["messages"][-1]["content"].encode()) % 1000
    return " ".join(str(start + 7 * index) for index in range(tokens))
