"""Evaluations compared with AR's, item by item: what is compared, what is refused, and what is found on the way.

Accuracy comparisons of one evaluation of a run share one error rate; other evaluations and runs don't count.
"""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.warehouse.dataset.statistics.test_accuracy import compare_counts
from tests.warehouse.graded import GPQA, IFEVAL, Graded, answers, checked
from tests.warehouse.synthetic import item, only
from warehouse.dataset.build import consolidate
from warehouse.ledger.steps import EVAL_ITEMS
from warehouse.ledger.store import Store


def test_two_arms_are_compared_over_the_items_that_both_answered(local: Store) -> None:
    run = Graded(local)
    run.answered("ar", None, answers(200, range(150)))
    run.answered("mtp", 4, answers(198, [*range(5, 150), *range(160, 163)]))
    pair = only(run.built().pairs)
    assert (pair["n"], pair["samples"], pair["gained"], pair["lost"]) == (198, 1, 3, 5)
    assert (pair["baseline_value"], pair["value"]) == pytest.approx((150 / 198, 148 / 198))
    by_hand = compare_counts(198, 3, 5, 0.05, "any")
    assert (pair["delta"], pair["delta_lo"], pair["delta_hi"]) == pytest.approx(by_hand[4:7])
    assert (pair["mcnemar_p"], pair["ni_p"], pair["margin"]) == pytest.approx((by_hand.p, by_hand.ni_p, 0.05))
    assert pair["boot_lo"] < pair["delta"] < pair["boot_hi"]
    assert (pair["metric"], pair["extractor"]) == ("accuracy", "last-in-body")
    assert pair["conclusion"] == "non-inferior" and "n=198" in pair["wording"]
    assert pair["served_differently"] == [] and pair["truncated_delta"] == 0


def test_several_answers_to_an_item_are_one_observation(local: Store) -> None:
    run = Graded(local, GPQA.model_copy(update={"samples": 4}))
    run.answered("ar", None, answers(100, range(80), samples=4))
    one_less = answers(100, range(80), samples=4)
    for row in one_less[: 4 * 30 : 4]:
        row["correct"] = False
    run.answered("mtp", 4, one_less)
    pair = only(run.built().pairs)
    assert (pair["n"], pair["samples"], pair["gained"], pair["lost"]) == (100, 4, 0, 30)
    assert pair["delta"] == pytest.approx(-30 / 400)


def test_the_margin_is_the_evaluations(local: Store) -> None:
    run = Graded(local, GPQA.model_copy(update={"margin": 0.01}))
    for technique, k in (("ar", None), ("mtp", 4)):
        run.answered(technique, k, answers(198, range(150)))
    pair = only(run.built().pairs)
    assert (pair["margin"], pair["conclusion"]) == (0.01, "inconclusive")
    assert pair["n_needed"] > 198 and str(pair["n_needed"]) in pair["wording"]


OTHERWISE = {
    "in other words": ({"prompt_hash": "choices in another order"}, {}, "1 of 50 items were asked in other words"),
    "more answers": ({}, {"samples": 2}, "50 items have another number of answers"),
    "other readers": ({}, {"extractor_version": 0}, "graded by different readers: run `sweep regrade RUN`"),
}


@pytest.mark.parametrize(("one", "all_of_them", "said"), OTHERWISE.values(), ids=OTHERWISE)
def test_arms_that_were_asked_or_graded_otherwise_are_not_compared_and_the_row_says_so(
    local: Store, one: dict[str, str], all_of_them: dict[str, Any], said: str
) -> None:
    run = Graded(local)
    run.answered("ar", None, answers(50, range(40)))
    others = answers(50, range(40), **all_of_them)
    others[7] |= one
    run.answered("mtp", 4, others)
    built = run.built()
    assert built.pairs == []
    row = only(built.results, technique="mtp", extractor="last-in-body")
    [sentence] = row["details"]
    assert row["verdict"] == "ok" and said in sentence and (not one or "item-0007" in sentence)


@pytest.mark.parametrize(("cut_off", "reasons"), [(12, ["truncation_differs"]), (3, [])])
def test_rambling_is_a_finding_even_where_the_score_is_as_good_and_a_little_is_chance(
    local: Store, cut_off: int, reasons: list[str]
) -> None:
    run = Graded(local)
    run.answered("ar", None, answers(198, range(150)))
    rambling = answers(198, range(150))
    for row in rambling[150 : 150 + cut_off]:
        row["truncated"] = True
    run.answered("mtp", 4, rambling)
    built = run.built()
    row = only(built.results, technique="mtp", extractor="last-in-body")
    assert (row["verdict"], row["reasons"]) == ("suspect" if reasons else "ok", reasons)
    assert not reasons or row["details"][0].startswith("6.1% of the answers were cut off, of AR's 0.0%")
    pair = only(built.pairs)
    assert (pair["truncated_delta"], pair["delta"]) == (pytest.approx(cut_off / 198), 0)


def test_checked_answers_are_compared_by_their_strict_metric(local: Store) -> None:
    run = Graded(local, IFEVAL)
    run.answered("ar", None, checked(100, range(80)), step="eval-ifeval")
    run.answered("mtp", 4, checked(100, range(79)), step="eval-ifeval")
    pair = only(run.built().pairs)
    assert (pair["metric"], pair["extractor"], pair["lost"]) == ("prompt_level_strict_acc", "checker", 1)


@pytest.mark.parametrize("verdict", ["suspect", "rejected"])
def test_a_difference_in_cut_off_answers_is_found_though_the_node_judged_the_arm_already(
    local: Store, verdict: Literal["suspect", "rejected"]
) -> None:
    run = Graded(local)
    run.answered("ar", None, answers(198, range(150)))
    cut_off = [row | {"truncated": index < 12} for index, row in enumerate(answers(198, range(150)))]
    run.answered("mtp", 4, cut_off, verdict=(verdict, ["truncated"], ["12 of 198 answers were cut off"]))
    built = run.built()
    row = only(built.results, technique="mtp", extractor="last-in-body")
    assert (row["verdict"], row["reasons"]) == (verdict, ["truncated", "truncation_differs"])
    assert row["details"][1].startswith("6.1% of the answers were cut off, of AR's 0.0%")
    assert built.pairs == []


def test_where_ar_was_flagged_the_other_row_says_that_it_was_not_compared(local: Store) -> None:
    run = Graded(local)
    run.answered("ar", None, answers(50, range(40)), verdict=("suspect", ["truncated"], ["12% were cut off"]))
    run.answered("mtp", 4, answers(50, range(40)))
    built = run.built()
    row = only(built.results, technique="mtp", extractor="last-in-body")
    assert (row["verdict"], row["details"]) == ("ok", ["not compared with AR: its row is suspect"])
    assert built.pairs == []


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


def test_the_conclusion_follows_what_is_corrected(local: Store) -> None:
    run = Graded(local)
    run.answered("ar", None, answers(198, range(150)))
    for technique, k in CELLS:
        run.answered(technique, k, answers(198, [*range(14, 150), *range(150, 164)]))
    pair, *_ = run.built().pairs
    assert pair["bound_lo"] > -pair["margin"] and pair["ni_p"] < 0.05 < pair["ni_p_holm"]
    assert pair["conclusion"] == "inconclusive"


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
