"""Joins what a framework graded with what the engine answered, item by item, or refuses.

HRET 0.1.0 as released gave answers to the wrong questions; a request that timed out was counted as a wrong answer.
Neither shows in a score. So a graded response must be the recorded answer to a prompt with the item's own question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from configs.errors import SpecsweepError
from tasks.evals.exchange import prompt_hash
from tasks.evals.items import right_answer
from tasks.frameworks.job import Item, Result, Sample, without_thoughts
from warehouse.ledger.tables import Row

EXCERPT_CHARS = 80  # characters of an answer that an error shows
AnswersTo = Callable[[str, int], Sequence[Row]]  # rows of `exchanges` by prompt hash and sample, in order of occurrence


class PairingError(SpecsweepError):
    """What a framework graded is not what the engine answered. Nothing of it may become a score."""


class Paired(NamedTuple):
    """One item: what the framework made of it, and the exchange that answered it."""

    item: Item
    graded: Sample
    exchange: Row


def paired(
    result: Result, items: Sequence[Item], answers_to: AnswersTo, sample: int, quoted: bool = True
) -> list[Paired]:
    """Every item with its exchange, in the items' order; `sample` is which answer to every item, from 0.

    Raises PairingError: an item is missing, or was graded on anything but the response log's answer to its own prompt.
    It shows what was said only if `quoted`: a gated suite's text may not be spread.
    """
    graded = _by_item(result, items)
    hashes = {item.item_id: prompt_hash(graded[item.item_id].messages) for item in items}
    misasked = _misasked(items, graded, quoted)
    _refuse(result, items, "were asked with a prompt that has not their question and options", misasked)
    _refuse(result, items, "share a prompt with an item whose right answer is another", _ambiguous(items, hashes))
    free = {name: list(answers_to(name, sample)) for name in dict.fromkeys(hashes.values())}
    missing = ((item, "it was graded all the same") for item in items if not free[hashes[item.item_id]])
    _refuse(result, items, "have no answer in the response log (timed out?)", missing)
    taken: list[Paired] = []
    swapped: list[tuple[Item, str]] = []
    for item in items:
        theirs, left = graded[item.item_id], free[hashes[item.item_id]]
        same = next((row for row in left if _heard(row["body"]) == _heard(theirs.response)), None)
        if same is None:
            answered = _excerpt(left[0]["body"], quoted) if left else "fewer answers"
            swapped.append((item, f"the framework graded {_excerpt(theirs.response, quoted)}, the log has {answered}"))
        else:
            left.remove(same)
            taken.append(Paired(item, theirs, same))
    _refuse(result, items, "were graded on a response that is not the engine's answer to them", swapped)
    return taken


def _by_item(result: Result, items: Sequence[Item]) -> dict[str, Sample]:
    if result.error is not None:
        raise PairingError(f"{result.framework}: {result.error}")
    asked, graded = [item.item_id for item in items], [sample.item_id for sample in result.samples]
    if sorted(asked) != sorted(graded):
        odd = next((name for name in graded if name not in asked or graded.count(name) > 1), None)
        odd = odd or next(name for name in asked if name not in graded)
        raise PairingError(
            f"{result.framework} {result.version} graded {len(graded)} answers to {len(asked)} items, and {odd} is not "
            "once in both: nothing of it is kept"
        )
    return {sample.item_id: sample for sample in result.samples}


def _misasked(items: Sequence[Item], graded: dict[str, Sample], quoted: bool) -> Iterator[tuple[Item, str]]:
    """Items whose prompt has not their own question and options in it: the answer would be graded by another's gold."""
    for item in items:
        asked = _squeezed("".join(said["content"] for said in graded[item.item_id].messages))
        lacking = next((text for text in (item.question, *item.choices) if _squeezed(text) not in asked), None)
        if lacking is not None:
            yield item, f"the prompt ends {_excerpt(asked, quoted)}"


def _ambiguous(items: Sequence[Item], hashes: dict[str, str]) -> Iterator[tuple[Item, str]]:
    """Items that are asked alike and graded differently: which answer is whose, nobody could tell."""
    first: dict[str, Item] = {}
    for item in items:
        other = first.setdefault(hashes[item.item_id], item)
        if right_answer(other) != right_answer(item):
            yield item, f"{other.item_id} says {other.gold or 'otherwise'}, it says {item.gold or 'otherwise'}"


def _refuse(result: Result, items: Sequence[Item], what: str, found: Iterable[tuple[Item, str]]) -> None:
    wrong = list(found)
    if wrong:
        item, example = wrong[0]
        raise PairingError(
            f"{result.framework} {result.version}: {len(wrong)} of {len(items)} items {what}, e.g. {item.item_id}: "
            f"{example}; nothing of it is scored"
        )


def _heard(text: str | None) -> str:
    """What an answer says, without what frameworks strip on the way."""
    return _squeezed(without_thoughts(text or ""))


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _excerpt(text: str | None, quoted: bool) -> str:
    words = " ".join((text or "").split())
    if words and not quoted:
        return f"{len(words)} characters (a gated suite's, not shown)"
    return repr(words if len(words) <= EXCERPT_CHARS else "…" + words[-EXCERPT_CHARS:]) if words else "nothing"
