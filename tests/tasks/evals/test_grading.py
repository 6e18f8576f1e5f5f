"""Answers paired or refused, their rows and scores; traps of published numbers (docs/sources.md), with both figures."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from configs.cell import Model
from configs.steps.eval import EvalStep
from tasks.evals.extractors import VERSION
from tasks.evals.grading import MetricMissing, Paired, PairingError, clustered, paired, sample_row, score_rows
from tasks.evals.regrade import Regraded, RegradeError, regraded
from tasks.frameworks.job import Item, Result, Sample, Score
from tests.graded_run import GPQA as GRADED_GPQA
from tests.graded_run import gpqa_answers
from tests.tasks.evals.graded import Recorded, exchange, graded, item, result
from warehouse.ledger.commits import Commit
from warehouse.ledger.steps import EVAL_SAMPLES, EVAL_SCORES
from warehouse.ledger.tables import VERDICTS, encode

GPQA = EvalStep(step="eval-gpqa")
HAERAE = EvalStep(step="eval-haerae")
IFEVAL = EvalStep(step="eval-ifeval")
STRICT = "exact_match,strict-match"
IDENTITY = {"run_id": "r", "cell_key": "c", "step": "eval-gpqa", "attempt": 1, "measured_at": "2026-11-22T00:00:00Z"}


def row_of(number: int, gold: str, body: str | None, reasoning: str = "", **changed: Any) -> dict[str, Any]:
    asked = item(number, gold)
    said = exchange(asked, body, reasoning, **changed)
    return sample_row(Paired(asked, graded(asked, body, extracted="[invalid]"), said), GPQA, 0)


def values(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {row["extractor"] or row["metric"]: row["value"] for row in rows}


def test_a_graded_answer_has_every_reading_and_says_that_it_is_cut_off_or_blank() -> None:
    row = row_of(1, "C", "**Answer: C**. By contrast (A) is wrong.", "Perhaps (B)?")
    read = {name: row[name] for name in ("last_in_body", "strict", "flexible", "first", "framework_answer")}
    assert read == dict(last_in_body="C", strict=None, flexible="A", first="B", framework_answer="[invalid]")
    assert (row["correct"], row["framework_correct"], row["truncated"], row["blank"]) == (True, False, False, False)
    assert (row["suite"], row["framework"], row["category"], row["extractor_version"]) == (
        "eval-gpqa", "lm-eval", "colours", VERSION,
    )  # fmt: skip
    assert encode(EVAL_SAMPLES, [IDENTITY | row])
    cut = row_of(1, "C", None, "The answer is (C), but", finish="length")
    assert (cut["correct"], cut["truncated"], cut["blank"]) == (False, True, True)
    thinking = row_of(1, "C", "thought\nPerhaps.\nThe answer is (C)", finish="length")
    assert (thinking["correct"], thinking["truncated"], thinking["last_in_body"]) == (False, True, None)
    stopped = row_of(1, "C", "<think>The answer is (C)</think> \n")
    assert (stopped["correct"], stopped["truncated"], stopped["blank"]) == (False, False, True)


def test_instructions_count_as_followed_where_the_framework_says_strictly() -> None:
    asked = item(1, "", choices=())
    said = exchange(asked, "No comma here.")
    followed = graded(asked, "No comma here.", details={"prompt_level_strict": True, "prompt_level_loose": True})
    row = sample_row(Paired(asked, followed, said), IFEVAL, 0)
    assert (row["correct"], row["gold"], row["last_in_body"]) == (True, None, None)
    reported = [Score("prompt_level_strict_acc,none", 1.0, None, 1), Score("inst_level_strict_acc,none", 1.0, None, 1)]
    scored = score_rows([row], [result([followed], reported)], IFEVAL, None)
    assert [(score["source"], score["extractor"], score["metric"]) for score in scored] == [
        ("ours", "checker", "prompt_level_strict_acc"),
        ("framework", "framework", "prompt_level_strict_acc,none"),
        ("framework", None, "inst_level_strict_acc,none"),
    ]
    with pytest.raises(ValueError, match="has no detail 'prompt_level_strict'; it has: final_acc"):
        sample_row(Paired(asked, graded(asked, "", details={"final_acc": 1}), said), IFEVAL, 0)


def test_scores_are_ours_by_every_reader_and_the_frameworks_own() -> None:
    rows = [row_of(number, "C", "The answer is (C)." if number else "The answer is (D).") for number in range(4)]
    lm_eval = result([], [Score(STRICT, 0.75, 0.25, 4), Score("exact_match,flexible-extract", 0.5, 0.3, 4)])
    scored = score_rows(rows, [lm_eval], GPQA, "633f5ee5")
    assert encode(EVAL_SCORES, [IDENTITY | score for score in scored])
    assert [(score["source"], score["extractor"], score["metric"], score["value"]) for score in scored] == [
        ("ours", "last-in-body", "accuracy", 0.75),
        ("ours", "strict", "accuracy", 0.75),
        ("ours", "flexible", "accuracy", 0.75),
        ("ours", "first", "accuracy", 0.75),
        ("ours", "framework", "accuracy", 0.0),
        ("framework", "framework", STRICT, 0.75),
        ("framework", None, "exact_match,flexible-extract", 0.5),
    ]
    assert scored[0]["stderr"] == pytest.approx(math.sqrt(0.75 * 0.25 / 3))
    assert (scored[0]["n"], scored[0]["samples"], scored[0]["framework_version"]) == (4, 1, "0.4.13")


def test_answers_to_one_item_are_one_cluster() -> None:
    """Two items, always right and always wrong: four answers each tell no more than one."""
    once = clustered([("a", True), ("b", False)])
    often = clustered([("a", True), ("b", False)] * 4)
    assert once == often == (0.5, pytest.approx(0.5), 2)
    assert clustered([("a", True), ("a", False)]) == (0.5, None, 1)


def test_trap_strict_match_on_a_preamble_scores_zero_and_ours_scores_one() -> None:
    """A thinking model's body explains before it answers, in bold; lm-eval wants 'The answer is' to the line's end."""
    bodies = [
        "Let me put this together.\n\n**Answer: {}**",
        "The correct answer is **({})**",
        "The answer is ({}) because the others are too small.",
        "The answer is {}",
    ]
    golds = "CADB"
    rows = [row_of(n, gold, body.format(gold)) for n, (gold, body) in enumerate(zip(golds, bodies, strict=True))]
    scored = values(score_rows(rows, [result([], [Score(STRICT, 0.0, 0.0, 4)])], GPQA, None))
    assert (scored["strict"], scored["last-in-body"]) == (0.0, 1.0)


def test_trap_the_first_letter_of_the_thinking_is_below_chance_and_ours_is_right() -> None:
    """HRET's reader takes the first '정답:' of the summary of the thinking, which begins with what it rules out."""
    spec_rows = []
    for number, gold in enumerate("ABCDEABCDE"):
        wrong = "BCDEA"["ABCDE".index(gold)] if number else gold
        asked = item(number, gold)
        said = exchange(asked, f"요약: 정답: ({wrong})? 아니다.\n따라서, 정답은: {gold}", f"먼저 ({wrong})를 본다")
        spec_rows.append(sample_row(Paired(asked, graded(asked, said["body"]), said), HAERAE, 0))
    scored = values(score_rows(spec_rows, [result([], [Score("accuracy", 0.1, None, 10)], "hret")], HAERAE, None))
    assert scored["first"] == 0.1 < 1 / 5, "chance is 0.2"
    assert scored["last-in-body"] == 1.0


