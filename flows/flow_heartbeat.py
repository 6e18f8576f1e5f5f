"""The flow's own heartbeat: which cells' clusters it manages, so that no reaper and no second flow touches them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from warehouse.ledger import Ledger
from warehouse.owner import owner_name
from warehouse.placement import FlowHeartbeat, Placements

BEAT_EVERY_S = 10.0
"""A twelfth of `warehouse.placement.FLOW_DEADLINE_S`: a slow store does not make a flow look dead."""


class FlowHeartbeatSender:
    """Sends a heartbeat for every cell that the flow holds. Use as a context manager around a flow."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._cells: dict[str, Placements] = {}
        self._guard = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow-heartbeat", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> FlowHeartbeatSender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; what the store failed with meanwhile is raised here."""
        self._stopped.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def managing(self, cell_key: str) -> Iterator[None]:
        """Hold a cell; its first heartbeat is stored before the block begins."""
        placements = Placements(self._ledger, cell_key)
        placements.beat(self._beat())
        with self._guard:
            self._cells[cell_key] = placements
        try:
            yield
        finally:
            with self._guard:
                del self._cells[cell_key]
            placements.beat(self._beat(released=True))

    def _run(self) -> None:
        try:
            while not self._stopped.wait(BEAT_EVERY_S):
                with self._guard:
                    held = list(self._cells.values())
                for placements in held:
                    placements.beat(self._beat())
        except BaseException as error:
            self._failure = error

    def _beat(self, *, released: bool = False) -> FlowHeartbeat:
        return FlowHeartbeat(owner=owner_name(), at=self._ledger.clock.now_iso(), released=released)
