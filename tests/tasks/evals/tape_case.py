"""What the tests of the tape share: a cell, a store in memory, and a client."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any

import aiohttp

from configs.cell import Cell, Model, Precision, Technique
from configs.engine import Engine, Serving
from configs.steps.eval import EvalStep
from tasks.evals.policy import Policy, policy_of
from tasks.evals.tape import Tape
from tests.tasks.evals.fake_upstream import FakeUpstream
from warehouse.parts import Row

SUITE = "eval-gpqa"


def played(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @wraps(story)
    def test(*args: Any, **fields: Any) -> None:
        asyncio.run(story(*args, **fields))

    return test


def cell(model: str = "m", *, greedy: bool = True, technique: str = "ar", max_num_seqs: int | None = None) -> Cell:
    return Cell(
        model=Model(
            name=model,
            family="f",
            hub_id="some/model",
            total_params_b=1,
            active_params_b=1,
            chat_template_kwargs={"enable_thinking": True},
        ),
        precision=Precision(name="bf16", bytes_per_param=2),
        technique=Technique(name=technique, method="ar", greedy=greedy),
        engine=Engine(name="fake"),
        serving=Serving(max_model_len=65536, max_num_seqs=max_num_seqs),
    )


def spec(**fields: Any) -> EvalStep:
    return EvalStep(step="eval-gpqa", **fields)


POLICY = policy_of(cell(), spec(seed=7))


class FakeStore:
    """Parts in memory. `broken`: what the next writes raise."""

    def __init__(self) -> None:
        self.parts: list[list[Row]] = []
        self.broken: Exception | None = None

    async def write(self, rows: Sequence[Row]) -> None:
        if self.broken:
            raise self.broken
        self.parts.append(list(rows))

    @property
    def rows(self) -> list[Row]:
        return [row for part in self.parts for row in part]


def tape(
    engine: FakeUpstream, store: FakeStore, known: Sequence[Row] = (), policy: Policy = POLICY, **options: Any
) -> Tape:
    return Tape(engine.url, policy, SUITE, known, store.write, **options)


async def post(url: str, body: Any) -> tuple[int, dict[str, Any]]:
    """The status and the document of a chat request."""
    data = io.BytesIO(json.dumps(body).encode())
    async with aiohttp.ClientSession() as session, session.post(f"{url}/chat/completions", data=data) as response:
        return response.status, await response.json()


def question(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "whatever", "messages": [{"role": "user", "content": text}], **fields}


async def ask(tape: Tape, text: str, sample: int = 0, **fields: Any) -> str | None:
    """The content of an answer."""
    status, document = await post(tape.url(sample), question(text, **fields))
    assert status == 200, document
    content: str | None = document["choices"][0]["message"]["content"]
    return content
