"""Rows of evaluations: one score that counts, and what every other reader would have published."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from configs.schema import Reference
from configs.steps.eval import EvalStep
from tests.warehouse.dataset.statistics.test_accuracy import compare_counts
from tests.warehouse.runs import GPQA, IFEVAL, WRONG_READING, Graded, answer, answers, checked, score, view_of
from tests.warehouse.synthetic import FINE, demo_plan, item, only
from warehouse.dataset import build
from warehouse.dataset.build import consolidate
from warehouse.dataset.consolidate.inputs import batches, comparison_groups, take_inventory
from warehouse.dataset.statistics.proportions import wilson_interval
from warehouse.ledger.steps import EVAL_ITEMS, EVAL_SAMPLES, EXCHANGES
from warehouse.ledger.store import Store, StoreError, open_store
from warehouse.ledger.tables import Row
from warehouse.report.accuracy_section import accuracy_section, paired_table


def test_the_last_answer_in_the_body_counts_and_the_seeds_readers_are_shown_lying(run: Graded) -> None:
    given = [answer(index, right=index < 3, **(WRONG_READING if index < 3 else {})) for index in range(4)]
    run.answered("ar", None, given, score("exact_match,strict-match", 0.0, 4))
    found = run.built().results
    counting = only(found, extractor="last-in-body")
    assert (counting["score"], counting["n"], counting["samples"], counting["metric"]) == (0.75, 4, 1, "accuracy")
    assert (counting["score_lo"], counting["score_hi"]) == pytest.approx(wilson_interval(0.75, 4))
    assert counting["readers_agree"] == 0.25
    assert (counting["verdict"], counting["framework"], counting["framework_version"]) == ("ok", "lm-eval", "0.4.13")
    assert counting["dataset_revision"] == "abc123"
    others = {(row["extractor"], row["metric"]): row for row in found if row is not counting}
    readers = [(name, "accuracy") for name in ("strict", "flexible", "first", "framework")]
    assert {*others} == {*readers, ("reported", "exact_match,strict-match")}
    assert {row["score"] for row in others.values()} == {0.0}
    assert {(row["verdict"], *row["reasons"]) for row in others.values()} == {("suspect", "extractors_disagree")}
    said = "strict reads 0.000 where last-in-body reads 0.750: a diagnostic"
    assert others["strict", "accuracy"]["details"] == [said]


def test_readers_that_agree_are_ok_and_a_framework_without_a_verdict_of_its_own_has_no_row(run: Graded) -> None:
    run.answered("ar", None, answers(10, range(7)), score("exact_match,none", 0.7, 10))
    run.answered("mtp", 4, answers(4, {0}, framework_correct=None, framework_answer=None))
    rows = run.built().results
    found = [row for row in rows if row["technique"] == "ar"]
    assert len(found) == 6 and {row["verdict"] for row in found} == {"ok"}
    assert only(found, extractor="last-in-body")["readers_agree"] == 1.0
    silent = {row["extractor"] for row in rows if row["technique"] == "mtp"}
    assert silent == {"last-in-body", "strict", "flexible", "first"}


def test_answers_to_one_item_are_one_cluster(local: Store) -> None:
    run = Graded(local, GPQA.model_copy(update={"samples": 2}))
    rights = (2, 1, 0, 2)
    given = [answer(at, right=sample < rights[at], sample=sample) for at in range(4) for sample in range(2)]
    given[0]["truncated"] = True
    run.answered("ar", None, given)
    row = only(run.built().results, extractor="last-in-body")
    assert (row["score"], row["n"], row["samples"], row["truncated"]) == (0.625, 4, 2, 1)
    spread = ((0.375**2 + 0.125**2 + 0.625**2 + 0.375**2) / 3) ** 0.5
    assert row["score_stderr"] == pytest.approx(spread / 2)
    assert (row["score_lo"], row["score_hi"]) == pytest.approx((max(0.0, 0.625 - 1.959964 * spread / 2), 1.0))


def test_several_answers_per_item_have_pass_at_k_beside_the_score(local: Store) -> None:
    """Of four items with four answers each, 4, 2, 1 and 0 are right: one of two is for 1, 5/6, 1/2 and 0 of them."""
    run = Graded(local, GPQA.model_copy(update={"samples": 4}))
    right = {0: 4, 1: 2, 2: 1, 3: 0}
    rows = answers(4, range(4), samples=4)
    run.answered("ar", None, [row | {"correct": row["sample"] < right[int(row["item_id"][-1])]} for row in rows])
    built = run.built()
    found = {row["metric"]: row["score"] for row in built.results if row["extractor"] == "any-of-k"}
    assert found == {"pass@2": pytest.approx((1 + 5 / 6 + 1 / 2) / 4), "pass@4": 0.75}
    assert only(built.results, extractor="last-in-body")["score"] == 7 / 16


def test_items_that_are_all_alike_are_no_certainty(local: Store) -> None:
    run = Graded(local, GPQA.model_copy(update={"samples": 2}))
    run.answered("ar", None, answers(10, range(10), samples=2))
    row = only(run.built().results, extractor="last-in-body")
    assert (row["score"], row["score_lo"], row["score_hi"]) == pytest.approx((1.0, *wilson_interval(1.0, 10)))


def test_a_checked_suite_counts_by_its_strict_metric_whatever_the_framework_averages(local: Store) -> None:
    run = Graded(local, IFEVAL)
    reported = score("prompt_level_strict_acc", 0.75, 4), score("final_acc", 0.79, 4)
    run.answered("ar", None, checked(4, {0, 1, 2}), *reported, step="eval-ifeval")
    found = run.built().results
    counting = only(found, extractor="checker")
    assert (counting["metric"], counting["score"], counting["readers_agree"]) == ("prompt_level_strict_acc", 0.75, None)
    assert {(row["extractor"], row["metric"], row["verdict"]) for row in found if row is not counting} == {
        ("framework", "prompt_level_strict_acc", "ok"),
        ("reported", "prompt_level_strict_acc", "ok"),
        ("reported", "final_acc", "ok"),
    }


def test_a_committed_evaluation_without_answers_is_still_a_row(run: Graded) -> None:
    step = run.step("eval-gpqa", "ar").judge(
        (None, None, "rejected", ["blank_output"], ["198 of 198 answers are blank"])
    )
    step.commit("rejected", ["blank_output"])
    row = only(run.built().results)
    assert (row.get("score"), row["verdict"], row["details"]) == (None, "rejected", ["198 of 198 answers are blank"])


def test_smoke_counts_the_questions_of_all_suites(run: Graded) -> None:
    step = run.step("smoke", "ar").write(EVAL_ITEMS, [item(index, right=True) for index in range(5)])
    step.write(EVAL_SAMPLES, [*answers(5, {0, 1, 2}), *checked(5, {0})]).judge((None, None, *FINE)).commit()
    row = only(run.built().results)
    assert (row["metric"], row["score"], row["n"], row["extractor"]) == ("smoke", 9 / 15, 15, "last-in-body")


@pytest.fixture
def run(local: Store) -> Graded:
    return Graded(local)


def logged(run: Graded, technique: str, k: int | None, n: int) -> None:
    said = {"suite": "eval-gpqa", "occurrence": 0, "sample": 0, "body": "The answer is (A).", "reasoning": "long " * 50}
    step = run.step("eval-gpqa", technique, k).write(EVAL_SAMPLES, answers(n, range(n - 1)))
    step.write(EXCHANGES, [said | {"request_hash": f"r{i}", "prompt_hash": f"p{i}"} for i in range(n)])
    step.provenance().judge((None, None, *FINE)).commit()


def test_a_report_fetches_no_response_log(local: Store, run: Graded, monkeypatch: pytest.MonkeyPatch) -> None:
    logged(run, "ar", None, 40)
    logged(run, "mtp", 4, 40)
    fetched: list[str] = []
    get = type(local).get
    monkeypatch.setattr(type(local), "get", lambda store, key: fetched.append(key) or get(store, key))
    assert len([row for row in run.built().results if row["extractor"] == "last-in-body"]) == 2
    parts = [key.rsplit("/", 1)[1].split("-")[0] for key in fetched if key.endswith(".parquet")]
    assert sorted(set(parts)) == ["eval_samples", "provenance", "verdicts"]
    assert len(parts) == 6, "each part once, whoever asks for its table"
    local.put(next(key for key in local.list("runs") if "/eval_samples-" in key), b"something else")
    with pytest.raises(StoreError, match="sha256 differs"):
        run.built()


def test_the_response_log_does_not_make_batches_smaller(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for run_id in ("one", "two"):
        logged(Graded(local, run_id=run_id), "ar", None, 10)
    groups = comparison_groups(take_inventory(local, ["one", "two"]).steps)
    assert [len(batch) for batch in batches(groups, 30, 100)] == [1, 1], "22 rows each, with those of the response log"
    assert [len(batch) for batch in batches(groups, 30, 100, unread=["exchanges"])] == [2]
    opened: list[int] = []
    raw = build.Raw
    monkeypatch.setattr(build, "BATCH_ROWS", 30)
    monkeypatch.setattr(build, "Raw", lambda store, steps: opened.append(len(steps)) or raw(store, steps))
    consolidate(local, ["one", "two"])
    assert opened == [2], "one batch of both runs"


def arms(store: Store, given: Sequence[Row], *specs: EvalStep, of_ar: int = 198, **judged: Any) -> Graded:
    """A run whose AR answered 150 items right, and MTP K=4 as given."""
    run = Graded(store, *specs)
    run.answered("ar", None, answers(of_ar, range(150)))
    run.answered("mtp", 4, given, **judged)
    return run


def test_two_arms_are_compared_over_the_items_that_both_answered(local: Store) -> None:
    pair = only(arms(local, answers(198, [*range(5, 150), *range(160, 163)]), of_ar=200).built().pairs)
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
    pair = only(arms(local, answers(198, range(150)), GPQA.model_copy(update={"margin": 0.01})).built().pairs)
    assert (pair["margin"], pair["conclusion"]) == (0.01, "inconclusive")
    assert pair["n_needed"] > 198 and str(pair["n_needed"]) in pair["wording"]


OTHERWISE: dict[str, Any] = {
    "in other words": ({"prompt_hash": "choices in another order"}, {}, "1 of 50 items were asked in other words"),
    "more answers": ({}, {"samples": 2}, "50 items have another number of answers"),
    "other readers": ({}, {"extractor_version": 0}, "graded by different readers: run `sweep regrade RUN`"),
}


@pytest.mark.parametrize("how", OTHERWISE)
def test_arms_that_were_asked_or_graded_otherwise_are_not_compared_and_the_row_says_so(run: Graded, how: str) -> None:
    one, all_of_them, said = OTHERWISE[how]
    run.answered("ar", None, answers(50, range(40)))
    others = answers(50, range(40), **all_of_them)
    others[7] |= one
    run.answered("mtp", 4, others)
    built = run.built()
    assert built.pairs == []
    row = only(built.results, technique="mtp", extractor="last-in-body")
    [sentence] = row["details"]
    assert row["verdict"] == "ok" and said in sentence and (not one or "item-0007" in sentence)


def rambling(cut_off: int) -> list[Row]:
    """AR's answers again, of which so many wrong ones were cut off."""
    return [row | {"truncated": 150 <= at < 150 + cut_off} for at, row in enumerate(answers(198, range(150)))]


