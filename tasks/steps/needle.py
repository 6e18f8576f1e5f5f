"""Needle: a sentence hidden in real prose of an exact length, and a question for its number at the end.

The prose is cut by the tokenizer of the model that is served.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice, product
from typing import Any, NamedTuple

from configs.errors import SpecsweepError
from configs.steps.needle import NeedleStep, condition_name
from tasks.context import Progress, StepContext
from tasks.frameworks.thoughts import without_thoughts
from tasks.guards.answers import ANY_SUSPECT, blank_output, truncated
from tasks.prompts import TOKENS_PER_WORD, CountTokens, Cut, Prompt, cut, prompt_seed, words_of
from warehouse.ledger.steps import NEEDLES
from warehouse.ledger.verdicts import Finding, Judgement, judge

PROMPT_HASH_HEX_DIGITS = 16  # tells prompts apart; cells of a model are asked the same ones

SMOKE_DEPTH_PERCENT = 50


class NeedlePlace(NamedTuple):
    """Where a needle is hidden; in this order they are asked, the cheap ones first. It names a row."""

    context_tokens: int
    depth_percent: int
    seed: int


async def measure(ctx: StepContext, spec: NeedleStep) -> list[Judgement]:
    """Ask for every needle that earlier attempts didn't; each answer is stored as it comes."""
    rows = await ctx.resume(NEEDLES, NeedlePlace._fields)
    answered = {tuple(row[name] for name in NeedlePlace._fields) for row in rows}
    places = product(spec.lengths(ctx.cell), spec.depths_percent, range(spec.seeds))
    wanted = [NeedlePlace(*place) for place in places]
    tokens = sum(place.context_tokens for place in wanted)
    slots = asyncio.Semaphore(spec.concurrency)
    asked = [asyncio.ensure_future(_ask(ctx, spec, place, slots)) for place in wanted if place not in answered]
    try:
        for answer in asyncio.as_completed(asked):
            row = await answer
            await ctx.write(NEEDLES, [row])
            rows.append(row)
            read = sum(row["context_tokens"] for row in rows)
            ctx.tell(Progress(100 * read / tokens, f"{_found(rows)} of {len(rows)} found"))
    finally:  # one that failed ends the step: nobody waits for the others
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return _judgements(rows)


async def smoke(ctx: StepContext, spec: NeedleStep, items: int) -> list[Finding | None]:
    """One needle in the middle of the shortest text. Not to find it is a result; not to answer is a fault."""
    del items
    place = NeedlePlace(spec.lengths(ctx.cell)[0], SMOKE_DEPTH_PERCENT, spec.seeds)  # a seed that `measure` doesn't use
    row = await _ask(ctx, spec, place, asyncio.Semaphore())
    await ctx.write(NEEDLES, [row])
    ctx.tell(Progress(100, f"{_found([row])} of 1 found"))
    return [blank_output([row["body"]])]


async def _ask(ctx: StepContext, spec: NeedleStep, place: NeedlePlace, slots: asyncio.Semaphore) -> dict[str, Any]:
    needle = needle_of(*place, chat=ctx.cell.model.chat)
    async with slots:
        prose = await ctx.prose()
        made = await haystack(needle, *place, prose, lambda text: ctx.client.count_tokens(Prompt(text)))
        chat = ctx.cell.model.chat
        wanted = spec.max_tokens if chat else min(spec.max_tokens, CONTINUED_TOKENS)
        reply = await ctx.client.complete(ctx.client.request(Prompt(made.text), wanted, fixed=False))
    answer = last_number(reply.body) if chat else first_number(reply.body)
    return {
        **place._asdict(),
        "prompt_tokens": reply.prompt_tokens,
        "depth_tokens": made.depth_tokens,
        "prompt_hash": hashlib.sha256(made.text.encode()).hexdigest()[:PROMPT_HASH_HEX_DIGITS],
        "needle": needle.sentence,
        "gold": needle.number,
        "answer": answer,
        "correct": answer == needle.number,
        "truncated": chat and reply.finish_reason == "length",  # a base model writes on behind its answer
        "blank": not reply.body.strip(),
        "completion_tokens": reply.completion_tokens,
        "body": reply.body,
    }


