"""Which items an evaluation asks: from the hub, a file or the twin, with everything random settled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from configs.evals.spec import HUB, TWIN, EvalStep
from tasks.evals.data.files import from_file
from tasks.evals.data.hub import fetched
from tasks.evals.data.shapes import WrongShape, drawn, item_of
from tasks.evals.data.twins import TWIN_REVISION, twin
from tasks.evals.data.unavailable import DatasetUnavailable
from tasks.frameworks.job import Item


class Prepared(NamedTuple):
    """The items of one evaluation, in the order in which they are asked.

    `revision` names exactly what they were taken from: a commit of the hub's dataset, "sha256:..." of a file, or the
    twin's. `plain`: their `question` is the whole user message, no framework's template around it.
    """

    items: tuple[Item, ...]
    revision: str
    plain: bool


class _Source(NamedTuple):
    name: str
    """As errors name it."""
    records: list[tuple[str, dict[str, Any]]]
    """Each with its subset."""
    revision: str


def prepared(spec: EvalStep, cache: Path, tell: Callable[[str], None]) -> Prepared:
    """The items that this step asks: the same in every cell, framework, process and attempt.

    Args:
        spec: the step; its `dataset`, `revision`, `items` and `seed` decide.
        cache: folder in which fetched records are kept.
        tell: gets a line about what takes long or is left out.

    Raises:
        DatasetUnavailable: one line that says what is missing or wrong, and what would be accepted.
    """
    source = _source(spec, cache, tell)
    items = _items(spec, source)
    different = {item.item_id: item for item in items}
    if len(different) < len(items):
        _repeated(spec, source, items, tell)
    wanted = _wanted(spec, len(different), source.name)
    chosen = drawn(list(different.values()), spec.suite.name, spec.seed, wanted)
    return Prepared(chosen, source.revision, plain=spec.dataset == TWIN)


def _source(spec: EvalStep, cache: Path, tell: Callable[[str], None]) -> _Source:
    if spec.dataset == TWIN:
        return _Source(f"the twin of {spec.suite.title}", _unsplit(twin(spec.suite.name)), TWIN_REVISION)
    if spec.dataset == HUB:
        records, commit = fetched(spec.suite, spec.revision or spec.suite.revision, spec.framework, cache, tell)
        return _Source(spec.suite.hub_id, records, commit)
    records_of_file, revision = from_file(spec.dataset)
    return _Source(f"dataset {spec.dataset!r}", _unsplit(records_of_file), revision)


def _unsplit(records: Iterable[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [("", record) for record in records]


def _items(spec: EvalStep, source: _Source) -> list[Item]:
    items = []
    for row, (subset, record) in enumerate(source.records, 1):
        try:
            items.append(item_of(spec.suite.name, record, subset, plain=spec.dataset == TWIN))
        except WrongShape as error:
            where = f"{source.name}{f' ({subset})' if subset else ''}, row {row}"
            raise DatasetUnavailable(f"{where} is not of {spec.suite.title}'s shape: {error}") from None
    return items


def _repeated(spec: EvalStep, source: _Source, items: list[Item], tell: Callable[[str], None]) -> None:
    """Repeats in a user's file are a mistake; those of the hub's own dataset (MMLU-Pro's) can only be left out."""
    first: dict[str, int] = {}
    again = [
        (first[item.item_id], row) for row, item in enumerate(items, 1) if first.setdefault(item.item_id, row) != row
    ]
    if spec.dataset == HUB:
        tell(f"{spec.suite.title}: {len(again)} of {len(items)} items repeat another and are asked once")
        return
    one, other = again[0]
    raise DatasetUnavailable(
        f"{source.name}: rows {one} and {other} are the same item ({len(again)} repeats): keep one of each"
    )


def _wanted(spec: EvalStep, there: int, name: str) -> int:
    """How many to draw; without a number all that there are. Only a file may have more than the suite."""
    wanted = there if spec.items is None else spec.n_items if spec.dataset in (HUB, TWIN) else spec.items
    if wanted > there:
        raise DatasetUnavailable(f"items: {wanted}, but {name} has {there} different ones; accepted: 1 to {there}")
    return wanted
