"""Looks at the cards over a timed window, in a thread of its own: the client's loop never waits for a driver."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

from tasks.power.nvml import Cards, Reading

INTERVAL_S = 0.1
"""Pause between two looks: ten in a window of a second, for clocks, heat and memory. Energy is a counter's difference
over the window, and needs only the first and the last."""


class Sampler:
    """Looks when it is entered, every `INTERVAL_S`, and when it is left; `looks` are known afterwards.

    Each look is a reading per card. Without cards there is none.
    """

    def __init__(self, cards: Cards | None) -> None:
        self.looks: list[list[Reading]] = []
        self._cards = cards
        self._begun, self._stopping = threading.Event(), threading.Event()
        self._looking: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Sampler:
        if self._cards is not None:
            self._looking = asyncio.get_running_loop().run_in_executor(None, self._look_until_stopped, self._cards)
            try:
                await asyncio.to_thread(self._begun.wait)
            except BaseException:  # what isn't entered is never left: without this the thread would look for ever
                self._stopping.set()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if self._looking is not None:
            await self._looking

    def _look_until_stopped(self, cards: Cards) -> None:
        try:
            self.looks.append(cards.look())
        finally:
            self._begun.set()
        while not self._stopping.wait(INTERVAL_S):
            self.looks.append(cards.look())
        self.looks.append(cards.look())
