"""One request to the engine: its answer as a row, or what the client gets instead."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import aiohttp

from tasks.evals.recording.exchange import AnswerUnusable, Sent, row_of
from warehouse.parts import Row

_JSON = {"content-type": "application/json"}

IDLE_S = 2.0
"""Connections idle for longer are closed on our side: vLLM closes them after 5 s, and what is sent at that moment is
lost. To use them again at all halves the tape's own time."""

IN_ONE_PIECE_BYTES = 2**20
"""Longer requests are read by a thread, piece by piece, so that they don't hold the loop up; it costs a millisecond."""


class HttpAnswer(NamedTuple):
    """A JSON document for the client that is no recorded answer: an error in OpenAI's shape, or a list of models."""

    status: int
    document: bytes


def error_answer(status: int, message: str) -> HttpAnswer:
    """An error of the tape's own. 503 is one that OpenAI's clients ask again after."""
    kind = "BadRequestError" if status == 400 else "ServiceUnavailableError"
    fields = {"message": f"specsweep's tape: {message}", "type": kind, "param": None, "code": status}
    return HttpAnswer(status, json.dumps({"error": fields}).encode())


class Upstream:
    """The engine as requests see it.

    `refusal` is the first request that it will never answer, `trouble` the last that it may answer another time; each
    on one line.
    """

    def __init__(self, url: str, suite: str, suspect: Callable[[str], Awaitable[None]]) -> None:
        self.session: aiohttp.ClientSession
        self.refusal: str | None = None
        self.trouble: str | None = None
        self._url, self._suite, self._suspect = url, suite, suspect

    def open(self) -> None:
        """Make the HTTP session, in which an answer may take as long as it takes.

        A connection that nobody used for a while is not used again, see `IDLE_S`; a request that meets its end all the
        same is one that is asked again.
        """
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S)
        self.session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))

    async def ask(self, asked: Sent, occurrence: int) -> Row | HttpAnswer:
        """The answer as a row, if it is a whole one. An error of the request's own is handed on as it is."""
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            async with self.session.post(
                f"{self._url}/v1/chat/completions", data=_payload(asked.document), headers=_JSON
            ) as response:
                status, document = response.status, await response.read()
            if status == 200:
                return row_of(self._suite, asked, occurrence, json.loads(document), clock() - started)
        except aiohttp.ClientError as broken:
            await self._suspect(repr(broken))
            return self._troubled(f"no answer from the engine: {broken!r}")
        except (AnswerUnusable, ValueError) as unusable:
            return self._troubled(str(unusable))
        said = f"the engine answered HTTP {status}: {' '.join(document.decode(errors='replace').split())[:300]}"
        if 400 <= status < 500:  # it would say so again
            self.refusal = self.refusal or said
            return HttpAnswer(status, document)
        await self._suspect(said)
        return self._troubled(said)

    async def models(self) -> HttpAnswer:
        """The engine's list of models, as it is."""
        try:
            async with self.session.get(f"{self._url}/v1/models") as response:
                return HttpAnswer(response.status, await response.read())
        except aiohttp.ClientError as broken:
            return error_answer(503, f"no answer from the engine: {broken!r}")

    def _troubled(self, why: str) -> HttpAnswer:
        self.trouble = why
        return error_answer(503, why)


def _payload(body: bytes) -> bytes | io.BytesIO:
    return body if len(body) < IN_ONE_PIECE_BYTES else io.BytesIO(body)