@pytest.mark.parametrize(("cut_off", "reasons"), [(12, ["truncation_differs"]), (3, [])])
def test_rambling_is_a_finding_even_where_the_score_is_as_good(local: Store, cut_off: int, reasons: list[str]) -> None:
    built = arms(local, rambling(cut_off)).built()
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
def test_a_difference_in_cut_off_answers_is_found_though_the_node_judged_already(local: Store, verdict: str) -> None:
    judged: Any = (verdict, ["truncated"], ["12 of 198 answers were cut off"])
    built = arms(local, rambling(12), verdict=judged).built()
    row = only(built.results, technique="mtp", extractor="last-in-body")
    assert (row["verdict"], row["reasons"]) == (verdict, ["truncated", "truncation_differs"])
    assert row["details"][1].startswith("6.1% of the answers were cut off, of AR's 0.0%")
    assert built.pairs == []


def test_where_ar_was_flagged_the_other_row_says_that_it_was_not_compared(run: Graded) -> None:
    run.answered("ar", None, answers(50, range(40)), verdict=("suspect", ["truncated"], ["12% were cut off"]))
    run.answered("mtp", 4, answers(50, range(40)))
    built = run.built()
    row = only(built.results, technique="mtp", extractor="last-in-body")
    assert (row["verdict"], row["details"]) == ("ok", ["not compared with AR: its row is suspect"])
    assert built.pairs == []


