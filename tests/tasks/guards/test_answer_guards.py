"""Shares of cut-off, blank, unreadable and ambiguous answers: on both sides of their bounds."""

from typing import Any

import pytest

from configs.evals.suites import GPQA, IFEVAL, MMLU_PRO
from tasks.guards.answers import EXCERPT_CHARS, excerpt, gate_findings, in_full, step_findings

GOOD: dict[str, Any] = {"last_in_body": "C", "flexible": "C", "correct": True, "truncated": False, "blank": False}


def rows(n: int, odd: int = 0, **changed: Any) -> list[dict[str, Any]]:
    """`n` good answers, of which `odd` are changed."""
    return [{**GOOD, **(changed if index < odd else {}), "item_id": f"item-{index}"} for index in range(n)]


CUT = {"truncated": True, "blank": True, "last_in_body": None, "flexible": None, "correct": False}
BLANK = CUT | {"truncated": False}
UNREADABLE = {"last_in_body": None, "flexible": None, "correct": False}
AMBIGUOUS = {"flexible": "A"}


@pytest.mark.parametrize(
    ("odd", "changed", "said"),
    [
        (0, {}, []),
        (2, CUT, []),
        (3, CUT, [("truncated", "suspect")]),
        (21, CUT, [("truncated", "rejected")]),
        (1, BLANK, []),
        (2, BLANK, [("blank_output", "suspect")]),
        (11, BLANK, [("blank_output", "rejected")]),
        (5, UNREADABLE, []),
        (6, UNREADABLE, [("unreadable_answers", "suspect")]),
        (21, UNREADABLE, [("unreadable_answers", "rejected")]),
        (10, AMBIGUOUS, []),
        (11, AMBIGUOUS, [("extractors_disagree", "suspect")]),
        (66, {"correct": False}, [("at_chance", "rejected")]),
    ],
)
def test_a_whole_evaluation_is_judged_by_shares(odd: int, changed: dict[str, Any], said: list[tuple[str, str]]) -> None:
    assert [(found.reason, found.severity) for found in step_findings(rows(100, odd, **changed), GPQA)] == said


@pytest.mark.parametrize(
    ("odd", "changed", "said"),
    [
        (0, {}, []),
        (2, {"correct": False}, []),
        (3, {"correct": False}, []),
        (4, {"correct": False}, [("at_chance", "rejected")]),
        (1, CUT, [("truncated", "rejected")]),
        (1, BLANK, [("blank_output", "rejected")]),
        (1, UNREADABLE, [("unreadable_answers", "suspect")]),
        (2, UNREADABLE, [("unreadable_answers", "rejected")]),
        (1, AMBIGUOUS, [("extractors_disagree", "suspect")]),
        (2, AMBIGUOUS, [("extractors_disagree", "rejected")]),
    ],
)
def test_the_gate_wants_five_good_answers(odd: int, changed: dict[str, Any], said: list[tuple[str, str]]) -> None:
    assert [(found.reason, found.severity) for found in gate_findings(rows(5, odd, **changed), GPQA)] == said


def test_instructions_need_no_letters_but_somebody_has_to_follow_one() -> None:
    checked = rows(5, 5, last_in_body=None, flexible=None)
    assert gate_findings(checked, IFEVAL) == []
    none_followed = gate_findings([row | {"correct": False} for row in checked], IFEVAL)
    assert [found.reason for found in none_followed] == ["at_chance"]


def test_answers_to_one_item_are_no_independent_guesses() -> None:
    """12 right of 20 is far above chance; as 3 right of 5 items, four answers each, it is not."""
    repeated = [row | {"sample": sample} for row in rows(5, 2, correct=False) for sample in range(4)]
    assert [found.reason for found in step_findings(repeated, GPQA)] == ["at_chance"]
    assert "3 of 5 right" in step_findings(repeated, GPQA)[0].sentence


def cut_off() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Five answers, of which the third was cut off while it was thinking."""
    said: list[dict[str, Any]] = [{"body": "The answer is (C).", "reasoning": "easy"} for _ in range(5)]
    said[2] = {"body": None, "reasoning": "word " * 100 + "but then (A)\nwould be", "finish_reason": "length"}
    answers = rows(5)
    answers[2] |= CUT | {"completion_tokens": 32768, "first": "A"}
    return answers, said


def test_a_rejection_shows_the_end_of_the_answer_that_explains_it() -> None:
    (cut,) = gate_findings(cut_off()[0], MMLU_PRO, cut_off()[1])
    assert cut.sentence.startswith("1 of 5 answers were cut off by the length limit (20.0%, rejected above 0%); item-2")
    assert cut.sentence.endswith("word but then (A) would be [answer] nothing")
    assert "ends: [thinking] …" in cut.sentence
    assert "\n" not in cut.sentence
    assert in_full(gate_findings, *cut_off()[:1], MMLU_PRO, cut_off()[1]) == [], "nothing is left out"


def test_a_gated_suites_text_stays_out_of_what_the_dataset_keeps() -> None:
    answers, said = cut_off()
    (cut,) = gate_findings(answers, GPQA, said)
    assert cut.sentence == (
        "1 of 5 answers were cut off by the length limit (20.0%, rejected above 0%); item-2 ended by length after "
        "32768 tokens; read: last_in_body none, strict none, flexible none, first A"
    )
    (full,) = in_full(gate_findings, answers, GPQA, said)
    assert full.endswith("word but then (A) would be [answer] nothing"), "for a file on the node"
    for reason, odd in ((UNREADABLE, 40), (AMBIGUOUS, 40), ({"correct": False}, 90)):
        spoken = [{"body": "the secret question", "reasoning": "secret"} for _ in range(100)]
        found = step_findings(rows(100, odd, **reason), GPQA, spoken)
        assert found and "secret" not in " ".join(finding.sentence for finding in found)


def test_an_excerpt_is_of_the_answer_first_and_of_the_thinking_where_there_is_room() -> None:
    assert excerpt({"body": "(C)", "reasoning": "hm"}) == "[thinking] hm [answer] (C)"
    assert excerpt({"body": "x" * 300, "reasoning": "hm"}) == "[answer] …" + "x" * EXCERPT_CHARS
