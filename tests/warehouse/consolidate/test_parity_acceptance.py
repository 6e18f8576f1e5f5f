"""Parity tells of its drafts, too: what the engine said of each output's, in the first pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.warehouse.synthetic import StepWriter
from tests.warehouse.visited import VisitedRun, only
from warehouse.steps.parity import PARITY_OUTPUTS
from warehouse.store import Store


def outputs(run: VisitedRun, technique: str, k: int | None, **drafts: Any) -> None:
    step = StepWriter(run.ledger, run.key(technique, k), "parity")
    step.provenance(machine="node-1 card-1")
    rows = [{"prompt_id": f"parity-{index:02d}", "token_ids": [1, 2, 3, 4], "finish_reason": "length", "text": "words"}
            for index in range(3)]  # fmt: skip
    step.write(PARITY_OUTPUTS, [row | {"pass": 0} | drafts for row in rows])
    if technique == "ar":
        step.write(PARITY_OUTPUTS, [row | {"pass": 1} for row in rows])
    step.commit()


def test_acceptance_is_that_of_all_outputs_together(local: Store) -> None:
    run = VisitedRun(local, "single")
    outputs(run, "ar", None)
    told = {"engine_draft_steps": 2, "engine_draft_tokens": 4, "engine_accepted_tokens": 2}
    outputs(run, "mtp", 2, **told, engine_accepted_histogram=[1, 0, 1])
    outputs(run, "ngram", 4)
    results = run.built().results
    row = only(results, technique="mtp", k=2, step="parity")
    assert (row["drafts"], row["drafted_tokens"], row["accepted_tokens"]) == (6, 12, 6)
    assert row["acceptance_length"] == 2 and row["acceptance_by_position"] == pytest.approx([0.5, 0.5])
    assert row["parity_equal"] == row["parity_n"] == 3
    for technique in ("ar", "ngram"):
        assert only(results, technique=technique, step="parity").get("acceptance_length") is None, "nobody said it"
