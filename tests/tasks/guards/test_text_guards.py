"""Healthy texts of many kinds pass; loops and noise of many kinds do not, with token ids and without."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tasks.guards.text import degenerate_text, improbable_text, repeated_share, text_columns
from tests.tasks.guards.texts import COUNTED_LOOP, CYCLE_OF_56, ENGLISH, HEALTHY, LOOPS, SOUP, row, tokens
from warehouse.ledger.verdicts import Reason


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


GOOD, LOOP = row(ENGLISH[:1200], None), row("!" * 512, None)
BROKEN = "\ufffd\ufffd".join(map(chr, random.Random(3).choices(range(97, 122), k=300)))
TWO_TOKENS = "".join(random.Random(3).choices("01", k=512))


@pytest.mark.parametrize(
    ("rows", "said", "words"),
    [
        ([row("", [0] * 512)], "looping_text rejected", ""),
        ([{**row("", None), "completion_tokens": 512}], "gibberish rejected", "512 tokens without a character"),
        ([row(CYCLE_OF_56, tokens(CYCLE_OF_56))], "looping_text suspect", ""),
        ([row(COUNTED_LOOP, tokens(COUNTED_LOOP))], "looping_text suspect", ""),
        ([row(ENGLISH[:800] + "!" * 1200, None)], "looping_text suspect", ""),
        ([LOOP] * 2 + [GOOD] * 8, "looping_text suspect", "2 of 10"),
        ([LOOP] + [GOOD] * 9, None, ""),
        ([row(SOUP, tokens(SOUP))], "gibberish rejected", ""),
        ([row(BROKEN, tokens(BROKEN))], "gibberish rejected", ""),
        ([row(TWO_TOKENS, tokens(TWO_TOKENS))], "gibberish rejected", "2 different ones"),
    ],
    ids=["pads", "no text", "cycle", "counts", "ends in a loop", "two of ten", "one of ten", "alphabets", "broken",
         "two tokens"],
)  # fmt: skip
def test_loops_and_noise_are_found(rows: list[dict[str, Any]], said: str | None, words: str) -> None:
    found = degenerate_text(rows)
    assert (found and f"{found.reason.value} {found.severity}") == said
    assert found is None or words in found.sentence


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
    assert improbable_text(mean_logprobs, is_real=False) is None, "of dummy weights all is"


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
