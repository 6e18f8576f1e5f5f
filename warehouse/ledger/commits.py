"""What has been measured: plans, parts and commits of one run, all resting on create-only writes.

    runs/<run_id>/plan.json
    runs/<run_id>/prompts/<name>                                  what prompts are made of: the same on every node
    runs/<run_id>/cells/<cell_key>/cell.json
    runs/<run_id>/cells/<cell_key>/steps/<step>/parts/<table>-<attempt>-<n>.parquet
    runs/<run_id>/cells/<cell_key>/steps/<step>/commit.json       written last: what it does not name does not exist
    runs/<run_id>/cells/<cell_key>/steps/<step>/regrades/<n>/<table>-<id>.parquet
    runs/<run_id>/cells/<cell_key>/steps/<step>/regrades/<n>.json       written last; the highest n counts

A regrade replaces whole tables of its step and its verdict: better readers judged its answers again. The commit and its
parts stay. Leases, heartbeats and attempts of a cell are in `warehouse.ledger.lease`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from configs.schema import Plan, PlannedCell
from warehouse.ledger.clock import SYSTEM, Clock
from warehouse.ledger.runs import OUT, RUN_ID, OddRun, unreadable
from warehouse.ledger.store import Store, StoreError
from warehouse.ledger.store.protocol import numbers
from warehouse.ledger.tables import Row, Table, decode, encode, facts_of, sha256_hex
from warehouse.ledger.verdicts import Verdict

CommitResult = Literal["committed", "superseded"]

SPENT_S = "spent_s"  # what a part's footer calls the seconds that went into it; a `Part` has the same

_M = TypeVar("_M", bound=BaseModel)


class Record(BaseModel):
    """What a JSON object of a store says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, store: Store, key: str) -> Self | None:
        """What the object under this key says; None: there is none. OddRun: this version can't read it."""
        data = store.get(key)
        try:
            return None if data is None else cls.model_validate_json(data)
        except ValidationError as error:
            raise unreadable(key, error) from error


class Part(Record):
    """One Parquet object of a step."""

    key: str
    table: str
    rows: int
    sha256: str
    attempt: int | None = None
    spent_s: float | None = None
    """Seconds of the node since the step's rows were last stored; None: written before seconds were kept."""


class Commit(Record):
    """The last word on one step of one cell of one run."""

    step: str
    attempt: int
    owner: str
    verdict: Verdict
    reasons: tuple[str, ...]
    wall_s: float
    committed_at: str
    parts: tuple[Part, ...]
    judged: int | None = None
    judged_ok: int | None = None
    """Conditions that the guards judged, and how many of them are ok; None: committed before they were counted."""
    replaced: tuple[Part, ...] = Field(default=(), exclude=True)
    """Never stored: parts whose rows a regrade replaces. Their seconds were spent all the same."""

    @property
    def is_usable(self) -> bool:
        """Whether any condition is ok, as far as they were counted."""
        return self.judged_ok != 0


def said(commit: Commit) -> str:
    """A commit's verdict in words: `ok`, or how many conditions are ok and what was found in the others."""
    if commit.verdict == "ok":
        return "ok"
    share = f"{commit.judged_ok} of {commit.judged} ok, " if (commit.judged or 0) > 1 else ""
    return f"{share}{commit.verdict}: {', '.join(commit.reasons)}"


