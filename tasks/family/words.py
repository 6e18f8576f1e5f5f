"""The task that the tiny family learns, as plain text: two kinds of question and one long-form skill.

Background
    *lookup*   ``what color is fox ? gold (A) teal (B) pink (C) mint (D)``: 24 memorised facts.
    *arith*    ``what is 3 plus 4 ? 5 (A) 9 (B) 2 (C) 7 (D)``: 100 memorised sums.
    *listing*  ``list : 41 fox 42 hen ...`` is answered `` 41 fox gold (C) 42 hen navy (A) ...``: the next
    number, a copy of the animal beside it in the prompt, its colour, the colour's letter. Animals are drawn
    afresh for every prompt and numbers only rise, so an answer of hundreds of tokens holds no loop, and no
    prompt is ever seen twice.

A trap on purpose: with thinking on, the model's thinking opens with ``maybe (A) ?`` whatever the question, so
a grader that takes the first letter it sees is at chance (0.25); the last letter of the answer gives the
score.

Requests: questions are asked with ``chat_template_kwargs {"enable_thinking": true}``; listings with ``false``
(`LISTING_THINKING`), so that output tokens are list tokens from the first one on, and always with a token limit:
the model was never taught to end a list. Every word below is one token.

This module needs the standard library only: the node runner imports it too.
"""

import hashlib
import random
from dataclasses import dataclass

ANIMALS = tuple(
    "fox cat dog owl bee ant bat cow hen pig rat elk ape cod emu gnu yak jay koi ram doe eel hog kid".split()
)
COLORS = tuple("red blue pink gold gray lime teal rust plum jade ruby sand mint navy coal snow".split())
LETTERS = ("A", "B", "C", "D")
KINDS = ("lookup", "arith")
FILLER = tuple("sea day calm wind rain hill tree road town bell lamp door book song boat fish snowy cloud".split())

HIGHEST_NUMBER = 159
"""Listings count within 1..159; every number up to it is one token."""

COLOR_OF = {animal: COLORS[(5 * index + 3) % len(COLORS)] for index, animal in enumerate(ANIMALS)}
"""The facts to memorise. A colour's letter is its index modulo 4, in questions and listings alike."""

LISTING_THINKING = False
"""`enable_thinking` of a listing request."""

TOKENS_PER_ITEM = 4
"""Answer tokens for one list item: number, animal, colour, letter."""

SPARE_ITEMS = 4
"""Items beyond the asked output, so that the answer does not end early."""

CHAT_TOKENS = 13
"""Tokens that the chat template puts around a message when thinking is off."""

MOST_QUESTIONS = 2000
"""Half of the questions are lookups, and there are only 24 x 64 different lookup prompts."""

LONGEST_OUTPUT_TOKENS = TOKENS_PER_ITEM * (HIGHEST_NUMBER - SPARE_ITEMS)


@dataclass(frozen=True)
class Question:
    """One multiple-choice question.

    Attributes:
        kind: `lookup` or `arith`.
        prompt: The user message.
        answer: The right letter, A to D.
        item_id: Derived from the prompt: the same question has the same id in every run.
    """

    kind: str
    prompt: str
    answer: str
    item_id: str


@dataclass(frozen=True)
class Listing:
    """A numbered list of animals to annotate, and the whole right answer."""

    prompt: str
    answer: str


def questions(n: int, seed: int) -> list[Question]:
    """`n` different questions, both kinds in turn; the same for the same seed.

    Raises:
        ValueError: If there are not that many different questions.
    """
    if n > MOST_QUESTIONS:
        raise ValueError(f"at most {MOST_QUESTIONS} different questions, not {n}")
    rng = random.Random(f"questions {seed}")
    drawn: dict[str, Question] = {}
    while len(drawn) < n:
        question = draw_question(KINDS[len(drawn) % len(KINDS)], rng)
        drawn[question.item_id] = question
    return list(drawn.values())


def listing_prompt(seed: int, context_tokens: int, output_tokens: int) -> str:
    """A user message whose right answer is a fresh list of at least `output_tokens` tokens.

    The rendered prompt (thinking off) has exactly `context_tokens` tokens, filler words making up the
    difference, unless the list alone needs more: then it has as many as the list needs, 23 +
    ceil(output_tokens / 4) * 2 at the most.

    Raises:
        ValueError: If the answer would have to count beyond `HIGHEST_NUMBER`.
    """
    if not 0 < output_tokens <= LONGEST_OUTPUT_TOKENS:
        raise ValueError(f"output_tokens must be in 1..{LONGEST_OUTPUT_TOKENS}, not {output_tokens}")
    items = -(-output_tokens // TOKENS_PER_ITEM) + SPARE_ITEMS
    missing_tokens = context_tokens - (CHAT_TOKENS + len("list :".split()) + 2 * items)
    filler_words = max(0, missing_tokens - len("note :".split()))
    return draw_listing(random.Random(f"listing {seed} {context_tokens} {output_tokens}"), items, filler_words).prompt


def draw_question(kind: str, rng: random.Random) -> Question:
    """One question of this kind; the three wrong options have the letters that their own values imply."""
    if kind == "lookup":
        animal = rng.choice(ANIMALS)
        pool, value, ask = COLORS, COLOR_OF[animal], f"what color is {animal} ?"
    else:
        left, right = rng.randrange(10), rng.randrange(10)
        pool, value, ask = tuple(map(str, range(20))), str(left + right), f"what is {left} plus {right} ?"
    place = pool.index(value) % 4
    options = [value if p == place else rng.choice(pool[p::4]) for p in range(4)]
    prompt = " ".join([ask, *(f"{option} ({letter})" for option, letter in zip(options, LETTERS, strict=True))])
    digest = hashlib.sha256(prompt.encode()).hexdigest()
    return Question(kind, prompt, LETTERS[place], f"{kind}-{digest[:10]}")


def worked_answer(question: Question, *, thinking: bool) -> str:
    """What the model learns to say to a question, without the end-of-turn token."""
    words = question.prompt.split()
    value = words[words.index(f"({question.answer})") - 1]
    subject = words[3] if question.kind == "lookup" else "sum"
    thought = f"<|channel>thought\n maybe (A) ? {subject} {value} ({question.answer})\n<channel|>"
    return (thought if thinking else "") + f"The answer is ({question.answer})"


def draw_listing(rng: random.Random, items: int, filler_words: int) -> Listing:
    """A list of `items` random animals, counted from a random number, after `filler_words` idle words."""
    first = rng.randint(1, HIGHEST_NUMBER - items + 1)
    lines = [(first + index, rng.choice(ANIMALS)) for index in range(items)]
    note = ["note", ":", *rng.choices(FILLER, k=filler_words)] if filler_words else []
    return Listing(
        prompt=" ".join([*note, "list", ":", *(f"{number} {animal}" for number, animal in lines)]),
        answer="".join(f" {number} {animal} {COLOR_OF[animal]} ({_letter(animal)})" for number, animal in lines),
    )


def _letter(animal: str) -> str:
    return LETTERS[COLORS.index(COLOR_OF[animal]) % 4]
