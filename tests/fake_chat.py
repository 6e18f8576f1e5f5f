"""A FAKE OpenAI chat server: it knows the demo family's questions, answers late in any order, and lies if told to.

In the process of the test, on a port of its own, so that a test sees what was asked and can change how it answers.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from tests.fake_engine import answer_letter
from tests.loopback import Answering, serving

Lie = Literal["honest", "blank", "wrong", "refused", "no choices", "broken"]

LATEST_S = 0.02


class FakeChat:
    """What the server was asked, and how it answers: `lie` may be changed while it runs."""

    base_url: str
    lie: Lie = "honest"
    form = "The answer is ({letter})"

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        letter = answer_letter(body["messages"][-1]["content"])
        if self.lie == "wrong":
            letter = {"A": "B", "B": "C", "C": "D", "D": "A"}[letter]
        content = None if self.lie == "blank" else self.form.format(letter=letter)
        ending = "content_filter" if self.lie == "refused" else "stop"
        message = {"role": "assistant", "content": content, "reasoning": "maybe (A) ?"}
        choices = [] if self.lie == "no choices" else [{"index": 0, "message": message, "finish_reason": ending}]
        usage = {"prompt_tokens": 20, "completion_tokens": 12, "total_tokens": 32}
        return {"id": "x", "object": "chat.completion", "model": body["model"], "choices": choices, "usage": usage}


@contextmanager
def fake_chat() -> Iterator[FakeChat]:
    chat = FakeChat()

    class Handler(Answering):
        def do_POST(self) -> None:
            body = json.loads(self.received())
            chat.asked.append(body)
            time.sleep(random.random() * LATEST_S)  # so that answers overtake one another
            self.reply(500 if chat.lie == "broken" else 200, json.dumps(chat.answer(body)).encode())

    with serving(Handler) as address:
        chat.base_url = f"http://{address}/v1"
        yield chat