CELLS = (("mtp", 1), ("mtp", 2), ("mtp", 4), ("ngram", 4), ("dflash", 7))


def five(store: Store, right: Callable[[tuple[str, int]], Collection[int]]) -> list[Row]:
    """Pairs of five cells, by the items that each has right."""
    run = Graded(store)
    run.answered("ar", None, answers(198, range(150)))
    for cell in CELLS:
        run.answered(*cell, answers(198, right(cell)))
    return run.built().pairs


def test_what_one_cell_alone_would_show_is_not_shown_by_one_of_five(tmp_path: Path, local: Store) -> None:
    pair = only(arms(open_store(str(tmp_path / "alone")), answers(198, range(7, 150))).built().pairs)
    assert pair["mcnemar_p"] == pair["mcnemar_p_holm"] == pytest.approx(2 / 2**7)
    pairs = five(local, lambda cell: range(7 if cell == ("mtp", 4) else 0, 150))
    assert only(pairs, technique="mtp", k=4)["mcnemar_p_holm"] == pytest.approx(5 * 2 / 2**7)
    assert only(pairs, technique="ngram")["mcnemar_p_holm"] == 1.0


def test_the_conclusion_follows_what_is_corrected(local: Store) -> None:
    pair, *_ = five(local, lambda _: [*range(14, 150), *range(150, 164)])
    assert pair["bound_lo"] > -pair["margin"] and pair["ni_p"] < 0.05 < pair["ni_p_holm"]
    assert pair["conclusion"] == "inconclusive"


