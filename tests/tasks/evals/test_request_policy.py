"""What reaches the engine, whatever a framework sends."""

from __future__ import annotations

import pytest

from tasks.evals.policy import RequestRefused, apply, policy_of
from tests.tasks.evals.tape_case import cell, question, spec

LM_EVAL = question(
    "Q: 1+1?", max_tokens=2048, temperature=0, seed=1234, stop=["</s>", "Q:"], top_k=1, n=1, stream=False, user=None
)
"""A request as lm-eval sends it, more or less."""


def test_every_framework_gets_the_sampling_and_the_thinking_of_the_cell() -> None:
    body, _ = apply(policy_of(cell(), spec(seed=7, temperature=0.6, top_p=0.95, max_tokens=32768)), LM_EVAL, 0)
    assert body == {
        "model": "m",
        "messages": LM_EVAL["messages"],
        "max_tokens": 32768,
        "temperature": 0.6,
        "top_p": 0.95,
        "seed": 7,
        "chat_template_kwargs": {"enable_thinking": True},
    }


def test_what_is_taken_out_is_named_if_it_said_something() -> None:
    _, dropped = apply(policy_of(cell(), spec()), LM_EVAL, 0)
    assert dropped == ["stop", "top_k"], "n=1, stream=False and user=None ask for nothing"


def test_the_length_of_an_answer_is_the_steps_under_either_name() -> None:
    body, dropped = apply(policy_of(cell(), spec(max_tokens=99)), question("a", max_completion_tokens=5), 0)
    assert body["max_tokens"] == 99
    assert dropped == ["max_completion_tokens"]


def test_seeds_differ_by_sample() -> None:
    policy = policy_of(cell(), spec(seed=7))
    assert [apply(policy, LM_EVAL, sample)[0]["seed"] for sample in range(3)] == [7, 8, 9]


def test_block_diffusion_gets_no_temperature_and_no_seed() -> None:
    body, dropped = apply(policy_of(cell(greedy=False), spec()), LM_EVAL, 0)
    assert not {"temperature", "top_p", "seed"} & set(body)
    assert dropped == ["seed", "stop", "temperature", "top_k"], "a temperature of 0 says something"


def test_the_cells_thinking_arguments_go_over_the_clients() -> None:
    asked = question("a", chat_template_kwargs={"enable_thinking": False, "lang": "ko"})
    body, _ = apply(policy_of(cell(), spec()), asked, 0)
    assert body["chat_template_kwargs"] == {"enable_thinking": True, "lang": "ko"}


@pytest.mark.parametrize(
    ("field", "value"), [("stream", True), ("n", 2), ("logprobs", True), ("top_logprobs", 5), ("tools", [{}])]
)
def test_what_the_tape_cannot_answer_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(RequestRefused, match=f"^{field}: .*ask without it$"):
        apply(policy_of(cell(), spec()), question("a", **{field: value}), 0)


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": "hello"}])
def test_a_request_without_messages_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(RequestRefused, match=r"^messages: "):
        apply(policy_of(cell(), spec()), body, 0)
