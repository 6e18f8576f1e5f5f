"""From a dataset's record to an item: one pure function per suite, which says exactly what is wrong with a record.

Everything that is random is settled here. The columns are those of the datasets themselves; text from CSV files is
read as what it stands for.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from configs.evals.suites import SUITES, SuiteName
from tasks.frameworks.job import Item

ID_DIGITS = 12
"""Hex digits of an item's id: 48 bits, so that among 35,030 items two ids collide once in 500,000 data sets."""

MOST_OPTIONS = 10
"""Of MMLU-Pro, whose letters end at J."""

LONGEST_SHOWN = 60
"""Characters of a wrong value in an error: GPQA's text may not be spread."""

ANSWER_HEADING = "### 정답"
"""What HRET takes out of a question, wherever it stands; a colon behind it stays."""

Record = Mapping[str, Any]


class WrongShape(Exception):
    """A record that is not of the suite's shape. The text names the column, what was there, what would be accepted."""

    def __init__(self, column: str, found: object, accepted: str) -> None:
        shown = "missing" if found is None else f"{str(found)[:LONGEST_SHOWN]!r}"
        super().__init__(f"column {column!r} is {shown}; accepted: {accepted}")


def item_of(suite: SuiteName, record: Record, subset: str, *, plain: bool) -> Item:
    """The item of a record.

    Args:
        suite: whose columns the record has.
        record: the raw record.
        subset: configuration of the dataset that it comes from; "" if unknown.
        plain: `question` becomes the whole user message, options included.

    Raises:
        WrongShape: a column is missing, or has what it can't have.
    """
    item = _SHAPES[suite](record, subset)
    if plain and item.choices:
        item = Item(item.item_id, plain_text(item.question, item.choices), *_after_question(item))
    return item


def plain_text(question: str, choices: Sequence[str]) -> str:
    """A question and its options as one line, the way the demo family was taught: `what ... ? gold (A) teal (B)`."""
    shown = (f"{choice} ({letter})" for choice, letter in zip(choices, "ABCDEFGHIJ", strict=False))
    return " ".join([question, *shown])


