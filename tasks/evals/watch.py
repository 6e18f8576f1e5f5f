"""Whether the engine is there and makes progress: while requests are in flight, its counter of tokens has to rise.

Answers may take half an hour (32768 tokens at 20 tokens/s), so no clock runs on a single one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import aiohttp

from tasks import meters
from tasks.client import SLOWEST_TOK_S

STALLED_S = 300.0  # the engine hangs: a full context's prefill takes less on any GPU that is worth renting
POLL_S = 5.0  # pause between two looks at the engine's counters
DEAD_STATUS = 503  # what vLLM's HTTP server says on /health when the engine behind it has died
LOOK_TIMEOUT_S = 30.0  # a busy engine may take this long to show its counters


class Standstill:
    """How long nothing has moved; times are the caller's, in seconds."""

    def __init__(self, now_s: float) -> None:
        self._moved_at_s = now_s
        self._seen: tuple[float | None, int] | None = None

    def lasts_s(self, now_s: float, tokens: float | None, answers: int, in_flight: int) -> float:
        """Seconds without a new token or a new answer; 0 while nothing is asked."""
        if in_flight == 0 or (tokens, answers) != self._seen:
            self._moved_at_s = now_s
        self._seen = tokens, answers
        return now_s - self._moved_at_s


class EngineWatch:
    """One engine, looked at through its own HTTP server. `ended` says why it can't be asked any more; None: it can."""

    def __init__(
        self,
        upstream: str,
        session: Callable[[], aiohttp.ClientSession],
        work: Callable[[], tuple[int, int]],
        max_tokens: int,
        stalled_s: float,
        poll_s: float,
    ) -> None:
        """`work`: answers so far, requests in flight. `max_tokens` bounds the wait for an engine without a counter."""
        self.ended: str | None = None
        self._end = asyncio.Event()
        self._upstream, self._session, self._work = upstream, session, work
        self._max_tokens, self._stalled_s, self._poll_s = max_tokens, stalled_s, poll_s
        self._first_tokens: float | None = None
        self._tokens: float | None = None

    @property
    def generated_tokens(self) -> float | None:
        """Tokens that the engine generated since the first look; None: it does not say."""
        if self._tokens is None or self._first_tokens is None:
            return None
        return self._tokens - self._first_tokens

    async def suspect(self, why: str) -> None:
        """A request broke off: see whether the engine is still there. One that answers may be asked again."""
        try:
            status, _ = await self._get("/health")
        except TimeoutError:
            return  # there, and busy: if it hangs, the standstill shows
        except aiohttp.ClientError:
            status = DEAD_STATUS
        if status == DEAD_STATUS:
            self._ends(f"the engine is gone: {why}")

    async def until_it_ends(self) -> str:
        """Look at the engine's counters until it is gone or stands still; returns why."""
        clock = asyncio.get_running_loop().time
        standstill = Standstill(clock())
        while self.ended is None:
            counted = await self._look()
            answers, in_flight = self._work()
            # an engine without a counter may be busy with one long answer; the bound is that of the slowest there is
            patience_s = self._stalled_s + (0.0 if counted else self._max_tokens / SLOWEST_TOK_S)
            lasted_s = standstill.lasts_s(clock(), self._tokens, answers, in_flight)
            if lasted_s >= patience_s:
                self._ends(f"the engine stalled: {in_flight} requests in flight, no token in {lasted_s:.0f} s")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._end.wait()
        return self.ended

    async def _look(self) -> bool:
        """Read the counter of tokens; False if the engine has none. A page that does not come counts as no progress."""
        try:
            _, page = await self._get("/metrics")
        except TimeoutError:
            return True
        except aiohttp.ClientError as error:
            await self.suspect(f"{error!r} from /metrics")
            return True
        tokens = meters.parse(page).generation_tokens
        if tokens is None:
            return False
        self._tokens = tokens
        if self._first_tokens is None:
            self._first_tokens = tokens
        return True

    def _ends(self, why: str) -> None:
        self.ended = self.ended or why
        self._end.set()

    async def _get(self, path: str) -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=LOOK_TIMEOUT_S)
        async with self._session().get(f"{self._upstream}{path}", timeout=timeout) as response:
            return response.status, await response.text()
