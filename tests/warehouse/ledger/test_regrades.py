"""Later gradings: immutable, the highest counts, and only for the tables that they replace."""

from typing import Any

import pytest

from flows.terminal.regrade import regrade
from tests.graded_run import write_graded_run
from warehouse.dataset.consolidate.inputs import Raw, take_inventory
from warehouse.ledger.commits import Grading, Ledger, newest, write_regrade
from warehouse.ledger.steps.evaluation import EVAL_SAMPLES, EXCHANGES
from warehouse.ledger.store import Store, StoreError


class CountedStore:
    """A store that counts what is asked of it."""

    def __init__(self, store: Store) -> None:
        self.store, self.url = store, store.url
        self.gets, self.lists = list[str](), list[str]()

    def get(self, key: str) -> bytes | None:
        self.gets.append(key)
        return self.store.get(key)

    def list(self, prefix: str) -> Any:
        self.lists.append(prefix)
        return self.store.list(prefix)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def gpqa(store: Any) -> Any:
    return next(step for step in take_inventory(store, ["old"]).steps if step.commit.step == "eval-gpqa")


def test_the_dataset_is_built_from_the_newest_grading(store: Store) -> None:
    ledger = Ledger(store, "old")
    write_graded_run(ledger)
    before = gpqa(store)
    regrade(ledger, None, dry_run=False)
    after = gpqa(store)
    assert (before.commit.verdict, after.commit.verdict) == ("rejected", "suspect")
    right = []
    for step in (before, after):
        raw = Raw(store, [step])
        right.append(sum(row["correct"] for row in raw.rows(step, EVAL_SAMPLES)))
        assert len(raw.rows(step, EXCHANGES)) == len(raw.rows(step, EVAL_SAMPLES)) == 8
    assert right == [2, 6]


def test_the_highest_number_counts_and_only_for_its_tables(local: Store) -> None:
    ledger = Ledger(local, "old")
    key = write_graded_run(ledger).cell.cell_key
    (row, *_) = Raw(local, [gpqa(local)]).rows(gpqa(local), EVAL_SAMPLES)
    for number in range(11):
        tables = {EVAL_SAMPLES: [row | {"extractor_version": number + 1}]}
        write_regrade(ledger, key, "eval-gpqa", number, Grading(tables, "ok", (), number + 1), "abc")
    assert newest(ledger.keys()) == {(key, "eval-gpqa"): 11}
    step = gpqa(local)
    raw = Raw(local, [step])
    assert [row["extractor_version"] for row in raw.rows(step, EVAL_SAMPLES)] == [11]
    assert len(raw.rows(step, EXCHANGES)) == 8


def test_of_two_that_grade_the_same_at_once_one_is_told_to_start_again(store: Store) -> None:
    ledger = Ledger(store, "old")
    key = write_graded_run(ledger).cell.cell_key
    write_regrade(ledger, key, "eval-gpqa", 0, Grading({}, "ok", (), 1), None)
    with pytest.raises(StoreError, match=r"regrades/1\.json was written by somebody else meanwhile: run the same"):
        write_regrade(ledger, key, "eval-gpqa", 0, Grading({}, "suspect", (), 1), None)
    assert gpqa(store).commit.verdict == "ok"


def test_a_grading_costs_one_more_read_and_no_listing(local: Store) -> None:
    ledger = Ledger(local, "old")
    key = write_graded_run(ledger).cell.cell_key
    before, after = CountedStore(local), CountedStore(local)
    take_inventory(before, ["old"])
    regrade(ledger, None, dry_run=False)
    take_inventory(after, ["old"])
    regrades = {f"runs/old/cells/{key}/steps/{step}/regrades/1.json" for step in ("eval-gpqa", "eval-ifeval")}
    assert set(after.gets) - set(before.gets) == regrades
    assert after.lists == before.lists and len(after.gets) == len(before.gets) + len(regrades)


def test_a_steps_parts_and_commits_are_not_mistaken_for_gradings(local: Store) -> None:
    ledger = Ledger(local, "old")
    key = write_graded_run(ledger).cell.cell_key
    regrade(ledger, None, dry_run=False)
    assert ledger.committed_steps() == {key: ["eval-gpqa", "eval-ifeval", "eval-tiny"]}
    assert len(list(ledger.orphan_parts(key, "eval-gpqa", EVAL_SAMPLES))) == 1