def frozen_order(item_id: str, correct: str, wrong: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The order in which an item's options are shown, and the right one's letter: by the item's id alone.

    So it is the same in every framework, process and attempt; lm-eval's own order depends on a seed of the process and
    then stays in a cache.
    """
    options = [correct, *wrong]
    order = sorted(range(len(options)), key=lambda place: hashlib.sha256(f"{item_id} {place}".encode()).digest())
    return tuple(options[place] for place in order), "ABCDEFGHIJ"[order.index(0)]


def content_id(suite: SuiteName, *content: object) -> str:
    """An id that follows from what is asked, so that it is the same from the hub, from a file, and in every row."""
    canonical = json.dumps([suite, *content], ensure_ascii=False, sort_keys=True)
    return f"{suite}-{hashlib.sha256(canonical.encode()).hexdigest()[:ID_DIGITS]}"


def drawn(items: Sequence[Item], suite: SuiteName, seed: int, n: int) -> tuple[Item, ...]:
    """`n` of the items in random order, the same for the same seed whatever order they came in.

    The first m of n are those that m alone would give, so that a smoke test, a look in between and a larger run share
    their items.
    """
    order = sorted(items, key=lambda item: item.item_id)
    random.Random(f"{suite} {seed}").shuffle(order)
    return tuple(order[:n])


def _gpqa(record: Record, subset: str) -> Item:
    question, correct = _text(record, "Question"), _text(record, "Correct Answer")
    wrong = [_text(record, f"Incorrect Answer {number}") for number in (1, 2, 3)]
    item_id = content_id("gpqa", question, correct, *wrong)
    choices, gold = frozen_order(item_id, *_as_shown(correct, wrong))
    kept = {"Question": question, "Correct Answer": correct}
    kept |= {f"Incorrect Answer {number}": text for number, text in enumerate(wrong, 1)}
    return Item(item_id, question, choices, gold, _category(record, "High-level domain", subset), kept)


def _as_shown(correct: str, wrong: Sequence[str]) -> tuple[str, list[str]]:
    """The options as lm-eval shows them: it takes " [title]" for a mark of WikiHow's. inspect gets the same."""
    shown = [text.replace(" [title]", ". ") for text in (correct, *wrong)]
    return shown[0], shown[1:]


def _mmlu_pro(record: Record, subset: str) -> Item:
    question, options = _text(record, "question"), _texts(record, "options")
    if not 2 <= len(options) <= MOST_OPTIONS:
        raise WrongShape("options", f"{len(options)} options", f"2 to {MOST_OPTIONS}")
    gold = _letter(record, "answer", "ABCDEFGHIJ"[: len(options)])
    category = _category(record, "category", subset)
    kept = {"question": question, "options": options, "answer": gold, "category": category}
    return Item(content_id("mmlu-pro", question, options, gold), question, tuple(options), gold, category, kept)


def _ifeval(record: Record, subset: str) -> Item:
    del subset
    prompt, names = _text(record, "prompt"), _texts(record, "instruction_id_list")
    said = _parsed(record, "kwargs", "a list with one object of arguments per instruction")
    if not isinstance(said, list) or len(said) != len(names) or not all(isinstance(one, dict) for one in said):
        raise WrongShape("kwargs", said, f"a list of {len(names)} objects, one per instruction")
    arguments = [{key: value for key, value in one.items() if value is not None} for one in said]
    key = _number(record, "key", range(10**9))
    kept = {"key": key, "prompt": prompt, "instruction_id_list": names, "kwargs": arguments}
    return Item(content_id("ifeval", prompt, names, arguments), prompt, (), "", names[0].split(":")[0], kept)


def _kmmlu(record: Record, subset: str) -> Item:
    question, choices = _text(record, "question"), tuple(_text(record, letter) for letter in "ABCD")
    number = _number(record, "answer", range(1, 5))
    category = _category(record, "Category", subset)
    kept = {"question": question, **dict(zip("ABCD", choices, strict=True)), "answer": number, "Category": category}
    gold = "ABCD"[number - 1]
    item_id = content_id("kmmlu", question, choices, gold)
    return Item(item_id, _as_hret_asks(question, "question"), choices, gold, category, kept)


def _hae_rae(record: Record, subset: str) -> Item:
    """`query` has the options in its text; a file may have `question` and A to E instead."""
    letters = SUITES["hae-rae"].letters
    gold = _letter(record, "answer", letters)
    if record.get("query") is None and record.get("question") is not None:
        options = [f"({letter}) {_text(record, letter)}" for letter in letters]
        query = "\n".join([_text(record, "question"), *options])
    else:
        query, options = _text(record, "query"), [f"({letter})" for letter in letters]
    category = _category(record, "category", subset)
    kept = {"query": query, "options": options, "answer": f"({gold})", "category": category}
    return Item(content_id("hae-rae", query, gold), _as_hret_asks(query, "query"), (), gold, category, kept)


def _as_hret_asks(text: str, column: str) -> str:
    """A question as HRET puts it into its prompt: the heading under which HAE-RAE's queries want the answer is cut."""
    asked = text.replace(ANSWER_HEADING, "").strip()
    if not asked:
        raise WrongShape(column, text, "a text")
    return asked


_SHAPES: Final[dict[SuiteName, Callable[[Record, str], Item]]] = {
    "gpqa": _gpqa,
    "mmlu-pro": _mmlu_pro,
    "ifeval": _ifeval,
    "hae-rae": _hae_rae,
    "kmmlu": _kmmlu,
}


def _after_question(item: Item) -> tuple[tuple[str, ...], str, str, dict[str, Any]]:
    return item.choices, item.gold, item.category, item.record


def _text(record: Record, column: str) -> str:
    value = record.get(column)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # options of MMLU-Pro and KMMLU that are numbers, from files that keep types
    if not isinstance(value, str) or not value.strip():
        raise WrongShape(column, value, "a text")
    return value


def _texts(record: Record, column: str) -> list[str]:
    value = _parsed(record, column, 'a list of texts, e.g. ["one", "two"]')
    if not isinstance(value, list) or not value or not all(isinstance(one, str | int | float) for one in value):
        raise WrongShape(column, value, 'a list of texts, e.g. ["one", "two"]')
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


def _letter(record: Record, column: str, letters: str) -> str:
    value = record.get(column)
    letter = str(value).strip().strip("()").upper()
    if value is None or len(letter) != 1 or letter not in letters:
        raise WrongShape(column, value, f"a letter from {letters[0]} to {letters[-1]}")
    return letter


def _number(record: Record, column: str, accepted: range) -> int:
    value = record.get(column)
    try:
        number = int(str(value))
    except ValueError:
        number = -1
    if number not in accepted:
        raise WrongShape(column, value, f"a whole number from {accepted[0]} to {accepted[-1]}")
    return number


def _category(record: Record, column: str, subset: str) -> str:
    return str(record.get(column) or ("" if subset == "default" else subset))
