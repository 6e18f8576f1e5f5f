"""The tape: a recording reverse proxy between any OpenAI client and the engine, in the node runner's own loop.

Every answer that crosses it is kept. A framework that starts again, because its machine was taken away or because more
items are looked at, is answered from the tape until the first request that nobody has answered yet.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from aiohttp import web

from configs.errors import SpecsweepError
from tasks.evals.policy import Policy, RequestRefused
from tasks.evals.policy import apply as apply_policy
from tasks.evals.recording.answers import Answers, Count, Turn
from tasks.evals.recording.exchange import Sent, answer_of, sent
from tasks.evals.recording.parts import Parts, Write
from tasks.evals.recording.upstream import HttpAnswer, Upstream, error_answer
from tasks.evals.recording.watch import POLL_S, STALLED_S, EngineWatch
from warehouse.parts import Row

FLUSH_S = 60.0
"""The longest that an answer waits to be stored: what a preemption may cost."""

FLUSH_ITEMS = 64
"""Answers stored together."""

LARGEST_REQUEST_BYTES = 64 * 2**20
"""A prompt of a million tokens has some 10 MB as JSON."""

LEAVE_S = 1.0
"""How long clients have to take their last answers when the tape ends."""


class WrongTape(SpecsweepError):
    """Answers of another cell were handed to a tape: they would be replayed as this cell's."""


