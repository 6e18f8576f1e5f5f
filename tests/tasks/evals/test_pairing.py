"""A framework's gradings are joined with the engine's answers, or refused: planted mispairings of every kind."""

from collections.abc import Sequence
from typing import Any

import pytest

from tasks.evals.pairing import PairingError, paired
from tasks.frameworks.job import Item, Result, Sample
from tests.tasks.evals.graded import Recorded, exchange, graded, item, result

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


def test_equal_items_share_out_the_answers_to_their_prompt_each_once() -> None:
    alike, response_log = twins("A")
    swapped = result(gradings(BODIES[1], BODIES[0], items=alike))
    assert [each.exchange["occurrence"] for each in paired(swapped, alike, response_log, 0)] == [1, 0]
    with pytest.raises(PairingError, match=r"item-1b: .* the log has fewer answers"):
        paired(result(gradings(BODIES[0], BODIES[0], items=alike)), alike, Recorded(response_log.rows[:1]), 0)


def test_one_prompt_with_two_right_answers_is_refused() -> None:
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