@pytest.mark.parametrize(
    ("reported", "said"),
    [(["prompt_strict_acc", "final_acc"], "prompt_strict_acc, final_acc"), ([], "none at all")],
)
def test_a_metric_that_is_not_there_is_an_error_that_names_those_that_are(reported: list[str], said: str) -> None:
    """inspect's IFEval reports five accuracies and no `accuracy`; whoever reads that name publishes nothing."""
    scores = [Score(name, 0.792, 0.072, 20) for name in reported]
    with pytest.raises(MetricMissing, match=f"inspect reported no metric 'accuracy'; it reported: {said}"):
        score_rows([row_of(1, "C", "(C)")], [result([], scores, "inspect")], EvalStep(step="eval-gpqa-inspect"), None)


PLAIN = Model(name="m", family="m", hub_id="m/m", total_params_b=1, active_params_b=1)


def again(verdict: Any, reasons: list[str], details: list[str] | None, logged: int = 8, **changed: Any) -> Regraded:
    """Eight answers graded again: six right. `changed` is what the older readers made of each."""
    answers = gpqa_answers()
    samples = [sample_row(each, GRADED_GPQA, 0) | changed for each in answers]
    commit = Commit(
        step="eval-gpqa", attempt=1, owner="o", verdict=verdict, reasons=tuple(reasons), wall_s=1.0,
        committed_at="2026-11-22T00:00:00Z", parts=(),
    )  # fmt: skip
    row = {"condition": None, "mode": None, "verdict": verdict, "reasons": reasons, "details": details}
    return regraded(PLAIN, GRADED_GPQA, commit, samples, [each.exchange for each in answers[:logged]], [], [row])


