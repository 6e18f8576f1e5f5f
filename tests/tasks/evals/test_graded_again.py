"""Graded again from the tape alone: what it says of a step's verdict, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.evals.grading import sample_row
from tasks.evals.regrade import Regraded, RegradeError, regraded
from tests.graded_run import GPQA, gpqa_answers
from warehouse.evals.tables import EVAL_SAMPLES
from warehouse.ledger import Commit
from warehouse.tables import VERDICTS


def again(verdict: Any, reasons: list[str], details: list[str] | None, tape: int = 8, **changed: Any) -> Regraded:
    """Eight answers graded again: six right. `changed` is what the older readers made of each."""
    answers = gpqa_answers()
    samples = [sample_row(each, GPQA, 0) | changed for each in answers]
    commit = Commit(
        step="eval-gpqa", attempt=1, owner="o", verdict=verdict, reasons=tuple(reasons), wall_s=1.0,
        committed_at="2026-11-22T00:00:00Z", parts=(),
    )  # fmt: skip
    row = {"condition": None, "mode": None, "verdict": verdict, "reasons": reasons, "details": details}
    return regraded(GPQA, commit, samples, [each.exchange for each in answers[:tape]], [], [row])


def test_nothing_changes_where_todays_readers_agree_with_what_is_there() -> None:
    assert not again("ok", [], []).changed
    other = again("ok", [], None, extractor_version=0)
    assert (other.changed, other.outdated, other.is_due) == (False, 8, True), "another version that reads the same"
    assert {row["extractor_version"] for row in other.grading.tables[EVAL_SAMPLES]} == {1}


def test_a_new_bound_changes_the_verdict_though_every_reading_stands() -> None:
    found = again("suspect", ["truncated"], ["3 of 8 answers were cut off"])
    assert found.changed and not found.changes
    assert (found.grading.verdict, found.grading.reasons) == ("ok", ())


@pytest.mark.parametrize(
    ("verdict", "expected"), [("suspect", "suspect"), ("rejected", "rejected")], ids=["of-two", "not-explained"]
)
def test_what_other_guards_said_stands(verdict: str, expected: str) -> None:
    found = again(verdict, ["argv_differs"], ["max_model_len differs"])
    assert (found.grading.verdict, found.grading.reasons) == (expected, ("argv_differs",))
    assert not found.changed


def test_a_rejection_that_bad_readings_explain_falls_with_them() -> None:
    said = ["5 of 8 answers name no answer", "max_model_len differs"]
    found = again("rejected", ["unreadable_answers", "argv_differs"], said, last_in_body=None, correct=False)
    assert (found.grading.verdict, found.grading.reasons) == ("suspect", ("argv_differs",))
    (row,) = found.grading.tables[VERDICTS]
    assert row["details"] == ["max_model_len differs"]
    assert [(change.reader, change.before, change.after, change.items) for change in found.changes] == [
        ("last-in-body", 0.0, 0.75, 8)
    ]


def test_an_answer_that_is_not_on_the_tape_is_refused() -> None:
    with pytest.raises(RegradeError, match=r"3 of 8 graded answers of eval-gpqa are not on its tape, e.g. of item-5"):
        again("ok", [], [], tape=5)
