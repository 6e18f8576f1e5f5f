"""One prompt has one name, however a client spells it."""

from __future__ import annotations

import pytest

from tasks.evals.hashes import prompt_hash, request_hash

ASKED = [{"role": "user", "content": "하나를\n고르시오"}]


@pytest.mark.parametrize(
    "spelled",
    [
        [{"content": "하나를\n고르시오", "role": "user"}],
        [{"role": "user", "content": "하나를\n고르시오", "type": "text"}],
        [{"role": "user", "content": [{"type": "text", "text": "하나를"}, {"type": "text", "text": "고르시오"}]}],
    ],
)
def test_a_prompt_has_one_hash_however_it_is_spelled(spelled: list[dict[str, object]]) -> None:
    assert prompt_hash(spelled) == prompt_hash(ASKED)
    assert request_hash({"model": "m", "messages": spelled}) == request_hash({"messages": ASKED, "model": "m"})


def test_the_hash_is_written_down_and_may_not_move() -> None:
    assert prompt_hash(ASKED) == "0621d38c3c2c46f244d91e72cc2f3b76"


def test_another_role_word_or_seed_is_another_hash() -> None:
    assert prompt_hash([{"role": "system", "content": "하나를\n고르시오"}]) != prompt_hash(ASKED)
    assert request_hash({"messages": ASKED, "seed": 1}) != request_hash({"messages": ASKED, "seed": 2})


def test_a_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="neither text nor text parts"):
        prompt_hash([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
