"""Items that are asked alike: what tells them apart is not in the prompt, so no answer could be right for both."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.frameworks.job import Item

Asked = tuple[str, ...]


def asked_of(item: Item) -> Asked:
    """What a model sees of an item in any framework: its question and its options in order, white space apart."""
    return tuple(" ".join(text.split()) for text in (item.question, *item.choices))


def right_answer(item: Item) -> object:
    """The letter, or what a checker of the answer is told."""
    return item.gold or {name: value for name, value in item.record.items() if name not in ("key", "prompt")}


def contradictory(items: Iterable[Item]) -> list[list[Item]]:
    """Groups of items that are asked alike and have different right answers, each in the order of `items`."""
    alike: dict[Asked, list[Item]] = {}
    for item in items:
        alike.setdefault(asked_of(item), []).append(item)
    return [group for group in alike.values() if any(right_answer(item) != right_answer(group[0]) for item in group)]
