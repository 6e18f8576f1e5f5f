"""The response log: a recording reverse proxy between any OpenAI client and the engine, in the node runner's own loop.

Every answer that crosses it is kept. A framework starts again when its machine was taken away or when more items are
wanted. It is then answered from the response log until the first request that nobody has answered yet.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import aiohttp
from aiohttp import web

from configs.errors import SpecsweepError
from tasks.evals.exchange import (
    Answers,
    AnswerUnusable,
    Count,
    Policy,
    RequestRefused,
    Sent,
    Turn,
    answer_of,
    apply,
    row_of,
    sent,
)
from tasks.evals.watch import POLL_S, STALLED_S, EngineWatch
from warehouse.ledger.tables import Row

FLUSH_S = 60.0  # the longest that an answer waits to be stored: what a preemption may cost
FLUSH_ITEMS = 64  # answers stored together
LARGEST_REQUEST_BYTES = 64 * 2**20  # a prompt of a million tokens has some 10 MB as JSON
LEAVE_S = 1.0  # how long clients have to take their last answers when the response log ends

IDLE_S = 2.0
"""Connections idle for longer are closed on our side. After 5 s vLLM would close them, and what is sent at that moment
is lost. To use them again at all halves the response log's own time."""

IN_ONE_PIECE_BYTES = 2**20  # longer requests are read by a thread, which costs 1 ms and doesn't block the loop
_JSON = {"content-type": "application/json"}
Write = Callable[[Sequence[Row]], Awaitable[None]]  # stores rows of `exchanges`; may be slow


class WrongResponseLog(SpecsweepError):
    """Answers of another cell were handed to a response log: they would be replayed as this cell's."""


class ResponseLog:
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
        """A response log that does not run yet, before the engine at `upstream` (without /v1).

        `known` are rows of `exchanges` of this cell's earlier attempts; those of other suites than `suite` are left
        alone. Raises WrongResponseLog: a known row is another cell's.
        """
        strangers = {row.get("cell_key", policy.cell_key) for row in known} - {policy.cell_key}
        if strangers:
            raise WrongResponseLog(f"known: answers of cell {min(strangers)} in the log of cell {policy.cell_key}")
        self.refusal: str | None = None  # the first request that will never be answered: a 4xx, or the policy's
        self.trouble: str | None = None  # the last request that was not answered, but may be if it is asked again
        self._policy, self._url, self._suite = policy, upstream, suite
        self.answers = Answers(row for row in known if row["suite"] == suite)
        self._parts = Parts(write, flush_s, flush_items)
        self._watch = EngineWatch(
            upstream,
            lambda: self._session,
            lambda: (len(self.answers), len(self._asking)),
            int(policy.set["max_tokens"]),
            stalled_s,
            poll_s,
        )
        self._asking: dict[tuple[str, int], asyncio.Task[Row | HttpAnswer]] = {}
        self._asked = self._replayed = self._fresh_tokens = 0
        self._over: str | None = None

    async def __aenter__(self) -> ResponseLog:
        app = web.Application(client_max_size=LARGEST_REQUEST_BYTES)
        app.router.add_post(r"/sample/{sample:\d+}/v1/chat/completions", self._chat)
        app.router.add_get(r"/sample/{sample:\d+}/v1/models", self._models)
        # a client that hangs up gives its turn back at once, see `_answered`
        self._server = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=LEAVE_S)
        await self._server.setup()
        await web.TCPSite(self._server, "127.0.0.1", 0).start()
        self._port = int(self._server.addresses[0][1])
        # an answer may take as long as it takes; see `IDLE_S`
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        self._flushing = asyncio.create_task(self._parts.keep_flushing())
        self._watching = asyncio.create_task(self._watch.until_it_ends())
        self._flushing.add_done_callback(lambda _: self._end_requests("answers can't be stored"))
        self._watching.add_done_callback(lambda _: self._end_requests(self._watch.ended or "the response log ends"))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Store what is left, however the work ended. Raises Exception: whatever `write` raised, now or before."""
        self._end_requests("the response log ends")
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
            await self._session.close()
        if not self._watching.cancelled():
            self._watching.result()

    def url(self, sample: int) -> str:
        """Base address for an OpenAI client that asks for answer number `sample` to each item."""
        return f"http://127.0.0.1:{self._port}/sample/{sample}/v1"

    @property
    def count(self) -> Count:
        """What was done so far."""
        answers = self.answers
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

    async def failed(self) -> str:
        """Wait until the work can't go on, to be raced with it; returns why. Raises whatever `write` raised."""
        await asyncio.wait({self._watching, self._flushing}, return_when=asyncio.FIRST_COMPLETED)
        if self._flushing.done():
            await self._flushing
        return await asyncio.shield(self._watching)

    def _end_requests(self, why: str) -> None:
        """From now on nothing is asked; what is in flight is cancelled, which frees the engine, too."""
        self._over = self._over or why
        for task in self._asking.values():
            task.cancel()

    async def _models(self, _: web.Request) -> web.Response:
        """The engine's list of models, as it is."""
        try:
            async with self._session.get(f"{self._url}/v1/models") as response:
                return _respond(HttpAnswer(response.status, await response.read()))
        except aiohttp.ClientError as broken:
            return _respond(error_answer(503, f"no answer from the engine: {broken!r}"))

    async def _chat(self, request: web.Request) -> web.Response:
        try:
            asked = self._request(await request.read(), int(request.match_info["sample"]))
        except RequestRefused as refused:
            self.refusal = self.refusal or str(refused)
            return _respond(error_answer(400, str(refused)))
        turn = self.answers.take(asked.request_hash)
        answer: Row | HttpAnswer | None = None
        try:
            answer = await self._answered(asked, turn)
        finally:
            if answer is None or isinstance(answer, HttpAnswer):
                self.answers.give_back(turn)
        return _respond(answer) if isinstance(answer, HttpAnswer) else web.json_response(answer_of(answer))

    def _request(self, body: bytes, sample: int) -> Sent:
        try:
            said = json.loads(body)
            if not isinstance(said, dict):
                raise ValueError(f"it is a {type(said).__name__}")
            return sent(*apply(self._policy, said, sample), sample)
        except ValueError as wrong:
            raise RequestRefused(f"the request is no JSON object in Unicode: {wrong}") from wrong

    async def _answered(self, asked: Sent, turn: Turn) -> Row | HttpAnswer:
        """The answer to this turn: a known one, or the engine's, which is recorded even if the client hangs up.

        A client that asks again, because its patience was over, waits for the same answer: no second is begun.
        """
        known = self.answers.known(turn)
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
            answer = await self._engine_says(asked, turn.occurrence)
        except asyncio.CancelledError:
            return error_answer(503, self._over or "the response log ends")  # nobody else cancels: the client hears why
        if not isinstance(answer, HttpAnswer):
            self.answers.add(answer)
            self._parts.add(answer)
            self._fresh_tokens += answer["completion_tokens"]
        return answer

    async def _engine_says(self, asked: Sent, occurrence: int) -> Row | HttpAnswer:
        """The answer as a row, if it is a whole one. An error of the request's own is handed on as it is."""
        clock = asyncio.get_running_loop().time
        started, document = clock(), asked.document
        data = document if len(document) < IN_ONE_PIECE_BYTES else io.BytesIO(document)
        try:
            async with self._session.post(f"{self._url}/v1/chat/completions", data=data, headers=_JSON) as response:
                status, document = response.status, await response.read()
            if status == 200:
                return row_of(self._suite, asked, occurrence, json.loads(document), clock() - started)
        except aiohttp.ClientError as broken:
            await self._watch.suspect(repr(broken))
            return self._troubled(f"no answer from the engine: {broken!r}")
        except (AnswerUnusable, ValueError) as unusable:
            return self._troubled(str(unusable))
        said = f"the engine answered HTTP {status}: {' '.join(document.decode(errors='replace').split())[:300]}"
        if 400 <= status < 500:  # it would say so again
            self.refusal = self.refusal or said
            return HttpAnswer(status, document)
        await self._watch.suspect(said)
        return self._troubled(said)

    def _troubled(self, why: str) -> HttpAnswer:
        self.trouble = why
        return error_answer(503, why)


