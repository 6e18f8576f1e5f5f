"""A framework's gradings are joined with the engine's answers, or refused: planted mispairings of every kind."""

from __future__ import annotations

import pytest

from tasks.evals.pairing import PairingError, paired
from tasks.frameworks.job import Result
from tests.tasks.evals.graded import Recorded, exchange, graded, item, result

ITEMS = [item(1, "A"), item(2, "B"), item(3, "C")]
BODIES = ["The answer is (A).", "The answer is (B).", "The answer is (D)."]
TAPE = Recorded([exchange(asked, body) for asked, body in zip(ITEMS, BODIES, strict=True)])


def test_every_item_gets_its_own_exchange_whatever_order_the_framework_returns() -> None:
    gradings = [graded(asked, body) for asked, body in zip(ITEMS, BODIES, strict=True)]
    found = paired(result(gradings[::-1]), ITEMS, TAPE, 0)
    assert [(each.item.item_id, each.exchange["body"]) for each in found] == [
        (asked.item_id, body) for asked, body in zip(ITEMS, BODIES, strict=True)
    ]


def test_answers_in_the_order_in_which_they_came_are_refused() -> None:
    """HRET 0.1.0: zip(inputs, asyncio.as_completed(...)). The items, prompts and scores all look right."""
    swapped = [graded(asked, body) for asked, body in zip(ITEMS, [BODIES[1], BODIES[0], BODIES[2]], strict=True)]
    with pytest.raises(PairingError) as refused:
        paired(result(swapped, framework="hret"), ITEMS, TAPE, 0)
    assert str(refused.value) == (
        "hret 0.4.13: 2 of 3 items were graded on a response that is not the engine's answer to them, e.g. item-1: "
        "the framework graded 'The answer is (B).', the tape has 'The answer is (A).'; nothing of it is scored"
    )


def test_the_text_of_a_gated_suite_is_not_quoted() -> None:
    swapped = [graded(asked, body) for asked, body in zip(ITEMS, [BODIES[1], BODIES[0], BODIES[2]], strict=True)]
    with pytest.raises(
        PairingError, match=r"item-1: the framework graded 18 characters .*, the tape has 18"
    ) as refused:
        paired(result(swapped), ITEMS, TAPE, 0, quoted=False)
    assert "answer is" not in str(refused.value)
    others = [graded(ITEMS[1], BODIES[1], item_id="item-1"), graded(ITEMS[0], BODIES[0], item_id="item-2")]
    with pytest.raises(PairingError, match=r"item-1: the prompt ends \d+ characters \(a gated suite's, not shown\)"):
        paired(result([*others, graded(ITEMS[2], BODIES[2])]), ITEMS, TAPE, 0, quoted=False)


def test_a_whole_exchange_under_anothers_name_is_refused() -> None:
    """Prompt and answer belong together, but the right answer that they are compared with is another item's."""
    swapped = [graded(ITEMS[1], BODIES[1], item_id="item-1"), graded(ITEMS[0], BODIES[0], item_id="item-2")]
    with pytest.raises(PairingError, match="2 of 3 items were asked with a prompt that has not their question"):
        paired(result([*swapped, graded(ITEMS[2], BODIES[2])]), ITEMS, TAPE, 0)


def test_a_timed_out_item_is_refused_not_wrong() -> None:
    tape = Recorded(TAPE.rows[:2])
    gradings = [graded(asked, body) for asked, body in zip(ITEMS, [*BODIES[:2], ""], strict=True)]
    with pytest.raises(PairingError, match=r"1 of 3 items have no answer on the tape \(timed out\?\), e.g. item-3"):
        paired(result(gradings), ITEMS, tape, 0)


def test_an_item_given_up_before_its_answer_came_is_refused() -> None:
    gradings = [graded(asked, body) for asked, body in zip(ITEMS, [*BODIES[:2], ""], strict=True)]
    with pytest.raises(PairingError, match="item-3: the framework graded nothing, the tape has 'The answer is"):
        paired(result(gradings), ITEMS, TAPE, 0)


def test_another_samples_answer_is_no_answer() -> None:
    gradings = [graded(asked, body) for asked, body in zip(ITEMS, BODIES, strict=True)]
    with pytest.raises(PairingError, match="3 of 3 items have no answer on the tape"):
        paired(result(gradings), ITEMS, TAPE, 1)


def test_one_prompt_with_two_right_answers_is_refused() -> None:
    twins = [item(1, "A"), item(1, "B", item_id="item-1b")]
    tape = Recorded([exchange(twins[0], BODIES[0]), exchange(twins[1], BODIES[1], occurrence=1)])
    gradings = [graded(asked, body) for asked, body in zip(twins, BODIES[:2], strict=True)]
    with pytest.raises(PairingError, match=r"1 of 2 items share a prompt .*: item-1 says A, it says B"):
        paired(result(gradings), twins, tape, 0)


def test_equal_items_share_out_the_answers_to_their_prompt() -> None:
    twins = [item(1, "A"), item(1, "A", item_id="item-1b")]
    tape = Recorded([exchange(twins[0], BODIES[0]), exchange(twins[1], BODIES[1], occurrence=1)])
    gradings = [graded(asked, body) for asked, body in zip(twins, [BODIES[1], BODIES[0]], strict=True)]
    assert [each.exchange["occurrence"] for each in paired(result(gradings), twins, tape, 0)] == [1, 0]


def test_an_answer_may_be_used_only_once() -> None:
    twins = [item(1, "A"), item(1, "A", item_id="item-1b")]
    tape = Recorded([exchange(twins[0], BODIES[0])])
    with pytest.raises(PairingError, match=r"item-1b: .* the tape has fewer answers"):
        paired(result([graded(asked, BODIES[0]) for asked in twins]), twins, tape, 0)


@pytest.mark.parametrize(
    ("recorded", "seen"),
    [
        ("<think>hm</think>\n\nThe answer is (A).", "The answer is (A)."),
        ("The answer  is (A).\n", "The answer is (A)."),
        (None, ""),
    ],
)
def test_thoughts_and_white_space_are_no_difference(recorded: str | None, seen: str) -> None:
    tape = Recorded([exchange(ITEMS[0], recorded)])
    assert paired(result([graded(ITEMS[0], seen)]), ITEMS[:1], tape, 0)[0].exchange["body"] == recorded


@pytest.mark.parametrize("names", [["item-1"], ["item-1", "item-1"], ["item-1", "item-2", "item-9"]])
def test_items_that_are_lost_doubled_or_unheard_of_are_refused(names: list[str]) -> None:
    gradings = [graded(ITEMS[0], BODIES[0], item_id=name) for name in names]
    with pytest.raises(PairingError, match="is not once in both"):
        paired(result(gradings), ITEMS[:2], TAPE, 0)


def test_a_failed_job_has_nothing_to_pair() -> None:
    with pytest.raises(PairingError, match="inspect: ended with status 'error'"):
        paired(Result("inspect", "0.3.285", error="ended with status 'error'"), ITEMS, TAPE, 0)
