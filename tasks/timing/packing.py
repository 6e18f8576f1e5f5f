"""What keeps a load's answers small while others are timed: streams of it are hundreds of megabytes as they came.

Nothing is decoded: that would take Python's lock from the clock. zlib doesn't hold it, so one thread of its own packs
what has ended, an answer at a time.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar


class Packs(Protocol):
    """What can be kept in less room."""

    def packed(self) -> Self:
        """The same, smaller."""
        ...


T = TypeVar("T", bound=Packs)


class Packing(Generic[T]):
    """Packs entries of a mapping while it is entered; what it didn't come to stays as it is."""

    def __init__(self, kept: MutableMapping[int, T]) -> None:
        self._kept = kept
        self._thread = ThreadPoolExecutor(1, "packing")
        self._asked: list[Future[None]] = []

    def __enter__(self) -> Packing[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        for each in self._asked:
            if each.done() and not each.cancelled():
                each.result()  # packing can't fail; if it did, it is told

    def pack(self, place: int) -> None:
        """Have one entry packed soon. Nobody else may replace it any more."""
        self._asked.append(self._thread.submit(self._pack, place))

    def _pack(self, place: int) -> None:
        self._kept[place] = self._kept[place].packed()
