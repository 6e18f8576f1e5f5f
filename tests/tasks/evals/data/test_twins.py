"""The twins: the real datasets' shapes, with questions that the demo family knows."""

from __future__ import annotations

import re

import pytest

from configs.evals.spec import TWIN_ITEMS
from configs.evals.suites import SUITES, SuiteName
from tasks.evals.data.shapes import item_of
from tasks.evals.data.twins import twin
from tasks.family.words import COLORS, KINDS
from tests.fake_engine import answer_letter

MULTIPLE_CHOICE: list[SuiteName] = ["gpqa", "mmlu-pro", "hae-rae", "kmmlu"]


@pytest.mark.parametrize("suite", SUITES)
def test_a_twin_is_of_its_suites_shape_and_no_item_comes_twice(suite: SuiteName) -> None:
    items = [item_of(suite, record, "", plain=True) for record in twin(suite)]
    assert len({item.item_id for item in items}) == len(items) == TWIN_ITEMS
    assert len({item.question for item in items}) == TWIN_ITEMS


@pytest.mark.parametrize("suite", MULTIPLE_CHOICE)
def test_the_right_letter_is_the_one_that_the_familys_facts_give(suite: SuiteName) -> None:
    items = [item_of(suite, record, "", plain=True) for record in twin(suite)]
    assert [item.gold for item in items] == [answer_letter(item.question) for item in items]
    assert {item.category for item in items} == set(KINDS)


@pytest.mark.parametrize("suite", SUITES)
def test_every_option_stands_where_the_family_was_taught_to_see_it(suite: SuiteName) -> None:
    """An option's letter follows from its value: its index modulo 4."""
    for record in twin(suite):
        question = item_of(suite, record, "", plain=True).question
        shown = re.findall(r"(\w+) \(([A-D])\)", question)
        places = [COLORS.index(value) if value in COLORS else int(value) for value, _ in shown]
        assert [place % 4 for place in places] == [0, 1, 2, 3], question
        assert [letter for _, letter in shown] == list("ABCD")


def test_the_instructions_of_ifevals_twin_are_followed_by_the_right_answer_only() -> None:
    for record in twin("ifeval"):
        (pattern,) = record["kwargs"][0]["keywords"]
        right = answer_letter(record["prompt"])
        follows = [letter for letter in "ABCD" if re.search(pattern, f"The answer is ({letter})")]
        assert follows == [right]


def test_a_twin_is_the_same_whenever_it_is_made() -> None:
    assert twin("gpqa") == twin("gpqa")
    assert item_of("gpqa", twin("gpqa")[0], "", plain=True).item_id == "gpqa-a82dd55499d1"
