"""One exchange: what of a request reaches the engine, its names, its answer as a row, and the row as an answer again.

The fields that reach the engine are listed, not those that don't. So a field that nobody thought of can't change what
one framework measures and another doesn't. Prompts and requests are named by one canonical form, for all readers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import JsonValue

from configs.cell import Cell
from configs.errors import SpecsweepError
from configs.steps.eval import EvalStep
from warehouse.ledger.tables import Row

TEMPLATE_KWARGS = "chat_template_kwargs"

REFUSED = {
    "stream": "the response log records whole answers",
    "n": "the response log records one answer per request; more are `samples` of the step",
    "logprobs": "the response log keeps none",
    "top_logprobs": "the response log keeps none",
    "tools": "the response log records text only",
    "functions": "the response log records text only",
    "response_format": "it would bind the answer in one framework and not in another",
    "echo": "the answer would not be the model's alone",
    "continue_final_message": "the answer would not be the model's alone",
}
"""Fields without which the client would get something else than it asked for, and why it can't have them."""


class RequestRefused(SpecsweepError):
    """A request that the response log does not pass on: it would be answered, but not with what its sender expects."""


class Policy(NamedTuple):
    """What the requests of one cell and step have in common. Everything else but the messages is taken out.

    `set` and `template_kwargs` overwrite what the client sent. `seed` is that of sample 0; None: no seed is sent.
    """

    cell_key: str
    set: Mapping[str, Any]
    template_kwargs: Mapping[str, JsonValue]
    seed: int | None


def policy_of(cell: Cell, spec: EvalStep) -> Policy:
    """The policy of an evaluation step: its sampling, its length, the model's thinking arguments."""
    fixed: dict[str, Any] = {"model": cell.model.name, "max_tokens": spec.max_tokens}
    if cell.technique.greedy:  # block diffusion samples in its own way and refuses any temperature
        fixed |= {"temperature": spec.temperature, "top_p": spec.top_p}
    return Policy(
        cell_key=cell.cell_key,
        set=fixed,
        template_kwargs=dict(cell.model.chat_template_kwargs),
        seed=spec.seed if cell.technique.greedy else None,
    )


def apply(policy: Policy, body: Mapping[str, Any], sample: int) -> tuple[dict[str, Any], list[str]]:
    """The request as the engine gets it, and the fields that were taken out. Raises RequestRefused: one of `REFUSED`.

    `stop` is taken out because vLLM looks for stop strings inside the thinking, too. It then answers with content null
    and finish_reason "stop", which reads like an empty answer (vllm#53066). `sample`, from 0, is added to the seed.
    """
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise RequestRefused("messages: missing or empty; expected a list of chat messages")
    for name, why in REFUSED.items():
        if not _says_nothing(name, body.get(name)):
            raise RequestRefused(f"{name}: {body[name]!r:.60} is refused, {why}; ask without it")
    passed: dict[str, Any] = {"messages": body["messages"], **policy.set}
    template_kwargs = {**(body.get(TEMPLATE_KWARGS) or {}), **policy.template_kwargs}
    if template_kwargs:
        passed[TEMPLATE_KWARGS] = template_kwargs
    if policy.seed is not None:
        passed["seed"] = policy.seed + sample
    dropped = sorted(name for name, value in body.items() if name not in passed and not _says_nothing(name, value))
    return passed, dropped


def _says_nothing(name: str, value: object) -> bool:
    return value is None or value is False or value in ([], {}, "") or (name == "n" and value == 1)


HASH_DIGITS = 32  # hex digits of sha256 that are kept: 128 bits, so no two requests of any store will collide


def prompt_hash(messages: Sequence[Mapping[str, Any]]) -> str:
    """Hash of who says what; the same however a client splits the text into content parts or labels it."""
    return _hash(plain_messages(messages))


def request_hash(body: Mapping[str, Any], sample: int = 0) -> str:
    """Hash of a whole request, sampling and all, with its messages as plain text.

    Without a seed, two samples are the same request: its number keeps the second from the first one's answer.
    """
    salt = {} if "seed" in body else {"sample": sample}
    return _hash({**body, **salt, "messages": plain_messages(body.get("messages", ()))})


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Role and text of every message; what else a client hangs on a message (`type`, `name`) is left out."""
    return [{"role": str(said.get("role", "")), "content": plain_text(said.get("content"))} for said in messages]


def plain_text(content: object) -> str:
    """The text of a message's content: a string, OpenAI text parts, or nothing. Raises ValueError: it is no text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and all(isinstance(part, Mapping) and "text" in part for part in content):
        return "\n".join(str(part["text"]) for part in content)  # as chat templates join them
    raise ValueError(f"message content is neither text nor text parts: {content!r:.80}")


def canonical(value: object) -> str:
    """JSON that is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _hash(what: object) -> str:
    return hashlib.sha256(canonical(what).encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]


class AnswerUnusable(SpecsweepError):
    """The engine said 200 to a request and did not finish it; asking again may help."""


class Sent(NamedTuple):
    """A request as the engine gets it. `dropped` names the client's fields that are left out."""

    body: Mapping[str, Any]
    document: bytes
    dropped: Sequence[str]
    sample: int
    request_hash: str
    prompt_hash: str