def test_only_what_todays_readers_and_bounds_say_otherwise_changes() -> None:
    assert not again("ok", [], []).changed
    other = again("ok", [], None, extractor_version=0)
    assert (other.changed, other.outdated, other.is_due) == (False, 8, True), "another version that reads the same"
    assert {row["extractor_version"] for row in other.grading.tables[EVAL_SAMPLES]} == {VERSION}
    found = again("suspect", ["truncated"], ["3 of 8 answers were cut off"])
    assert found.changed and not found.changes, "a new bound changes the verdict though every reading stands"
    assert (found.grading.verdict, found.grading.reasons) == ("ok", ())


@pytest.mark.parametrize("verdict", ["suspect", "rejected"], ids=["of-two", "not-explained"])
def test_what_other_guards_said_stands(verdict: str) -> None:
    found = again(verdict, ["argv_differs"], ["max_model_len differs"])
    assert (found.grading.verdict, found.grading.reasons) == (verdict, ("argv_differs",))
    assert not found.changed


def test_a_rejection_that_bad_readings_explain_falls_with_them() -> None:
    said = ["5 of 8 answers name no answer", "max_model_len differs"]
    found = again("rejected", ["unreadable_answers", "argv_differs"], said, last_in_body=None, correct=False)
    assert (found.grading.verdict, found.grading.reasons) == ("suspect", ("argv_differs",))
    (row,) = found.grading.tables[VERDICTS]
    assert row["details"] == ["max_model_len differs"]
    [change] = found.changes
    assert (change.reader, change.before, change.after, change.items) == ("last-in-body", 0.0, 0.75, 8)


@pytest.mark.parametrize(
    ("said", "asked_to_think", "reasons"),
    [
        ("<think>(A)?</think>**C**", True, ()),
        ("[THINK]The answer is (A).[/THINK]**C**", True, ()),
        ("thought\nThe answer is (A), or so.\n**C**", True, ("no_thinking",)),
        ("thought\nThe answer is (A), or so.\n**C**", False, ()),
    ],
)
def test_old_answers_with_thoughts_in_them_are_graded_again(
    said: str, asked_to_think: bool, reasons: tuple[str, ...]
) -> None:
    """As version 1 had them: the thoughts' letter counted, or was the other reader's and stopped the cell."""
    asked = [item(number, "C") for number in range(20)]
    logged = [exchange(each, said) for each in asked]
    pairs = [Paired(each, graded(each, said), one) for each, one in zip(asked, logged, strict=True)]
    old = {"last_in_body": "A", "flexible": "B", "correct": False, "extractor_version": 1}
    samples = [sample_row(each, GPQA, 0) | old for each in pairs]
    sentences = ["0 of 20 right", "readers find the same letter in 0%"]
    row = {"condition": None, "mode": None, "verdict": "rejected", "details": sentences}
    row["reasons"] = ["at_chance", "extractors_disagree"]
    commit = Commit(
        step="eval-gpqa", attempt=1, owner="o", verdict="rejected", reasons=("at_chance", "extractors_disagree"),
        wall_s=1.0, committed_at="2026-11-22T00:00:00Z", parts=(),
    )  # fmt: skip
    model = PLAIN.model_copy(update={"chat_template_kwargs": {"enable_thinking": asked_to_think}})
    found = regraded(model, GPQA, commit, samples, logged, [], [row])
    assert (found.grading.reasons, found.grading.verdict) == (reasons, "suspect" if reasons else "ok")
    assert all(each["correct"] for each in found.grading.tables[EVAL_SAMPLES])
    assert {each["extractor_version"] for each in found.grading.tables[EVAL_SAMPLES]} == {VERSION}


def test_an_answer_that_is_not_on_the_response_log_is_refused() -> None:
    with pytest.raises(RegradeError, match=r"3 of 8 graded answers of eval-gpqa are not in its log, e.g. of item-5"):
        again("ok", [], [], logged=5)


ITEMS = [item(1, "A"), item(2, "B"), item(3, "C")]
BODIES = ["The answer is (A).", "The answer is (B).", "The answer is (D)."]
RECORDED = Recorded([exchange(asked, body) for asked, body in zip(ITEMS, BODIES, strict=True)])


def gradings(*bodies: str | None, items: Sequence[Item] = ITEMS) -> list[Sample]:
    return [graded(asked, body) for asked, body in zip(items, bodies, strict=True)]


def test_every_item_gets_its_own_exchange_whatever_order_the_framework_returns() -> None:
    found = paired(result(gradings(*BODIES)[::-1]), ITEMS, RECORDED, 0)
    assert [(each.item, each.exchange["body"]) for each in found] == [*zip(ITEMS, BODIES, strict=True)]


