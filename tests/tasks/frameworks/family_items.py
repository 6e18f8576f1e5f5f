"""The demo family's questions as items, in the shape of each suite's records."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tasks.family import words
from tasks.frameworks.job import Item, Job, Result
from tasks.frameworks.process import Framework
from tasks.host import process_group
from tests.fake_chat import FakeChat


def family_items(n: int) -> tuple[Item, ...]:
    return tuple(map(_item, words.questions(n, seed=12)))


def job_of(chat: FakeChat, suite: str, workdir: Path, n: int = 12, *, plain: bool = True, concurrency: int = 4) -> Job:
    return Job(
        do="ask",
        suite=suite,
        items=family_items(n) if plain else tuple(_in_shape(item, suite) for item in family_items(n)),
        base_url=chat.base_url,
        model="the-family/target",
        max_tokens=100,
        concurrency=concurrency,
        plain=plain,
        workdir=str(workdir),
    )


def mispaired(chat: FakeChat, result: Result) -> list[str]:
    """Samples whose response isn't what the server answers to the sample's own messages."""
    return [
        sample.item_id
        for sample in result.samples
        if sample.response
        != chat.answer({"model": "", "messages": sample.messages})["choices"][0]["message"]["content"]
    ]


class Started:
    """A framework that is called from tests that are no coroutines."""

    def __init__(self, framework: Framework, runner: asyncio.Runner) -> None:
        self.framework = framework
        self._runner = runner

    def run(self, job: Job) -> Result:
        return self._runner.run(self.framework.run(job, "job"))

    def run_and_be_killed(self, job: Job) -> Result:
        """Run a job against a server that kills the asking process with -9 when it is asked for the first time."""

        async def kill(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            group = process_group.ProcessGroup(**json.loads(self.framework.record_path.read_text()))
            for pid in process_group.members(group):
                os.kill(pid, signal.SIGKILL)
            writer.close()

        async def killed() -> Result:
            async with await asyncio.start_server(kill, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                return await self.framework.run(replace(job, base_url=f"http://127.0.0.1:{port}/v1"), "job")

        return self._runner.run(killed())


@contextmanager
def started(framework: Framework) -> Iterator[Started]:
    with asyncio.Runner() as runner:
        try:
            yield Started(framework, runner)
        finally:
            runner.run(framework.stop())


def _item(question: words.Question) -> Item:
    return Item(question.item_id, question.prompt, (), question.answer, question.kind, {})


def _in_shape(item: Item, suite: str) -> Item:
    choices = tuple(re.findall(r"(\S+) \([A-D]\)", item.question))
    asks = item.question.partition(" ?")[0] + " ?"
    right = "ABCD".index(item.gold)
    records = {
        "gpqa": {"Question": asks, "Correct Answer": choices[right]},
        "hae-rae": {"query": f"{item.question} ### 정답", "options": list(choices), "answer": f"({item.gold})"},
        "kmmlu": {"question": asks, **dict(zip("ABCD", choices, strict=True)), "answer": right + 1},
    }
    return Item(item.item_id, asks, choices, item.gold, item.category, records[suite])
