"""A request by itself: what of it reaches the engine, how it is named, and whose turn it is."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.evals.exchange import Answers, RequestRefused, apply, policy_of, prompt_hash, request_hash
from tests.tasks.evals.response_log_case import cell, question, spec

LM_EVAL = question(
    "Q: 1+1?", max_tokens=2048, temperature=0, seed=1234, stop=["</s>", "Q:"], top_k=1, n=1, stream=False, user=None
)
"""A request as lm-eval sends it, more or less."""

ASKED = [{"role": "user", "content": "하나를\n고르시오"}]


def test_every_framework_gets_the_sampling_and_the_thinking_of_the_cell() -> None:
    policy = policy_of(cell(), spec(seed=7, temperature=0.6, top_p=0.95, max_tokens=32768))
    body, dropped = apply(policy, LM_EVAL, 0)
    assert body == {
        "model": "m",
        "messages": LM_EVAL["messages"],
        "max_tokens": 32768,
        "temperature": 0.6,
        "top_p": 0.95,
        "seed": 7,
        "chat_template_kwargs": {"enable_thinking": True},
    }
    assert dropped == ["stop", "top_k"], "n=1, stream=False and user=None ask for nothing"
    assert [apply(policy, LM_EVAL, sample)[0]["seed"] for sample in range(3)] == [7, 8, 9]


@pytest.mark.parametrize(
    ("greedy", "sent", "reaches", "dropped"),
    [
        (True, {"max_completion_tokens": 5}, {"max_tokens": 99}, ["max_completion_tokens"]),
        (False, {"temperature": 0, "seed": 1, "stop": ["Q:"]}, {"seed": None}, ["seed", "stop", "temperature"]),
        (
            True,
            {"chat_template_kwargs": {"enable_thinking": False, "lang": "ko"}},
            {"chat_template_kwargs": {"enable_thinking": True, "lang": "ko"}},
            [],
        ),
    ],
    ids=["length", "block-diffusion", "thinking"],
)
def test_the_step_and_the_cell_go_over_what_a_client_says(
    greedy: bool, sent: dict[str, Any], reaches: dict[str, Any], dropped: list[str]
) -> None:
    body, left_out = apply(policy_of(cell(greedy=greedy), spec(max_tokens=99)), question("a", **sent), 0)
    assert ({name: body.get(name) for name in reaches}, left_out) == (reaches, dropped)
    assert greedy == ("temperature" in body) == ("top_p" in body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        *[
            (question("a", **{field: value}), f"^{field}: .*ask without it$")
            for field, value in {"stream": True, "n": 2, "logprobs": True, "top_logprobs": 5, "tools": [{}]}.items()
        ],
        *[(body, "^messages: ") for body in ({}, {"messages": []}, {"messages": "hello"})],
    ],
)
def test_what_the_response_log_cannot_answer_is_refused_by_name(body: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestRefused, match=said):
        apply(policy_of(cell(), spec()), body, 0)


@pytest.mark.parametrize(
    "spelled",
    [
        [{"content": "하나를\n고르시오", "role": "user"}],
        [{"role": "user", "content": "하나를\n고르시오", "type": "text", "name": None}],
        [{"role": "user", "content": [{"type": "text", "text": "하나를"}, {"type": "text", "text": "고르시오"}]}],
    ],
)
def test_a_prompt_has_one_hash_however_it_is_spelled(spelled: list[dict[str, object]]) -> None:
    assert prompt_hash(spelled) == prompt_hash(ASKED) == "0621d38c3c2c46f244d91e72cc2f3b76", "it may not move"
    assert request_hash({"model": "m", "messages": spelled}) == request_hash({"messages": ASKED, "model": "m"})


def test_another_role_word_or_seed_is_another_hash_and_a_picture_is_none() -> None:
    assert prompt_hash([{"role": "system", "content": "하나를\n고르시오"}]) != prompt_hash(ASKED)
    assert request_hash({"messages": ASKED, "seed": 1}) != request_hash({"messages": ASKED, "seed": 2})
    with pytest.raises(ValueError, match="neither text nor text parts"):
        prompt_hash([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])


def test_a_turn_that_was_given_back_is_the_next_one_of_its_own_job() -> None:
    answers = Answers([])
    first, second = answers.take("a"), answers.take("a")
    answers.give_back(first)
    assert (first.occurrence, second.occurrence) == (0, 1)
    assert [answers.take("a").occurrence for _ in range(2)] == [0, 2]
    answers.begin()
    assert answers.take("a").occurrence == 0
    answers.give_back(first)  # the response log hears only now that the job before was killed
    assert answers.take("a").occurrence == 1
