"""From a dataset's record to an item, and to a record of the dataset's self-made twin, by the table's columns.

Everything that is random is settled here. A record that can't be an item is named by its column.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

from configs.evals.suites import IFEVAL, Columns, SuiteFacts
from configs.steps.eval import TWIN_ITEMS
from tasks.family.words import KINDS, LETTERS, Question, draw_question
from tasks.frameworks.job import Item

ID_DIGITS = 12  # hex digits, 48 bits: among 35,030 items two ids collide once in 500,000 data sets
LONGEST_SHOWN = 60  # characters of a wrong value in an error: GPQA's text may not be spread
TWIN_REVISION = "twin-1"  # raised when a twin's items change: results of different revisions are not of the same items
Record = Mapping[str, Any]


class WrongShape(Exception):
    """A record that is not of the suite's shape. The text names the column, what was there, what would be accepted."""

    def __init__(self, column: str, found: object, accepted: str) -> None:
        shown = "missing" if found is None else f"{str(found)[:LONGEST_SHOWN]!r}"
        super().__init__(f"column {column!r} is {shown}; accepted: {accepted}")


def item_of(suite: SuiteFacts, record: Record, subset: str, *, plain: bool) -> Item:
    """The item of a record; `subset` is the dataset's configuration that it comes from, "" if unknown.

    `plain`: the question is the whole user message with its options, as the demo family knows it: `what ... ? gold
    (A)`. Raises WrongShape: a column is missing, or has what it can't have.
    """
    item = _ifeval(record) if suite.columns is None else _multiple_choice(suite, suite.columns, record, subset)
    if not (plain and item.choices):
        return item
    shown = (f"{choice} ({letter})" for choice, letter in zip(item.choices, suite.letters, strict=False))
    return replace(item, question=" ".join([item.question, *shown]))


def drawn(items: Sequence[Item], suite: SuiteFacts, seed: int, n: int) -> tuple[Item, ...]:
    """The first `n` items in an order of the seed alone: a smoke test and a larger run share their items."""
    order = sorted(items, key=lambda item: item.item_id)
    random.Random(f"{suite.name} {seed}").shuffle(order)
    return tuple(order[:n])


def twin(suite: SuiteFacts) -> list[dict[str, Any]]:
    """Records in the dataset's own shape that the demo family can answer, the same on every machine.

    The family knows nothing but its own questions, with the options of each in their place (a colour's letter is its
    index modulo 4). So records are drawn until the frozen order of the choices puts them there.
    """
    rng = random.Random(f"twin {suite.name}")
    records: dict[str, dict[str, Any]] = {}
    while len(records) < TWIN_ITEMS:
        question = draw_question(KINDS[len(records) % len(KINDS)], rng)
        for record in _likenesses(suite.columns, question, len(records)):
            if item_of(suite, record, "", plain=True).question == question.prompt:
                records[question.item_id] = record
    return list(records.values())


def _multiple_choice(suite: SuiteFacts, columns: Columns, record: Record, subset: str) -> Item:
    if not columns.options and record.get(columns.question) is None and record.get("question") is not None:
        record = {**record, columns.question: _with_options_inside(suite, record)}
    question = _text(record, columns.question)
    category = str(record.get(columns.category) or ("" if subset == "default" else subset))
    kept, options = _options(suite, columns, record)
    kept |= {columns.question: question, columns.category: category}
    letters = suite.letters[: len(options)] if options else suite.letters
    shown = [text.replace(*columns.replaced) for text in options]
    if columns.answer:
        kept[columns.answer], gold = _answer(record, columns, letters)
        item_id = _content_id(suite, question, *([options] if options else []), gold)
    else:
        item_id = _content_id(suite, question, *options)
        shown, gold = _frozen_order(item_id, shown, letters)
    asked = question.replace(columns.cut, "").strip() if columns.cut else question
    if not asked:
        raise WrongShape(columns.question, question, "a text")
    return Item(item_id, asked, tuple(shown), gold, category, kept)


def _with_options_inside(suite: SuiteFacts, record: Record) -> str:
    """Where a question has its options in its text, a file may have `question` and a column for each letter instead."""
    options = (f"({letter}) {_text(record, letter)}" for letter in suite.letters)
    return "\n".join([_text(record, "question"), *options])


def _options(suite: SuiteFacts, columns: Columns, record: Record) -> tuple[dict[str, Any], list[str]]:
    """The options' columns as a framework gets them, and the options."""
    if not columns.options:
        return {"options": [f"({letter})" for letter in suite.letters]}, []
    if not isinstance(columns.options, str):
        texts = {column: _text(record, column) for column in columns.options}
        return dict(texts), [*texts.values()]
    options = _texts(record, columns.options)
    if not 2 <= len(options) <= len(suite.letters):
        raise WrongShape(columns.options, f"{len(options)} options", f"2 to {len(suite.letters)}")
    return {columns.options: options}, options