def test_a_clear_loss_is_worse_among_any_number_of_cells(local: Store) -> None:
    pairs = five(local, lambda cell: range(40 if cell[0] == "dflash" else 0, 150))
    worse = only(pairs, technique="dflash")
    assert worse["conclusion"] == "worse" and worse["wording"].startswith("worse by 20.2 points")
    assert {pair["conclusion"] for pair in pairs if pair is not worse} == {"non-inferior"}


def test_precisions_are_one_family_and_evaluations_and_runs_are_several(local: Store) -> None:
    for run_id in ("one", "two"):
        run = Graded(local, GPQA, IFEVAL, run_id=run_id)
        for cell, lost in ((("ar", None), 0), (("mtp", 4), 6)):
            run.answered(*cell, answers(100, range(lost, 80)))
            run.answered(*cell, checked(100, range(lost, 80)), step="eval-ifeval")
        run.answered("mtp", 2, answers(100, range(80)))
    pairs = consolidate(local, ["one", "two"]).pairs
    lost_p = {(pair["run_id"], pair["step"]): pair["mcnemar_p_holm"] for pair in pairs if pair["lost"]}
    each = {"eval-gpqa": pytest.approx(2 * 2 / 2**6), "eval-ifeval": pytest.approx(2 / 2**6)}
    assert lost_p == {(run_id, step): p for run_id in ("one", "two") for step, p in each.items()}


def held(store: Store, given: Sequence[Row], *, drafted: bool = False) -> Graded:
    """AR in 16 bits and in 8 bits, the latter held against the former; maybe MTP in 16 bits beside them."""
    bf16 = Reference(model="tiny-gemma4", precision="bf16")
    cells = [
        each if each.cell.precision.name == "bf16" else each.model_copy(update={"held_against": bf16})
        for each in demo_plan().cells
    ]
    run = Graded(store, run_id="held", cells=cells)
    run.answered("ar", None, answers(198, range(150)))
    run.answered("ar", None, given, eight_bit=True)
    if drafted:
        run.answered("mtp", 4, answers(198, range(150)))
    return run


def test_a_precision_is_compared_with_another_ones_ar_by_item_and_says_with_which(local: Store) -> None:
    built = held(local, answers(198, [*range(5, 150), *range(160, 163)]), drafted=True).built()
    pair, beside = (only(built.pairs, kind=kind) for kind in ("precision", "accuracy"))
    assert (pair["technique"], pair["precision"]) == ("ar", "fp8_per_channel")
    assert (pair["compared_as"], pair["baseline_precision"]) == ("tiny-gemma4", "bf16")
    assert (pair["n"], pair["gained"], pair["lost"], pair["conclusion"]) == (198, 3, 5, "non-inferior")
    assert pair["mcnemar_p_holm"] == pytest.approx(min(1, 2 * pair["mcnemar_p"])), "techniques share its correction"
    assert (beside["technique"], beside["baseline_precision"]) == ("mtp", "bf16")
    assert "no worse" in str(paired_table(view_of(built), "precision"))
    assert "AR of tiny-gemma4 bf16" in str(accuracy_section(view_of(built)))


def test_a_precision_that_loses_is_worse_and_one_without_a_reference_is_compared_with_nothing(local: Store) -> None:
    assert only(held(local, answers(198, range(40, 150))).built().pairs)["conclusion"] == "worse"
    run = Graded(local)
    run.answered("ar", None, answers(198, range(150)))
    run.answered("ar", None, answers(198, range(150)), eight_bit=True)
    assert run.built().pairs == []


def test_the_demos_own_questions_are_settled_too(run: Graded) -> None:
    for technique, k, right in (("ar", None, 46), ("mtp", 4, 46), ("mtp", 2, 20)):
        rows = [item(index, right=index < right) for index in range(48)]
        run.step("eval-tiny", technique, k).write(EVAL_ITEMS, rows).commit()
    equal, worse = (only(run.built().pairs, k=k) for k in (4, 2))
    assert (equal["conclusion"], equal["mcnemar_p_holm"], equal["n_needed"]) == ("inconclusive", 1.0, 63)
    assert equal["wording"].startswith("cannot tell: needs about 63 items as one of 2 comparisons")
    assert worse["conclusion"] == "worse" and worse["mcnemar_p_holm"] == pytest.approx(2 * worse["mcnemar_p"])
