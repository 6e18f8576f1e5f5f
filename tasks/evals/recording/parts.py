"""Rows out to the store as parts: in time, one part after the other, and none lost where a write fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from warehouse.parts import Row

Write = Callable[[Sequence[Row]], Awaitable[None]]


class Parts:
    """Rows that wait to be stored. `write` may be slow; meanwhile rows are added."""

    def __init__(self, write: Write, every_s: float, most_rows: int) -> None:
        self._write = write
        self._every_s = every_s
        self._most_rows = most_rows
        self._waiting: list[Row] = []
        self._one_at_a_time = asyncio.Lock()
        self._due = asyncio.Event()
        self._leaving = False

    def add(self, row: Row) -> None:
        """Store this row with the next part."""
        self._waiting.append(row)
        if len(self._waiting) >= self._most_rows:
            self._due.set()

    async def flush(self) -> None:
        """Store all rows that wait now; a row leaves the queue only when its part is written.

        Raises:
            Exception: whatever `write` raised; the rows still wait.
        """
        async with self._one_at_a_time:
            self._due.clear()
            while self._waiting:
                part = self._waiting[: self._most_rows]
                await self._write(part)
                del self._waiting[: len(part)]

    async def keep_flushing(self) -> None:
        """Flush when enough rows wait and every so often, until `leave`.

        Raises:
            Exception: whatever `write` raised.
        """
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
