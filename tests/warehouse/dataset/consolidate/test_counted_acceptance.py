"""Steps that aren't timed tell of their drafts, too: what the engine counted over them, on the row that counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.warehouse.synthetic import StepWriter
from tests.warehouse.visited import VisitedRun, only
from warehouse.ledger.parts import Row
from warehouse.ledger.steps.eval_tiny import EVAL_ITEMS
from warehouse.ledger.steps.parity import PARITY_OUTPUTS
from warehouse.ledger.store import Store
from warehouse.ledger.tables import ENGINE_COUNTED

COUNTED: Row = {
    "engine_generation_tokens": 12, "engine_drafts": 4, "engine_draft_tokens": 8, "engine_accepted_tokens": 6,
    "engine_accepted_by_position": [4, 2],
}  # fmt: skip


def parity(run: VisitedRun, technique: str, k: int | None) -> StepWriter:
    step = StepWriter(run.ledger, run.key(technique, k), "parity")
    step.provenance(machine="node-1 card-1")
    step.write(PARITY_OUTPUTS, [{"pass": 0, "prompt_id": "parity-00", "token_ids": [1, 2, 3]}])
    return step


def telling(row: Row) -> dict[str, Any]:
    names = ("drafts", "drafted_tokens", "accepted_tokens", "acceptance_length", "acceptance_by_position",
             "tokens_per_step")  # fmt: skip
    return {name: row.get(name) for name in names}


def test_parity_has_what_was_counted_over_it_and_ar_has_nothing(local: Store) -> None:
    run = VisitedRun(local, "single")
    for technique, k in (("ar", None), ("mtp", 2), ("ngram", 4)):
        step = parity(run, technique, k)
        if technique == "mtp":
            step.write(ENGINE_COUNTED, [COUNTED])
        step.commit()
    results = run.built().results
    assert telling(only(results, technique="mtp", k=2, step="parity")) == {
        "drafts": 4, "drafted_tokens": 8, "accepted_tokens": 6, "acceptance_length": 2.5,
        "acceptance_by_position": pytest.approx([1, 0.5]), "tokens_per_step": 2,
    }  # fmt: skip
    for technique in ("ar", "ngram"):
        assert set(telling(only(results, technique=technique, step="parity")).values()) == {None}


def test_an_evaluation_has_it_on_the_row_that_counts_over_all_attempts(local: Store) -> None:
    run = VisitedRun(local, "single")
    key = run.key("mtp", 2)
    parts = []
    for attempt in (1, 2):
        step = StepWriter(run.ledger, key, "eval-tiny", attempt)
        step.parts = parts
        step.provenance(machine="node-1 card-1")
        step.write(EVAL_ITEMS, [{"item_id": f"q{attempt}", "gold": "A", "last_letter": "A", "body": "(A)"}])
        step.write(ENGINE_COUNTED, [COUNTED])
    step.commit()
    counting, diagnostic = (
        only(run.built().results, step="eval-tiny", extractor=f"{name}-letter") for name in ("last", "first")
    )
    assert (counting["drafts"], counting["acceptance_length"]) == (8, 2.5)
    assert diagnostic.get("drafts") is None
