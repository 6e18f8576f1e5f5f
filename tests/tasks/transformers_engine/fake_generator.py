"""A FAKE of what computes behind the transformers engine's door: it writes what it is told, in steps, with drafts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tasks.transformers_engine.asked import Asked
from tasks.transformers_engine.turns import Logprob

END_OF_TURN, START, END = 3, 1, 2
MARKS = {"<|channel>": START, "<channel|>": END}


class FakeGenerator:
    """Answers with the last message's words in capitals, a letter being a token; every step accepts all but one."""

    def __init__(self, k: int | None) -> None:
        self.k = k
        self.began: list[str] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.fails: Exception | None = None

    def tokens_of(self, wanted: Asked) -> list[int]:
        return [9, *wanted.messages[-1]["content"].encode()]

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(each for each in token_ids if each >= 10).decode(errors="replace")

    def token_text(self, token: int) -> str:
        return chr(token)

    def id_of(self, token: str) -> int:
        return MARKS[token]

    def ends(self, token: int) -> bool:
        return token == END_OF_TURN

    def generate(
        self,
        prompt: Sequence[int],
        asked: Asked,
        max_tokens: int,
        on_draft: Callable[[int, int], None],
        on_tokens: Callable[[list[int]], bool],
    ) -> list[Logprob] | None:
        words = bytes(prompt[1:]).upper()
        self.began.append(words.decode())
        answer = [START, *b"thought\nhm", END, *words, END_OF_TURN]
        if asked.ignore_eos:
            answer += [*words] * max_tokens
        answer = answer[:max_tokens]
        written: list[int] = []
        while len(written) < len(answer):
            assert self.may_go_on.wait(30)
            if self.fails is not None:
                raise self.fails
            drafted = min(self.k or 0, len(answer) - len(written) - 1)
            accepted = max(0, drafted - 1)
            new = answer[len(written) : len(written) + accepted + 1]
            on_draft(drafted, accepted)
            written += new
            if on_tokens(new):
                break
        return (
            None if asked.top_logprobs is None else [Logprob(each, -0.5, [(each, -0.5), (7, -2.0)]) for each in written]
        )


class FakeMemory:
    def gauges(self) -> dict[str, float]:
        return {'transformers:weights_bytes{of="target"}': 12.0}


def ask(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}
