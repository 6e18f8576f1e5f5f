"""Which items an evaluation asks: from the hub, a file or the twin, with everything random settled."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from configs.evals.records import DatasetUnavailable, from_file
from configs.steps.eval import HUB, TWIN, EvalStep
from tasks.evals.hub import REMEDY, Tell, fetched
from tasks.evals.shapes import TWIN_REVISION, WrongShape, drawn, item_of, twin
from tasks.frameworks.job import Item

MOST_MALFORMED = 0.01  # share of the hub's records that may be left out; more, and it is not the dataset that we know


class Prepared(NamedTuple):
    """The items of one evaluation, in the order in which they are asked.

    `revision` names what they were taken from: a commit of the hub's dataset, "sha256:..." of a file, or the twin's.
    `plain`: their `question` is the whole user message, no framework's template around it.
    """

    items: tuple[Item, ...]
    revision: str
    plain: bool


class _Source(NamedTuple):
    name: str  # as errors name it
    records: list[tuple[str, dict[str, Any]]]  # each with its subset
    revision: str


def prepared(spec: EvalStep, cache: Path, tell: Tell) -> Prepared:
    """The items that this step asks: the same in every cell, framework, process and attempt.

    Fetched records are kept in `cache`; `tell` gets a line about what takes long or is left out.
    Raises DatasetUnavailable: one line that says what is missing or wrong, and what would be accepted.
    """
    source = _source(spec, cache, tell)
    items = _items(spec, source, tell)
    different = {item.item_id: item for item in items}
    if len(different) < len(items):
        _repeated(spec, source, items, tell)
    if groups := _contradictory(different.values()):
        _contradicting(spec, source, items, groups, tell)
        out = {item.item_id for group in groups for item in group}
        different = {item_id: item for item_id, item in different.items() if item_id not in out}
    wanted = _wanted(spec, len(different), source)
    chosen = drawn(list(different.values()), spec.suite, spec.seed, wanted)
    return Prepared(chosen, source.revision, plain=spec.dataset == TWIN)


def _source(spec: EvalStep, cache: Path, tell: Tell) -> _Source:
    if spec.dataset == TWIN:
        return _Source(f"the twin of {spec.suite.title}", _unsplit(twin(spec.suite)), TWIN_REVISION)
    if spec.dataset == HUB:
        records, commit = fetched(spec.suite, spec.revision or spec.suite.revision, spec.framework, cache, tell)
        return _Source(spec.suite.hub_id, records, commit)
    records_of_file, revision = from_file(spec.dataset)
    return _Source(f"dataset {spec.dataset!r}", _unsplit(records_of_file), revision)


def _unsplit(records: Iterable[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [("", record) for record in records]


def _items(spec: EvalStep, source: _Source, tell: Tell) -> list[Item]:
    """All items; what is wrong in the hub's own dataset nobody here can mend, so a few records are left out."""
    items, wrong = [], []
    for row, (subset, record) in enumerate(source.records, 1):
        try:
            items.append(item_of(spec.suite, record, subset, plain=spec.dataset == TWIN))
        except WrongShape as error:
            where = f"{source.name}{f' ({subset})' if subset else ''}, row {row}"
            wrong.append(f"{where} is not of {spec.suite.title}'s shape: {error}")
            if spec.dataset != HUB:
                break
    if not wrong:
        return items
    if spec.dataset != HUB:
        raise DatasetUnavailable(wrong[0])
    share = f"{len(wrong)} of {len(source.records)} records"
    if len(wrong) > MOST_MALFORMED * len(source.records):
        raise DatasetUnavailable(f"{share} can't be used, e.g. {wrong[0]}; set another `revision:`, {REMEDY}")
    tell(f"{spec.suite.title}: {share} can't be used and are left out, e.g. {wrong[0]}")
    return items


def _repeated(spec: EvalStep, source: _Source, items: list[Item], tell: Tell) -> None:
    """Repeats in a user's file are a mistake; those of the hub's own dataset (MMLU-Pro's) can only be left out."""
    first: dict[str, int] = {}
    again = [
        (first[item.item_id], row) for row, item in enumerate(items, 1) if first.setdefault(item.item_id, row) != row
    ]
    if spec.dataset != HUB:
        one, other = again[0]
        wrong = f"rows {one} and {other} are the same item ({len(again)} repeats): keep one of each"
        raise DatasetUnavailable(f"{source.name}: {wrong}")
    tell(f"{spec.suite.title}: {len(again)} of {len(items)} items repeat another and are asked once")


def _contradicting(spec: EvalStep, source: _Source, items: list[Item], groups: list[list[Item]], tell: Tell) -> None:
    """Which answer would be whose, nobody could tell afterwards: seen here, it costs no GPU hours."""
    if spec.dataset == HUB:
        concerned = sum(map(len, groups))
        tell(f"{spec.suite.title}: {concerned} items have another's question and options, and another right answer: "
             "left out")  # fmt: skip
        return
    rows = {item.item_id: row for row, item in enumerate(items, 1)}
    one, other = groups[0][0], next(item for item in groups[0] if right_answer(item) != right_answer(groups[0][0]))
    answers = f" ({one.gold} and {other.gold})" if one.gold else ""
    raise DatasetUnavailable(
        f"{source.name}: rows {rows[one.item_id]} and {rows[other.item_id]} ask the same and have different right "
        f"answers{answers}; {len(groups)} such questions: keep one of each"
    )


def _wanted(spec: EvalStep, there: int, source: _Source) -> int:
    """How many to draw: of the hub's at most what is left of them; only of a file more than the suite has."""
    wanted = there if spec.items is None else spec.n_items if spec.dataset in (HUB, TWIN) else spec.items
    if spec.dataset == HUB and wanted <= len(source.records):
        wanted = min(wanted, there)
    if wanted > there:
        raise DatasetUnavailable(
            f"items: {wanted}, but {source.name} has {there} different ones; accepted: 1 to {there}"
        )
    return wanted


def right_answer(item: Item) -> object:
    """The letter, or what a checker of the answer gets."""
    return item.gold or {name: value for name, value in item.record.items() if name not in ("key", "prompt")}


def _contradictory(items: Iterable[Item]) -> list[list[Item]]:
    """Groups of items that are asked alike and have different right answers: no answer could be right for both."""
    alike: dict[tuple[str, ...], list[Item]] = {}
    for item in items:
        alike.setdefault(tuple(" ".join(text.split()) for text in (item.question, *item.choices)), []).append(item)
    return [group for group in alike.values() if any(right_answer(item) != right_answer(group[0]) for item in group)]
