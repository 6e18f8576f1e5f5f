"""Healthy texts of many kinds pass; loops and noise of many kinds do not, with token ids and without."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tasks.guards.text import degenerate_text, improbable_text, repeated_share, text_columns
from tests.tasks.guards.texts import COUNTED_LOOP, CYCLE_OF_56, ENGLISH, HEALTHY, LOOPS, SOUP, row, tokens
from warehouse.verdicts import Reason


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("characters", [150, 600, 1200, 2400, 6000])
def test_what_healthy_models_write_is_neither_a_loop_nor_noise(name: str, characters: int) -> None:
    text = HEALTHY[name][:characters]
    assert degenerate_text([row(text, tokens(text))]) is None
    assert degenerate_text([row(text, None)]) is None, "an engine that sends no token ids is judged by characters"


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_rejected_with_blanks_or_none_whatever_its_alphabet(name: str) -> None:
    for token_ids in (tokens(LOOPS[name]), None):
        found = degenerate_text([row(LOOPS[name], token_ids)] * 5)
        assert found is not None and (found.reason, found.severity) == (Reason.LOOPING_TEXT, "rejected")


def test_pads_that_leave_no_text_are_seen_by_their_token_ids() -> None:
    found = degenerate_text([row("", [0] * 512)])
    assert found is not None and (found.reason, found.severity) == (Reason.LOOPING_TEXT, "rejected")


def test_tokens_without_any_text_are_no_language_even_if_their_ids_are_unknown() -> None:
    found = degenerate_text([{**row("", None), "completion_tokens": 512}])
    assert found is not None and (found.reason, found.severity) == (Reason.GIBBERISH, "rejected")


def test_a_cycle_of_56_words_and_a_loop_that_counts_are_suspect() -> None:
    for text in (CYCLE_OF_56, COUNTED_LOOP):
        found = degenerate_text([row(text, tokens(text))])
        assert found is not None and (found.reason, found.severity) == (Reason.LOOPING_TEXT, "suspect")


def test_prose_that_ends_in_a_loop_is_seen() -> None:
    found = degenerate_text([row(ENGLISH[:800] + "!" * 1200, None)])
    assert found is not None and found.reason is Reason.LOOPING_TEXT


def test_two_loops_among_ten_good_outputs_are_suspect_and_one_is_not() -> None:
    good, loop = row(ENGLISH[:1200], None), row("!" * 512, None)
    found = degenerate_text([loop] * 2 + [good] * 8)
    assert found is not None and found.severity == "suspect" and "2 of 10" in found.sentence
    assert degenerate_text([loop] + [good] * 9) is None


@pytest.mark.parametrize(
    "text",
    [SOUP, "\ufffd\ufffd".join(map(chr, random.Random(3).choices(range(97, 122), k=300)))],
    ids=["many alphabets in one word", "broken characters"],
)
def test_noise_is_gibberish(text: str) -> None:
    found = degenerate_text([row(text, tokens(text))])
    assert found is not None and (found.reason, found.severity) == (Reason.GIBBERISH, "rejected")


def test_noise_of_two_tokens_is_gibberish() -> None:
    text = "".join(random.Random(3).choices("01", k=512))
    found = degenerate_text([row(text, tokens(text))])
    assert found is not None and found.reason is Reason.GIBBERISH and "2 different ones" in found.sentence


@pytest.mark.parametrize(
    ("mean_logprobs", "severity"),
    [
        ([-0.2, -0.8], None),
        ([-2.9, -3.1], None),
        ([None, None], None),
        ([], None),
        ([-4.5, None], "suspect"),
        ([-6.36, -12.5], "rejected"),
    ],
)
def test_what_is_improbable_to_its_own_model_is_gibberish(
    mean_logprobs: list[float | None], severity: str | None
) -> None:
    found = improbable_text(mean_logprobs)
    assert (found and (found.reason, found.severity)) == (severity and (Reason.GIBBERISH, severity))


def test_text_of_dummy_weights_is_not_judged_as_text() -> None:
    assert improbable_text([-12.0], is_real=False) is None


@pytest.mark.parametrize(
    ("text", "token_ids", "columns"),
    [
        ("", None, {"loop_share": None, "token_loop_share": None, "char_loop_share": None, "compressed_share": None}),
        ("", [0] * 32, {"token_loop_share": 1 - 1 / 17, "distinct_share": 1 / 32}),
        ("a b c d e", [1, 2], {"loop_share": 0.0, "token_loop_share": None, "distinct_share": 1.0}),
    ],
)
def test_what_can_not_be_measured_is_null_and_never_nought(
    text: str, token_ids: list[int] | None, columns: dict[str, Any]
) -> None:
    measured = text_columns(text, token_ids)
    assert {name: measured[name] for name in columns} == pytest.approx(columns)


def test_a_share_of_repeated_runs_is_what_it_says() -> None:
    assert repeated_share("abcabcabc", 3) == pytest.approx(1 - 3 / 7)
    assert repeated_share("abcd", 4) is None
