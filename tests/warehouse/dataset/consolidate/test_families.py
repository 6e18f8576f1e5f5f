"""Accuracy comparisons of one evaluation of a run share one error rate; other evaluations and runs don't count."""

from __future__ import annotations

import pytest

from tests.warehouse.graded import GPQA, IFEVAL, Graded, answers, checked, only
from tests.warehouse.synthetic import item
from warehouse.dataset.build import consolidate
from warehouse.dataset.tables import PAIRS
from warehouse.ledger.steps.eval_tiny import EVAL_ITEMS
from warehouse.ledger.store import Store

CELLS = (("mtp", 1), ("mtp", 2), ("mtp", 4), ("ngram", 4), ("dflash", 7))


def test_what_one_cell_alone_would_show_is_not_shown_by_one_of_five(local: Store) -> None:
    alone = Graded(local, run_id="alone")
    alone.answered("ar", None, answers(198, range(150)))
    alone.answered("mtp", 4, answers(198, range(7, 150)))
    pair = only(alone.built().pairs)
    assert pair["mcnemar_p"] == pair["mcnemar_p_holm"] == pytest.approx(2 / 2**7)
    run = Graded(local)
    run.answered("ar", None, answers(198, range(150)))
    for technique, k in CELLS:
        run.answered(technique, k, answers(198, range(7 if (technique, k) == ("mtp", 4) else 0, 150)))
    pair = only(run.built().pairs, technique="mtp", k=4)
    assert pair["mcnemar_p_holm"] == pytest.approx(5 * 2 / 2**7)
    assert only(run.built().pairs, technique="ngram")["mcnemar_p_holm"] == 1.0


def test_the_dictionary_says_that_the_conclusion_follows_what_is_corrected(local: Store) -> None:
    run = Graded(local)
    run.answered("ar", None, answers(198, range(150)))
    for technique, k in CELLS:
        run.answered(technique, k, answers(198, [*range(14, 150), *range(150, 164)]))
    pair, *_ = run.built().pairs
    assert pair["bound_lo"] > -pair["margin"] and pair["ni_p"] < 0.05 < pair["ni_p_holm"]
    assert pair["conclusion"] == "inconclusive"
    said = {column.name: column.meaning for column in PAIRS.columns}
    assert "the conclusion follows ni_p_holm" in said["bound_lo"]
    assert said["conclusion"].startswith("non-inferior: ni_p_holm below 0.05; worse: not so, and mcnemar_p_holm")
    assert all("Student's t" in said[name] for name in ("delta_lo", "mcnemar_p"))


def test_a_clear_loss_is_worse_among_any_number_of_cells(local: Store) -> None:
    run = Graded(local)
    run.answered("ar", None, answers(198, range(150)))
    for technique, k in CELLS:
        run.answered(technique, k, answers(198, range(40 if technique == "dflash" else 0, 150)))
    pairs = run.built().pairs
    worse = only(pairs, technique="dflash")
    assert worse["conclusion"] == "worse" and worse["wording"].startswith("worse by 20.2 points")
    assert {pair["conclusion"] for pair in pairs if pair is not worse} == {"non-inferior"}


def test_precisions_are_one_family_and_evaluations_and_runs_are_several(local: Store) -> None:
    for run_id in ("one", "two"):
        run = Graded(local, GPQA, IFEVAL, run_id=run_id)
        run.answered("ar", None, answers(100, range(80)))
        run.answered("mtp", 4, answers(100, range(6, 80)))
        run.answered("mtp", 2, answers(100, range(80)))
        run.answered("ar", None, checked(100, range(80)), step="eval-ifeval")
        run.answered("mtp", 4, checked(100, range(6, 80)), step="eval-ifeval")
    pairs = consolidate(local, ["one", "two"]).pairs
    lost = {(pair["run_id"], pair["step"]): pair["mcnemar_p_holm"] for pair in pairs if pair["lost"]}
    p = 2 / 2**6
    assert lost == {
        ("one", "eval-gpqa"): pytest.approx(2 * p), ("two", "eval-gpqa"): pytest.approx(2 * p),
        ("one", "eval-ifeval"): pytest.approx(p), ("two", "eval-ifeval"): pytest.approx(p),
    }  # fmt: skip


def test_the_demos_own_questions_are_settled_too(local: Store) -> None:
    run = Graded(local)
    for technique, k, right in (("ar", None, 46), ("mtp", 4, 46), ("mtp", 2, 20)):
        step = run.step("eval-tiny", technique, k)
        step.write(EVAL_ITEMS, [item(index, right=index < right) for index in range(48)])
        step.commit()
    equal, worse = (only(run.built().pairs, k=k) for k in (4, 2))
    assert (equal["conclusion"], equal["mcnemar_p_holm"], equal["n_needed"]) == ("inconclusive", 1.0, 63)
    assert equal["wording"].startswith("cannot tell: needs about 63 items as one of 2 comparisons")
    assert worse["conclusion"] == "worse" and worse["mcnemar_p_holm"] == pytest.approx(2 * worse["mcnemar_p"])