def _respond(answer: HttpAnswer) -> web.Response:
    return web.Response(body=answer.document, status=answer.status, content_type="application/json")


class Parts:
    """Rows that wait to be stored. `write` may be slow; meanwhile rows are added."""

    def __init__(self, write: Write, every_s: float, most_rows: int) -> None:
        self._write = write
        self._every_s = every_s
        self._most_rows = most_rows
        self._waiting: list[Row] = []
        self._due = asyncio.Event()
        self._leaving = False

    def add(self, row: Row) -> None:
        """Store this row with the next part."""
        self._waiting.append(row)
        if len(self._waiting) >= self._most_rows:
            self._due.set()

    async def flush(self) -> None:
        """Store all rows that wait; each leaves the queue when its part is written. Raises whatever `write` raises."""
        self._due.clear()
        while self._waiting:
            part = self._waiting[: self._most_rows]
            await self._write(part)
            del self._waiting[: len(part)]

    async def keep_flushing(self) -> None:
        """Flush when enough rows wait and every so often, until `leave`. Raises Exception: whatever `write` raised."""
        while not self._leaving:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._due.wait()
            except TimeoutError:
                pass  # time for what waits, however little
            await self.flush()

    def leave(self) -> None:
        """End `keep_flushing`, after the part that it is writing: cancelling it could lose that part's name."""
        self._leaving = True
        self._due.set()


class HttpAnswer(NamedTuple):
    """A JSON document for the client that is no recorded answer: an error in OpenAI's shape, or a list of models."""

    status: int
    document: bytes


def error_answer(status: int, message: str) -> HttpAnswer:
    """An error of the response log's own. 503 is one that OpenAI's clients ask again after."""
    kind = "BadRequestError" if status == 400 else "ServiceUnavailableError"
    fields = {"message": f"specsweep's response log: {message}", "type": kind, "param": None, "code": status}
    return HttpAnswer(status, json.dumps({"error": fields}).encode())