def sent(body: Mapping[str, Any], dropped: Sequence[str], sample: int) -> Sent:
    """The request with its names. Raises ValueError: the text is not Unicode (a lone surrogate)."""
    document = canonical(body).encode()
    return Sent(body, document, dropped, sample, request_hash(body, sample), prompt_hash(body["messages"]))


def row_of(suite: str, asked: Sent, occurrence: int, answer: Any, latency_s: float) -> Row:
    """The engine's answer as a row of `exchanges`, without the columns that say who measured it.

    Raises AnswerUnusable: it has not one choice with a message, a finish_reason of stop or length, and token counts.
    """
    try:
        (choice,), usage = answer["choices"], answer["usage"]
        message, finish_reason = choice["message"], choice["finish_reason"]
        body, reasoning = message.get("content"), message.get("reasoning") or message.get("reasoning_content")
        tokens = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AnswerUnusable(f"the engine's answer is no chat completion ({error!r}): {answer!r:.200}") from error
    if finish_reason not in ("stop", "length"):
        raise AnswerUnusable(f"the engine ended the request with finish_reason {finish_reason!r}")
    if not isinstance(body, str | None):
        raise AnswerUnusable(f"the engine's content is no text: {body!r:.100}")
    stop_reason = choice.get("stop_reason")
    return {
        "suite": suite,
        "request_hash": asked.request_hash,
        "occurrence": occurrence,
        "prompt_hash": asked.prompt_hash,
        "sample": asked.sample,
        "messages": canonical(asked.body["messages"]),
        "parameters": canonical({name: value for name, value in asked.body.items() if name != "messages"}),
        "dropped": list(asked.dropped),
        "body": body,
        "reasoning": reasoning,
        "finish_reason": finish_reason,
        "stop_reason": None if stop_reason is None else str(stop_reason),
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "latency_s": latency_s,
    }


def answer_of(row: Row) -> dict[str, Any]:
    """The answer as the engine would shape it. A fresh answer goes the same way: a replay can't look different."""
    message = {"role": "assistant", "content": row["body"], "reasoning": row["reasoning"]}
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": row["finish_reason"],
        "stop_reason": row["stop_reason"],
    }
    prompt_tokens, completion_tokens = row["prompt_tokens"], row["completion_tokens"]
    return {
        "id": f"chatcmpl-{row['request_hash']}-{row['occurrence']}",
        "object": "chat.completion",
        "created": 0,
        "model": json.loads(row["parameters"])["model"],
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


class Turn(NamedTuple):
    """An occurrence of a request, as one framework job counts them. `job` is the number of that job."""

    request_hash: str
    occurrence: int
    job: int

    @property
    def key(self) -> tuple[str, int]:
        """What tells one answer from another, whichever job asks."""
        return self.request_hash, self.occurrence


class Count(NamedTuple):
    """What a response log has done, and what it holds.

    `asked` requests went to the engine, `replayed` ones did not. `fresh_tokens` are those of the answers to `asked`,
    `generated_tokens` all since the log began, unfinished answers included; None: the engine does not say. The others
    are over all `answered`, those of earlier attempts included.
    """

    asked: int
    replayed: int
    in_flight: int
    fresh_tokens: int
    generated_tokens: float | None
    answered: int
    completion_tokens: int
    truncated: int
    blank: int


class Answers:
    """All answers known so far, and the turns of the framework job that is asking now."""

    def __init__(self, known: Iterable[Row]) -> None:
        self._rows: dict[tuple[str, int], Row] = {}
        self._by_prompt: dict[tuple[str, int], list[Row]] = {}
        self._taken: dict[str, set[int]] = {}
        self._job = 0
        self.completion_tokens = 0
        self.truncated = 0
        self.blank = 0
        for row in known:
            self.add(row)

    def add(self, row: Row) -> None:
        """Know one more answer; of two with the same name, the first counts."""
        key = row["request_hash"], row["occurrence"]
        if key in self._rows:
            return
        self._rows[key] = row
        self._by_prompt.setdefault((row["prompt_hash"], row["sample"]), []).append(row)
        self.completion_tokens += row["completion_tokens"] or 0
        self.truncated += row["finish_reason"] == "length"
        self.blank += not (row["body"] or "").strip()

    def begin(self) -> None:
        """A framework job begins: equal requests are counted from 0 again, so what is known is replayed to it."""
        self._job += 1
        self._taken.clear()

    def take(self, request_hash: str) -> Turn:
        """The lowest occurrence of the request that is free in this job."""
        taken = self._taken.setdefault(request_hash, set())
        occurrence = next(number for number in range(len(taken) + 1) if number not in taken)
        taken.add(occurrence)
        return Turn(request_hash, occurrence, self._job)

    def give_back(self, turn: Turn) -> None:
        """The request was not answered: a repeat of it gets the same turn, not the next one."""
        if turn.job == self._job:
            self._taken[turn.request_hash].discard(turn.occurrence)

    def known(self, turn: Turn) -> Row | None:
        """The answer to this turn, if there is one."""
        return self._rows.get(turn.key)

    def rows(self) -> list[Row]:
        """All answers, as they became known; fresh ones lack the columns that say who measured them."""
        return list(self._rows.values())

    def to(self, prompt_hash: str, sample: int) -> list[Row]:
        """Answers to a prompt, in order of occurrence."""
        return sorted(self._by_prompt.get((prompt_hash, sample), ()), key=lambda row: int(row["occurrence"]))

    def __len__(self) -> int:
        return len(self._rows)
