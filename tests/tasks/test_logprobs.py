"""How sure the model was of each token, read off the logprobs of a chat answer."""

from __future__ import annotations

from typing import Any

import pytest

from configs.load import load_model, load_technique
from tasks.client import RequestFailed, mean_logprob, request_body, top2_gaps
from tasks.prompts import Prompt


def entry(*logprobs: float) -> dict[str, Any]:
    return {"token": "a", "logprob": logprobs[0], "top_logprobs": [{"token": "a", "logprob": p} for p in logprobs]}


def test_the_gap_is_between_the_two_best_whichever_was_sampled() -> None:
    choice = {"token_ids": [5, 6], "logprobs": {"content": [entry(-0.25, -2.25), entry(-1.5, -0.5)]}}
    assert top2_gaps(choice) == [2.0, 1.0]


@pytest.mark.parametrize("choice", [{}, {"logprobs": None}, {"logprobs": {"content": None}}])
def test_an_engine_that_sends_no_logprobs_leaves_the_gap_unknown(choice: dict[str, Any]) -> None:
    assert top2_gaps(choice) is None


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"token_ids": [5, 6], "logprobs": {"content": [entry(-1, -2)]}}, "2 token ids and 1 logprobs"),
        ({"logprobs": {"content": [entry(-1)]}}, "1 of 1 output tokens came without their two best"),
    ],
)
def test_logprobs_that_can_not_be_laid_beside_the_tokens_are_an_error(choice: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestFailed, match=said):
        top2_gaps(choice)


def test_the_mean_is_over_all_tokens_and_one_impossible_token_does_not_decide_it() -> None:
    choice = {"logprobs": {"content": [{"token": "a", "logprob": -1.0}] * 99 + [{"token": "b", "logprob": -9999.0}]}}
    assert mean_logprob(choice) == pytest.approx(-1.99)


@pytest.mark.parametrize("choice", [{}, {"logprobs": None}, {"logprobs": {"content": []}}])
def test_without_logprobs_or_tokens_the_mean_is_unknown(choice: dict[str, Any]) -> None:
    assert mean_logprob(choice) is None


def test_of_dummy_weights_no_logprobs_are_asked() -> None:
    asked = [
        request_body(load_model(name), load_technique("ar"), Prompt("Hi"), 8, fixed=True, logprobs="written")
        for name in ("gemma-4-31b", "gemma-4-31b-shape")
    ]
    assert [body.get("logprobs") for body in asked] == [True, None]
