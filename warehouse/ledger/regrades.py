"""Later gradings of committed steps: what a commit says of answers, judged again from the same tape by better readers.

    runs/<run_id>/cells/<cell_key>/steps/<step>/regrades/<n>/<table>-<id>.parquet
    runs/<run_id>/cells/<cell_key>/steps/<step>/regrades/<n>.json       written last; the highest n counts

A regrade replaces whole tables of its step, and the step's verdict. The commit and its parts stay as they are.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from warehouse.ledger.commits import Commit, Ledger, Part, Record
from warehouse.ledger.parts import Row, decode, encode, sha256_hex
from warehouse.ledger.store import StoreError
from warehouse.ledger.store.protocol import numbers
from warehouse.ledger.tables import Table
from warehouse.ledger.verdicts import Verdict


class Regrade(Record):
    """One later grading of one step."""

    step: str
    number: int
    extractor_version: int
    made_at: str
    git_sha: str | None
    replaces: tuple[str, ...]
    verdict: Verdict
    reasons: tuple[str, ...]
    parts: tuple[Part, ...]


class Grading(NamedTuple):
    """What is to be written: all rows of the tables that it replaces, with their identity, and the step's verdict."""

    tables: Mapping[Table, Sequence[Row]]
    verdict: Verdict
    reasons: tuple[str, ...]
    extractor_version: int


def newest(keys: Sequence[str]) -> dict[tuple[str, str], int]:
    """Highest regrade by cell key and step, from keys of a run's listing."""
    found: dict[tuple[str, str], int] = {}
    for key in keys:
        match key.split("/"):
            case [_, _, "cells", cell_key, "steps", step, "regrades", name]:
                for number in numbers([name], "{}.json".format):
                    found[cell_key, step] = max(number, found.get((cell_key, step), 0))
    return found


def read_regrade(ledger: Ledger, cell_key: str, step: str, number: int) -> Regrade:
    """A regrade that a listing has shown.

    Raises:
        StoreError: it is gone, or this version can't read it.
    """
    key = f"{ledger.step_root(cell_key, step)}/regrades/{number}.json"
    data = ledger.store.get(key)
    if data is None:
        raise StoreError(f"{ledger.store.uri(key)} was listed but is gone: restore it")
    try:
        return Regrade.model_validate_json(data)
    except ValidationError as error:
        raise StoreError(f"{ledger.store.uri(key)} was written by another version of specsweep: {error}") from error


def in_force(commit: Commit, regrade: Regrade | None) -> Commit:
    """The commit as its newest regrade has it: other parts of the replaced tables, another verdict."""
    if regrade is None:
        return commit
    kept = [part for part in commit.parts if part.table not in regrade.replaces]
    changed = {
        "parts": (*kept, *regrade.parts),
        "replaced": tuple(part for part in commit.parts if part.table in regrade.replaces),
        "verdict": regrade.verdict,
        "reasons": regrade.reasons,
    }
    return commit.model_copy(update=changed)


def write_regrade(
    ledger: Ledger, cell_key: str, step: str, after: int, grading: Grading, git_sha: str | None
) -> Regrade:
    """Store a grading, so that it counts from now on.

    It was made from the regrade `after`; 0: from the commit itself.

    Raises:
        StoreError: another process wrote the next regrade meanwhile.
    """
    number, root = after + 1, f"{ledger.step_root(cell_key, step)}/regrades"
    parts = []
    for table, rows in grading.tables.items():
        data, part = encode(table, rows), f"{root}/{number}/{table.name}-{uuid.uuid4().hex[:12]}.parquet"
        if not ledger.store.put_new(part, data):
            raise StoreError(f"{ledger.store.uri(part)} exists already: a part name was drawn twice")
        parts.append(Part(key=part, table=table.name, rows=len(rows), sha256=sha256_hex(data)))
    regrade = Regrade(
        step=step,
        number=number,
        extractor_version=grading.extractor_version,
        made_at=ledger.clock.now_iso(),
        git_sha=git_sha,
        replaces=tuple(table.name for table in grading.tables),
        verdict=grading.verdict,
        reasons=grading.reasons,
        parts=tuple(parts),
    )
    key = f"{root}/{number}.json"
    if not ledger.store.put_new(key, regrade.model_dump_json(indent=1).encode()):
        raise StoreError(f"{ledger.store.uri(key)} was written by somebody else meanwhile: run the same command again")
    return regrade


def rows_in_force(ledger: Ledger, commit: Commit, table: Table) -> Iterator[dict[str, Any]]:
    """Rows of one table of a commit, part by part, each part compared with its hash.

    Raises:
        StoreError: a part is missing, or is not what the commit says.
    """
    for part in commit.parts:
        if part.table == table.name:
            data = ledger.store.get(part.key)
            if data is None or sha256_hex(data) != part.sha256:
                raise StoreError(f"{ledger.store.uri(part.key)} is gone, or not the file its commit names: restore it")
            yield from decode(data, part.key)