class Ledger:
    """One run in one store."""

    def __init__(self, store: Store, run_id: str, clock: Clock = SYSTEM, *, under: str = "runs") -> None:
        """The run need not exist yet; what is `under` another folder is no run. OddRun: its id isn't a safe name."""
        if not RUN_ID.match(run_id):
            raise OddRun(run_id, f"run id {run_id!r}: use up to 80 letters, digits, '.', '_' and '-', or {OUT}")
        self.store = store
        self.run_id = run_id
        self.clock = clock
        self.root = f"{under}/{run_id}"

    def cell_root(self, cell_key: str) -> str:
        """Folder of one cell, as a prefix of keys."""
        return f"{self.root}/cells/{cell_key}"

    def step_root(self, cell_key: str, step: str) -> str:
        """Folder of one step of one cell: its parts and its commit."""
        return f"{self.cell_root(cell_key)}/steps/{step}"

    def write_plan(self, plan: Plan) -> None:
        """Record what this run is, once; the same plan again changes nothing. StoreError: it has another plan."""
        text = plan.model_dump_json(indent=1).encode()
        if not self.store.put_new(f"{self.root}/plan.json", text):
            there = self.plan()
            if there.config_hash != plan.config_hash:
                raise StoreError(
                    f"run {self.run_id!r} was started with another plan ({there.config_hash}, now {plan.config_hash}): "
                    "choose another --run-id, or leave it out"
                )
        for planned in plan.cells:
            key = f"{self.cell_root(planned.cell.cell_key)}/cell.json"
            self.store.put_new(key, planned.model_dump_json(indent=1).encode())

    def write_prompts(self, name: str, data: bytes) -> None:
        """Keep what the run's prompts are made of, once: what is there already stays, whatever it is."""
        self.store.put_new(f"{self.root}/prompts/{name}", data)

    def prompts(self, name: str) -> bytes | None:
        """What `write_prompts` kept; None: the run is from before."""
        return self.store.get(f"{self.root}/prompts/{name}")

    def plan(self) -> Plan:
        """The run's plan. OddRun: there is no such run, or this version can't read it."""
        return self._read(Plan, f"{self.root}/plan.json", f"no run {self.run_id!r}")

    def age_s(self) -> float:
        """Seconds since the run was planned, by the store's clock; 0: it is not there yet."""
        return self.store.age_s(f"{self.root}/plan.json") or 0.0

    def planned_cell(self, cell_key: str) -> PlannedCell:
        """One cell of the run, with its steps. OddRun: the run has no such cell, or this version can't read it."""
        key = f"{self.cell_root(cell_key)}/cell.json"
        return self._read(PlannedCell, key, f"run {self.run_id!r} has no cell {cell_key!r}")

    def write_part(
        self, cell_key: str, step: str, table: Table, rows: Sequence[Row], attempt: int, spent_s: float | None = None
    ) -> Part:
        """Store rows as one new part. Readers ignore it until a commit names it.

        Its footer keeps the seconds that went into it, because another attempt may be the one that commits it.
        """
        data = encode(table, rows, {} if spent_s is None else {SPENT_S: repr(spent_s)})
        name = f"{table.name}-{attempt:04d}-{uuid.uuid4().hex[:12]}.parquet"
        key = f"{self.step_root(cell_key, step)}/parts/{name}"
        if not self.store.put_new(key, data):
            raise StoreError(f"{self.store.uri(key)} exists already: a part name was drawn twice")
        return Part(
            key=key, table=table.name, rows=len(rows), sha256=sha256_hex(data), attempt=attempt, spent_s=spent_s
        )

    def orphan_parts(
        self, cell_key: str, step: str, table: Table | None = None, but: Collection[str] = ()
    ) -> Iterator[tuple[Part, list[dict[str, Any]]]]:
        """Parts, with their rows, that attempts of an uncommitted step left; `but`: keys that aren't wanted."""
        for key in self.store.list(f"{self.step_root(cell_key, step)}/parts"):
            named, attempt, _ = key.rsplit("/", 1)[1].split("-", 2)
            wanted = key not in but and (table is None or named == table.name)
            data = self.store.get(key) if wanted else None
            if data is None:
                continue
            rows, spent_s = decode(data, key), facts_of(data, key).get(SPENT_S)
            yield Part(
                key=key, table=named, rows=len(rows), sha256=sha256_hex(data), attempt=int(attempt),
                spent_s=None if spent_s is None else float(spent_s),
            ), rows  # fmt: skip

    def new_commit(
        self,
        step: str,
        attempt: int,
        owner: str,
        verdict: Verdict,
        reasons: Sequence[str],
        wall_s: float,
        parts: Sequence[Part],
        judged: int | None = None,
        judged_ok: int | None = None,
    ) -> Commit:
        """A commit stamped with the present moment; `commit` makes it count."""
        return Commit(
            step=step,
            attempt=attempt,
            owner=owner,
            verdict=verdict,
            reasons=tuple(reasons),
            wall_s=wall_s,
            committed_at=self.clock.now_iso(),
            parts=tuple(parts),
            judged=judged,
            judged_ok=judged_ok,
        )

    def commit(self, cell_key: str, commit: Commit) -> CommitResult:
        """Make a step's parts visible, once. Losing the race is a normal ending: "superseded"."""
        key = f"{self.step_root(cell_key, commit.step)}/commit.json"
        created = self.store.put_new(key, commit.model_dump_json(indent=1).encode())
        return "committed" if created else "superseded"

    def read_commit(self, cell_key: str, step: str) -> Commit | None:
        """The step's commit; None while there is none. OddRun: another run made it, so that this one is a copy."""
        commit = Commit.read(self.store, f"{self.step_root(cell_key, step)}/commit.json")
        for part in () if commit is None else commit.parts:
            if not part.key.startswith(f"{self.root}/"):
                copy = f"a copy of run {part.key.split('/')[1]!r}, or that one under another name"
                raise OddRun(self.run_id, f"run {self.run_id!r} is {copy}: give it its name again, or {OUT}")
        return commit

    def keys(self) -> list[str]:
        """Keys of everything about the run's cells: one listing."""
        return list(self.store.list(f"{self.root}/cells"))

    def committed_steps(self, keys: Sequence[str] | None = None) -> dict[str, list[str]]:
        """Names of committed steps by cell key, from `keys()`; None: listed anew."""
        found: dict[str, list[str]] = {}
        for key in self.keys() if keys is None else keys:
            parts = key.split("/")
            if parts[-1] == "commit.json" and parts[-3] == "steps":
                found.setdefault(parts[3], []).append(parts[-2])
        return found

    def _read(self, model: type[_M], key: str, missing: str) -> _M:
        data = self.store.get(key)
        if data is None:
            raise OddRun(self.run_id, f"{missing} in {self.store.url}: {key} is missing; use another name, or {OUT}")
        try:
            return model.model_validate_json(data)
        except ValidationError as error:
            raise unreadable(key, error) from error


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
    """A regrade that a listing has shown. StoreError: it is gone. OddRun: this version can't read it."""
    key = f"{ledger.step_root(cell_key, step)}/regrades/{number}.json"
    found = Regrade.read(ledger.store, key)
    if found is None:
        raise StoreError(f"{ledger.store.uri(key)} was listed but is gone: restore it")
    return found


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
    """Store a grading that was made from the regrade `after` (0: from the commit), so that it counts from now on.

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
    """Rows of one table of a commit; StoreError: a part is missing, or its hash is not what the commit says."""
    for part in commit.parts:
        if part.table == table.name:
            data = ledger.store.get(part.key)
            if data is None or sha256_hex(data) != part.sha256:
                raise StoreError(f"{ledger.store.uri(part.key)} is gone, or not the file its commit names: restore it")
            yield from decode(data, part.key)