SWAPPED_BODIES = gradings(BODIES[1], BODIES[0], BODIES[2])
"""HRET 0.1.0: zip(inputs, asyncio.as_completed(...)). The items, prompts and scores all look right."""

SWAPPED_NAMES = [
    graded(ITEMS[1], BODIES[1], item_id="item-1"),
    graded(ITEMS[0], BODIES[0], item_id="item-2"),
    graded(ITEMS[2], BODIES[2]),
]
"""Prompt and answer belong together, but the right answer that they are compared with is another item's."""

GIVEN_UP = gradings(*BODIES[:2], "")

REFUSED = {
    "swapped": (
        SWAPPED_BODIES,
        {},
        "2 of 3 items were graded on a response that is not the engine's answer to them, e.g. item-1: the framework "
        "graded 'The answer is (B).', the log has 'The answer is (A).'; nothing of it is scored",
    ),
    "swapped, gated": (SWAPPED_BODIES, {"quoted": False}, "item-1: the framework graded 18 characters (a gated"),
    "another's name": (SWAPPED_NAMES, {}, "2 of 3 items were asked with a prompt that has not their question"),
    "another's name, gated": (SWAPPED_NAMES, {"quoted": False}, "characters (a gated suite's, not shown)"),
    "timed out": (
        GIVEN_UP,
        {"answers_to": Recorded(RECORDED.rows[:2])},
        "1 of 3 items have no answer in the response log (timed out?), e.g. item-3",
    ),
    "given up": (GIVEN_UP, {}, "item-3: the framework graded nothing, the log has 'The answer is"),
    "another sample": (gradings(*BODIES), {"sample": 1}, "3 of 3 items have no answer in the response log"),
    "lost": ([graded(ITEMS[0], BODIES[0])], {"items": ITEMS[:2]}, "is not once in both"),
    "doubled": ([graded(ITEMS[0], BODIES[0])] * 2, {"items": ITEMS[:2]}, "is not once in both"),
    "unheard of": (
        [graded(ITEMS[0], BODIES[0], item_id=name) for name in ("item-1", "item-2", "item-9")],
        {"items": ITEMS[:2]},
        "is not once in both",
    ),
}


@pytest.mark.parametrize(("samples", "changed", "said"), REFUSED.values(), ids=REFUSED)
def test_another_answer_or_prompt_is_refused(samples: list[Sample], changed: dict[str, Any], said: str) -> None:
    with pytest.raises(PairingError) as refused:
        paired(result(samples, framework="hret"), **{"items": ITEMS, "answers_to": RECORDED, "sample": 0} | changed)
    assert said in str(refused.value) and str(refused.value).startswith("hret 0.4.13")
    assert changed.get("quoted", True) or "answer is" not in str(refused.value)


def twins(other_gold: str) -> tuple[list[Item], Recorded]:
    """Two items that are asked alike, and an answer to each."""
    alike = [item(1, "A"), item(1, other_gold, item_id="item-1b")]
    return alike, Recorded([exchange(asked, BODIES[place], occurrence=place) for place, asked in enumerate(alike)])


def test_equal_items_share_out_the_answers_to_their_prompt_and_have_one_right_answer() -> None:
    alike, response_log = twins("A")
    swapped = result(gradings(BODIES[1], BODIES[0], items=alike))
    assert [each.exchange["occurrence"] for each in paired(swapped, alike, response_log, 0)] == [1, 0]
    with pytest.raises(PairingError, match=r"item-1b: .* the log has fewer answers"):
        paired(result(gradings(BODIES[0], BODIES[0], items=alike)), alike, Recorded(response_log.rows[:1]), 0)

    alike, response_log = twins("B")
    with pytest.raises(PairingError, match=r"1 of 2 items share a prompt .*: item-1 says A, it says B"):
        paired(result(gradings(*BODIES[:2], items=alike)), alike, response_log, 0)


@pytest.mark.parametrize(
    ("recorded", "seen"),
    [
        ("<think>hm</think>\n\nThe answer is (A).", "The answer is (A)."),
        ("The answer  is (A).\n", "The answer is (A)."),
        (None, ""),
    ],
)
def test_thoughts_and_white_space_are_no_difference(recorded: str | None, seen: str) -> None:
    response_log = Recorded([exchange(ITEMS[0], recorded)])
    assert paired(result([graded(ITEMS[0], seen)]), ITEMS[:1], response_log, 0)[0].exchange["body"] == recorded


def test_a_failed_job_has_nothing_to_pair() -> None:
    with pytest.raises(PairingError, match="inspect: ended with status 'error'"):
        paired(Result("inspect", "0.3.285", error="ended with status 'error'"), ITEMS, RECORDED, 0)