def _answer(record: Record, columns: Columns, letters: str) -> tuple[int | str, str]:
    """The right answer as a framework gets it, and its letter."""
    if columns.first is not None:
        number = _number(record, columns.answer, range(columns.first, columns.first + len(letters)))
        return number, letters[number - columns.first]
    value = record.get(columns.answer)
    letter = str(value).strip().strip("()").upper()
    if value is None or len(letter) != 1 or letter not in letters:
        raise WrongShape(columns.answer, value, f"a letter from {letters[0]} to {letters[-1]}")
    return letter if columns.options else f"({letter})", letter


def _frozen_order(item_id: str, options: Sequence[str], letters: str) -> tuple[list[str], str]:
    """The order in which an item's options are shown, and the letter of the first: by the item's id alone.

    So it is the same everywhere. lm-eval's own order depends on a seed of the process and then stays in a cache.
    """
    order = sorted(range(len(options)), key=lambda place: hashlib.sha256(f"{item_id} {place}".encode()).digest())
    return [options[place] for place in order], letters[order.index(0)]


def _ifeval(record: Record) -> Item:
    prompt, names = _text(record, "prompt"), _texts(record, "instruction_id_list")
    said = _parsed(record, "kwargs", "a list with one object of arguments per instruction")
    if not isinstance(said, list) or len(said) != len(names) or not all(isinstance(one, dict) for one in said):
        raise WrongShape("kwargs", said, f"a list of {len(names)} objects, one per instruction")
    arguments = [{key: value for key, value in one.items() if value is not None} for one in said]
    key = _number(record, "key", range(10**9))
    kept = {"key": key, "prompt": prompt, "instruction_id_list": names, "kwargs": arguments}
    return Item(_content_id(IFEVAL, prompt, names, arguments), prompt, (), "", names[0].split(":")[0], kept)


def _content_id(suite: SuiteFacts, *content: object) -> str:
    """An id that follows from what is asked, so that it is the same from the hub, from a file, and in every row."""
    canonical = json.dumps([suite.name, *content], ensure_ascii=False, sort_keys=True)
    return f"{suite.name}-{hashlib.sha256(canonical.encode()).hexdigest()[:ID_DIGITS]}"


def _likenesses(columns: Columns | None, question: Question, number: int) -> Iterator[dict[str, Any]]:
    """A question of the family's as records of a dataset: one, or one for every order of the wrong options.

    Each such order gives another id, and so another order of the choices. IFEval's instructions are followed by
    `The answer is (C)`, and by no answer with another letter.
    """
    if columns is None:
        names, keyword = ["keywords:existence", "punctuation:no_comma"], rf"\({question.answer}\)"
        arguments = [{"keywords": [keyword]}, {}]  # lm-eval takes a keyword as a pattern
        yield {"key": number, "prompt": question.prompt, "instruction_id_list": names, "kwargs": arguments}
        return
    asked, _, listed = question.prompt.partition(" ? ")
    options, right = listed.split()[::2], LETTERS.index(question.answer)
    record: dict[str, Any] = {columns.category: question.kind}
    record[columns.question] = f"{asked} ?" if columns.options else question.prompt
    if columns.answer:
        record[columns.answer] = question.answer if columns.first is None else columns.first + right
        if isinstance(columns.options, str):
            record[columns.options] = options
        else:
            record |= dict(zip(columns.options, options, strict=False))
        yield record
        return
    correct = options.pop(right)
    for order in permutations(options):
        yield record | dict(zip(columns.options, (correct, *order), strict=True))


def _text(record: Record, column: str) -> str:
    value = record.get(column)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # options of MMLU-Pro and KMMLU that are numbers, from files that keep types
    if not isinstance(value, str) or not value.strip():
        raise WrongShape(column, value, "a text")
    return value


def _texts(record: Record, column: str) -> list[str]:
    accepted = 'a list of texts, e.g. ["one", "two"]'
    value = _parsed(record, column, accepted)
    if not isinstance(value, list) or not value or not all(isinstance(one, str | int | float) for one in value):
        raise WrongShape(column, value, accepted)
    return [str(one) for one in value]


def _parsed(record: Record, column: str, accepted: str) -> Any:
    """A value that is no text; from CSV files it comes as JSON."""
    value = record.get(column)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise WrongShape(column, value, f"{accepted}, as JSON") from None


def _number(record: Record, column: str, accepted: range) -> int:
    value = record.get(column)
    try:
        number = int(str(value))
    except ValueError:
        number = -1
    if number not in accepted:
        raise WrongShape(column, value, f"a whole number from {accepted[0]} to {accepted[-1]}")
    return number
