"""What AR against AR can show: the smallest difference that survives the correction for all placebos of a run."""

from __future__ import annotations

from math import log, sqrt

import pytest

from tests.warehouse.visited import VisitedRun
from warehouse.dataset.consolidate.speed.run import MOST_SEEN
from warehouse.ledger.parts import Row
from warehouse.ledger.store import Store

BRACKETS = (("mtp", 2, 101.0), ("ngram", 4, 99.5), ("dflash", 7, 100.7), ("suffix", 8, 99.0), ("mtp", 4, 100.4))


def placebos(run: VisitedRun, *, last: float, brackets: int = len(BRACKETS)) -> dict[str, Row]:
    """By the cell they stand under; the last bracket's second AR has this rate."""
    chosen = [*BRACKETS[: brackets - 1], (*BRACKETS[brackets - 1][:2], last)]
    for technique, k, after in chosen:
        run.bracket(technique, k, 100.0, 150.0, after)
    return {pair["cell_key"]: pair for pair in run.built().pairs if pair["kind"] == "placebo"}


@pytest.mark.slow(5)
def test_a_placebo_could_have_seen_what_its_corrected_p_begins_to_call_a_difference(local: Store) -> None:
    """Its own difference is no part of what it is held against, so that only the conclusion changes with it."""
    first = VisitedRun(local, run_id="first")
    pair = placebos(first, last=100.0)[first.key("mtp", 4)]
    reach, drifted = pair["ratio_detectable"], pair["ratio"]
    assert reach > sqrt(pair["ratio_hi"] / pair["ratio_lo"]), "one of five has to be farther out than its interval"
    for run_id, beyond, said in (("below", 0.999, "inconclusive"), ("above", 1.001, "differs")):
        run = VisitedRun(local, run_id=run_id)
        found = placebos(run, last=100.0 * reach**beyond / drifted)[run.key("mtp", 4)]
        assert log(found["ratio"]) == pytest.approx(beyond * log(reach), rel=1e-6)
        assert found["ratio_detectable"] == pytest.approx(reach) and found["conclusion"] == said


def test_what_no_factor_could_have_shown_is_told_as_a_bound(local: Store) -> None:
    run = VisitedRun(local)
    for technique, k, after in (("mtp", 2, 10.0), ("ngram", 4, 1000.0)):
        run.bracket(technique, k, 100.0, 150.0, after)
    found = [pair for pair in run.built().pairs if pair["kind"] == "placebo"]
    assert [pair["ratio_detectable"] for pair in found] == [MOST_SEEN] * 2


def test_a_drift_is_null_where_too_few_starts_tell_one(local: Store) -> None:
    few, more = VisitedRun(local, run_id="few"), VisitedRun(local, run_id="more")
    assert {pair["drift"] for pair in placebos(few, last=99.0, brackets=2).values()} == {None}
    assert {pair["drift"] for pair in few.built().pairs} == {None}
    assert None not in {pair["drift"] for pair in placebos(more, last=99.0).values()}