class Tape:
    """One suite of one cell, from `async with` on."""

    def __init__(
        self,
        upstream: str,
        policy: Policy,
        suite: str,
        known: Sequence[Row],
        write: Write,
        *,
        flush_s: float = FLUSH_S,
        flush_items: int = FLUSH_ITEMS,
        stalled_s: float = STALLED_S,
        poll_s: float = POLL_S,
    ) -> None:
        """A tape that does not run yet.

        Args:
            upstream: the engine's address, without /v1.
            policy: what every request gets.
            suite: the evaluation step that asks; rows of other suites are left alone.
            known: rows of `exchanges` that earlier attempts of this cell recorded.
            write: stores rows of `exchanges`.
            flush_s: the longest that an answer waits to be stored.
            flush_items: answers stored together.
            stalled_s: standstill of the engine that ends the work.
            poll_s: pause between two looks at the engine.

        Raises:
            WrongTape: a known row is another cell's.
        """
        strangers = {row.get("cell_key", policy.cell_key) for row in known} - {policy.cell_key}
        if strangers:
            raise WrongTape(f"known: answers of cell {min(strangers)} on the tape of cell {policy.cell_key}")
        self._policy = policy
        self._refusal: str | None = None
        self._answers = Answers(row for row in known if row["suite"] == suite)
        self._parts = Parts(write, flush_s, flush_items)
        self._upstream = Upstream(upstream, suite, lambda why: self._watch.suspect(why))
        self._watch = EngineWatch(
            upstream, lambda: self._upstream.session, self._work_so_far, policy.max_tokens, stalled_s, poll_s
        )
        self._asking: dict[tuple[str, int], asyncio.Task[Row | HttpAnswer]] = {}
        self._asked = self._replayed = self._fresh_tokens = 0
        self._over: str | None = None

    async def __aenter__(self) -> Tape:
        app = web.Application(client_max_size=LARGEST_REQUEST_BYTES)
        app.router.add_post(r"/sample/{sample:\d+}/v1/chat/completions", self._chat)
        app.router.add_get(r"/sample/{sample:\d+}/v1/models", self._models)
        # a client that hangs up gives its turn back at once, see `_answered`
        self._server = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=LEAVE_S)
        await self._server.setup()
        await web.TCPSite(self._server, "127.0.0.1", 0).start()
        self._port = int(self._server.addresses[0][1])
        self._upstream.open()
        self._flushing = asyncio.create_task(self._parts.keep_flushing())
        self._watching = asyncio.create_task(self._watch.until_it_ends())
        self._flushing.add_done_callback(lambda _: self._end_requests("answers can't be stored"))
        self._watching.add_done_callback(lambda _: self._end_requests(self._watch.ended or "the tape ends"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Store what is left, however the work ended.

        Raises:
            Exception: whatever `write` raised, now or before.
        """
        self._end_requests("the tape ends")
        self._parts.leave()
        self._watching.cancel()
        try:
            await asyncio.gather(*self._asking.values(), return_exceptions=True)
            try:
                await self._flushing
            finally:
                await self._parts.flush()  # after a failed write, once more: the store may be back
        finally:
            await asyncio.wait({self._watching})
            await self._server.cleanup()
            await self._upstream.session.close()
        if not self._watching.cancelled():
            self._watching.result()

    def url(self, sample: int) -> str:
        """Base address for an OpenAI client that asks for answer number `sample` to each item."""
        return f"http://127.0.0.1:{self._port}/sample/{sample}/v1"

    def begin(self) -> None:
        """A framework job begins: equal requests are counted from 0 again, so what is known is replayed to it."""
        self._answers.begin()

    def recorded(self) -> list[Row]:
        """All answers known so far; fresh ones lack the columns that say who measured them."""
        return self._answers.rows()

    def answers_to(self, prompt_hash: str, sample: int) -> list[Row]:
        """Answers to a prompt, in order of occurrence."""
        return self._answers.to(prompt_hash, sample)

    @property
    def refusal(self) -> str | None:
        """The first request that will never be answered, on one line: an engine's 4xx, or refused by the policy."""
        return self._refusal or self._upstream.refusal

    @property
    def trouble(self) -> str | None:
        """The last request that was not answered, but may be if it is asked again, on one line."""
        return self._upstream.trouble

    @property
    def count(self) -> Count:
        """What was done so far."""
        answers = self._answers
        return Count(
            asked=self._asked,
            replayed=self._replayed,
            in_flight=len(self._asking),
            fresh_tokens=self._fresh_tokens,
            generated_tokens=self._watch.generated_tokens,
            answered=len(answers),
            completion_tokens=answers.completion_tokens,
            truncated=answers.truncated,
            blank=answers.blank,
        )

    async def flush(self) -> None:
        """Store all answers that are not stored yet."""
        await self._parts.flush()

    async def failed(self) -> str:
        """Wait until the work can't go on; returns why the engine can't be asked any more. To be raced with the work.

        Raises:
            Exception: whatever `write` raised: answers can't be stored.
        """
        await asyncio.wait({self._watching, self._flushing}, return_when=asyncio.FIRST_COMPLETED)
        if self._flushing.done():
            await self._flushing
        return await asyncio.shield(self._watching)

    def _work_so_far(self) -> tuple[int, int]:
        return len(self._answers), len(self._asking)

    def _end_requests(self, why: str) -> None:
        """From now on nothing is asked; what is in flight is cancelled, which frees the engine, too."""
        self._over = self._over or why
        for task in self._asking.values():
            task.cancel()

    async def _models(self, _: web.Request) -> web.Response:
        return _respond(await self._upstream.models())

    async def _chat(self, request: web.Request) -> web.Response:
        try:
            asked = self._request(await request.read(), int(request.match_info["sample"]))
        except RequestRefused as refused:
            self._refusal = self._refusal or str(refused)
            return _respond(error_answer(400, str(refused)))
        turn = self._answers.take(asked.request_hash)
        answer: Row | HttpAnswer | None = None
        try:
            answer = await self._answered(asked, turn)
        finally:
            if answer is None or isinstance(answer, HttpAnswer):
                self._answers.give_back(turn)
        return _respond(answer) if isinstance(answer, HttpAnswer) else web.json_response(answer_of(answer))

    def _request(self, body: bytes, sample: int) -> Sent:
        try:
            fields, dropped = apply_policy(self._policy, _json_object(body), sample)
            return sent(fields, dropped, sample)
        except ValueError as wrong:
            raise RequestRefused(f"the request is no JSON object in Unicode: {wrong}") from wrong

    async def _answered(self, asked: Sent, turn: Turn) -> Row | HttpAnswer:
        """The answer to this turn: a known one, or the engine's.

        A client that hangs up does not stop the engine. The answer is recorded when it comes; a client that asks again,
        because it had less patience than an answer takes, waits for the same answer and does not start a second.
        """
        known = self._answers.known(turn)
        if known is not None:
            self._replayed += 1
            return known
        if turn.key not in self._asking:
            if self._over is not None:
                return error_answer(503, self._over)
            task = self._asking[turn.key] = asyncio.create_task(self._ask(asked, turn))
            task.add_done_callback(lambda _: self._asking.pop(turn.key))
        return await asyncio.shield(self._asking[turn.key])

    async def _ask(self, asked: Sent, turn: Turn) -> Row | HttpAnswer:
        self._asked += 1
        try:
            answer = await self._upstream.ask(asked, turn.occurrence)
        except asyncio.CancelledError:
            return error_answer(503, self._over or "the tape ends")  # nobody else cancels: the client hears why
        if not isinstance(answer, HttpAnswer):
            self._answers.add(answer)
            self._parts.add(answer)
            self._fresh_tokens += answer["completion_tokens"]
        return answer


def _json_object(body: bytes) -> dict[str, Any]:
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError(f"it is a {type(value).__name__}")
    return value


def _respond(answer: HttpAnswer) -> web.Response:
    return web.Response(body=answer.document, status=answer.status, content_type="application/json")