def _judgements(rows: Sequence[dict[str, Any]]) -> list[Judgement]:
    """A needle that wasn't found is a result, and so is a blank answer among others; only blank ones aren't."""
    conditions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        conditions[condition_name(row["context_tokens"], row["depth_percent"])].append(row)
    judged = []
    for name, there in conditions.items():
        blank = blank_output([row["body"] for row in there]) if all(row["blank"] for row in there) else None
        cut_off = truncated(["length" if row["truncated"] else "stop" for row in there], ANY_SUSPECT)
        judged.append(judge(name, None, [blank, cut_off]))
    return judged


def _found(rows: Sequence[dict[str, Any]]) -> int:
    return sum(row["correct"] for row in rows)


CITIES = (
    "Lisbon|Oslo|Quito|Nairobi|Kyoto|Tallinn|Valencia|Montreal|Cardiff|Lima|Hanoi|Zagreb|Perth|Geneva|Tunis|Santiago|"
    "Krakow|Boston|Dakar|Athens|Riga|Havana|Bergen|Seville"
).split("|")

_GROUPED = r"\d{1,3}(?:[,.' _\u00a0\u202f]\d{3})+(?!\d)"
_NUMBER = re.compile(rf"{_GROUPED}|\d+")


CONTINUED_TOKENS = 32  # of a base model: the number, which it continues the text with, and a few behind it


class Needle(NamedTuple):
    """A city and its number of seven digits."""

    city: str
    number: str
    chat: bool = True

    @property
    def sentence(self) -> str:
        """What is hidden."""
        return f"The secret number of {self.city} is {self.number}."

    @property
    def question(self) -> str:
        """What is asked behind the text: of a base model the sentence again, as far as its number."""
        if not self.chat:
            return self.sentence.split(self.number)[0].rstrip()
        return (
            f"What is the secret number of {self.city} that is mentioned in the text above? "
            "End your answer with that number alone."
        )


def needle_of(*place: int, chat: bool = True) -> Needle:
    """The needle of one place (length, depth, seed): no two places share a number, except by chance."""
    draw = random.Random(prompt_seed("needle", *place))
    return Needle(draw.choice(CITIES), str(draw.randrange(1_000_000, 10_000_000)), chat)


def last_number(body: str) -> str | None:
    """Extractor `exact`: digits of the last number in the body, thoughts removed; `4,829,173` is one number."""
    found = _NUMBER.findall(without_thoughts(body))
    return re.sub(r"\D", "", found[-1]) if found else None


def first_number(body: str) -> str | None:
    """Digits of the first number in what a base model wrote behind the text."""
    found = _NUMBER.search(body)
    return re.sub(r"\D", "", found[0]) if found else None


class NoRoom(SpecsweepError):
    """A length that the question alone exceeds."""


class Haystack(NamedTuple):
    """A user message with its needle. `depth_tokens` are before the needle, out of `prompt_tokens` in all."""

    text: str
    prompt_tokens: int
    depth_tokens: int


async def haystack(
    needle: Needle, context_tokens: int, depth_percent: int, seed: int, paragraphs: Sequence[str], count: CountTokens
) -> Haystack:
    """A text whose whole prompt has `context_tokens` or a word less, the needle at `depth_percent` of them.

    The chat template and the question count; at a depth of 100 % all but the question stands before the needle. Raises
    NoRoom: there is none for any text.
    """
    template_tokens = await count("")
    around = await count(_around(needle, "", ""))
    if around > context_tokens:
        problem = f"context_tokens {context_tokens} is too short for the needle and its question ({around} tokens)"
        raise NoRoom(f"{problem}; accepted: more than {around}")
    words = words_of(paragraphs, prompt_seed("haystack", seed))
    supply = list(islice(words, context_tokens))  # a word has a token at least
    end_tokens = template_tokens + min(round(context_tokens * depth_percent / 100), context_tokens - around)
    bare = Cut(0, template_tokens)
    before = await cut(bare, len(supply), end_tokens, lambda n: count(_text(supply[:n])), TOKENS_PER_WORD)
    head, tail = _text(supply[: before.units]), supply[before.units :]

    async def tokens_of(words_after: int) -> int:
        return await count(_around(needle, head, _text(tail[:words_after])))

    whole = await cut(Cut(0, await tokens_of(0)), len(tail), context_tokens, tokens_of, TOKENS_PER_WORD)
    return Haystack(_around(needle, head, _text(tail[: whole.units])), whole.tokens, before.tokens - template_tokens)


def _text(some: Sequence[str]) -> str:
    return "".join(some).rstrip()


def _around(needle: Needle, before: str, after: str) -> str:
    return "\n\n".join(part for part in (before, needle.sentence, after, needle.question) if part)
