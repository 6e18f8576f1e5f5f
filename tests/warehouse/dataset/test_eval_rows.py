"""Rows of evaluations: one score that counts, and what every other reader would have published."""

from __future__ import annotations

import pytest

from tests.warehouse.graded import GPQA, IFEVAL, WRONG_READING, Graded, answer, answers, checked, score
from tests.warehouse.synthetic import item, only
from warehouse.dataset import build
from warehouse.dataset.consolidate.inputs import batches, comparison_groups, take_inventory
from warehouse.dataset.statistics.proportions import wilson_interval
from warehouse.ledger.steps import EVAL_ITEMS, EVAL_SAMPLES, EXCHANGES
from warehouse.ledger.store import Store, StoreError


def test_the_last_answer_in_the_body_counts_and_the_seeds_readers_are_shown_lying(local: Store) -> None:
    run = Graded(local)
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
    assert {name: row["score"] for name, row in others.items()} == {
        ("strict", "accuracy"): 0.0,
        ("flexible", "accuracy"): 0.0,
        ("first", "accuracy"): 0.0,
        ("framework", "accuracy"): 0.0,
        ("reported", "exact_match,strict-match"): 0.0,
    }
    assert {(row["verdict"], *row["reasons"]) for row in others.values()} == {("suspect", "extractors_disagree")}
    assert others["strict", "accuracy"]["details"] == [
        "strict reads 0.000 where last-in-body reads 0.750: a diagnostic"
    ]


def test_readers_that_agree_are_ok(local: Store) -> None:
    run = Graded(local)
    run.answered("ar", None, answers(10, range(7)), score("exact_match,none", 0.7, 10))
    found = run.built().results
    assert len(found) == 6 and {row["verdict"] for row in found} == {"ok"}
    assert only(found, extractor="last-in-body")["readers_agree"] == 1.0


def test_answers_to_one_item_are_one_cluster(local: Store) -> None:
    run = Graded(local, GPQA.model_copy(update={"samples": 2}))
    given = [
        answer(index, right=sample < rights, sample=sample)
        for index, rights in enumerate((2, 1, 0, 2))
        for sample in range(2)
    ]
    given[0]["truncated"] = True
    run.answered("ar", None, given)
    row = only(run.built().results, extractor="last-in-body")
    assert (row["score"], row["n"], row["samples"], row["truncated"]) == (0.625, 4, 2, 1)
    spread = ((0.375**2 + 0.125**2 + 0.625**2 + 0.375**2) / 3) ** 0.5
    assert row["score_stderr"] == pytest.approx(spread / 2)
    assert row["score_lo"] == pytest.approx(max(0.0, 0.625 - 1.959964 * spread / 2))
    assert row["score_hi"] == 1.0


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
    run.answered(
        "ar", None, checked(4, {0, 1, 2}),
        score("prompt_level_strict_acc", 0.75, 4), score("final_acc", 0.79, 4),
        step="eval-ifeval",
    )  # fmt: skip
    found = run.built().results
    counting = only(found, extractor="checker")
    assert (counting["metric"], counting["score"], counting["readers_agree"]) == ("prompt_level_strict_acc", 0.75, None)
    assert {(row["extractor"], row["metric"], row["verdict"]) for row in found if row is not counting} == {
        ("framework", "prompt_level_strict_acc", "ok"),
        ("reported", "prompt_level_strict_acc", "ok"),
        ("reported", "final_acc", "ok"),
    }


def test_a_framework_without_a_verdict_of_its_own_has_no_row(local: Store) -> None:
    run = Graded(local)
    run.answered("ar", None, answers(4, {0}, framework_correct=None, framework_answer=None))
    assert {row["extractor"] for row in run.built().results} == {"last-in-body", "strict", "flexible", "first"}


def test_a_committed_evaluation_without_answers_is_still_a_row(local: Store) -> None:
    run = Graded(local)
    step = run.step("eval-gpqa", "ar")
    step.judge((None, None, "rejected", ["blank_output"], ["198 of 198 answers are blank"]))
    step.commit("rejected", ["blank_output"])
    row = only(run.built().results)
    assert (row.get("score"), row["verdict"], row["details"]) == (None, "rejected", ["198 of 198 answers are blank"])


def test_smoke_counts_the_questions_of_all_suites(local: Store) -> None:
    run = Graded(local)
    step = run.step("smoke", "ar")
    step.write(EVAL_ITEMS, [item(index, right=True) for index in range(5)])
    step.write(EVAL_SAMPLES, [*answers(5, {0, 1, 2}), *checked(5, {0})])
    step.judge((None, None, "ok", [], []))
    step.commit()
    row = only(run.built().results)
    assert (row["metric"], row["score"], row["n"], row["extractor"]) == ("smoke", 9 / 15, 15, "last-in-body")


def response_logd(run: Graded, technique: str, k: int | None, n: int) -> None:
    """A committed evaluation with its response log."""
    said = {"suite": "eval-gpqa", "occurrence": 0, "sample": 0, "body": "The answer is (A).", "reasoning": "long " * 50}
    step = run.step("eval-gpqa", technique, k)
    step.write(EVAL_SAMPLES, answers(n, range(n - 1)))
    step.write(EXCHANGES, [said | {"request_hash": f"r{i}", "prompt_hash": f"p{i}"} for i in range(n)])
    step.provenance()
    step.judge((None, None, "ok", [], []))
    step.commit()


def test_a_report_fetches_no_response_log(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Graded(local)
    response_logd(run, "ar", None, 40)
    response_logd(run, "mtp", 4, 40)
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
        response_logd(Graded(local, run_id=run_id), "ar", None, 10)
    groups = comparison_groups(take_inventory(local, ["one", "two"]).steps)
    assert [len(batch) for batch in batches(groups, 30, 100)] == [1, 1], "22 rows each, with those of the response log"
    assert [len(batch) for batch in batches(groups, 30, 100, unread=["exchanges"])] == [2]
    opened: list[int] = []
    raw = build.Raw
    monkeypatch.setattr(build, "BATCH_ROWS", 30)
    monkeypatch.setattr(build, "Raw", lambda store, steps: opened.append(len(steps)) or raw(store, steps))
    build.consolidate(local, ["one", "two"])
    assert opened == [2], "one batch of both runs"
