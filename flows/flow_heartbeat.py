"""The flow's own heartbeat: which cells' clusters it manages, so that no reaper and no second flow touches them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from warehouse.ledger import Ledger
from warehouse.owner import owner_name
from warehouse.placement import FLOW_DEADLINE_S, FlowHeartbeat, Placements
from warehouse.store import StoreAway, StoreError

BEAT_EVERY_S = 10.0
"""A twelfth of `warehouse.placement.FLOW_DEADLINE_S`: a slow store does not make a flow look dead."""


class HeldCell:
    """A cell in the hands of this flow. After its release no heartbeat follows, however late the store took one."""

    def __init__(self, ledger: Ledger, cell_key: str) -> None:
        self._placements, self._clock, self._released = Placements(ledger, cell_key), ledger.clock, False
        self._guard = threading.Lock()

    def beat(self, *, released: bool = False) -> None:
        """Store a heartbeat, the last one if it is the release."""
        with self._guard:
            if not self._released:
                self._placements.beat(FlowHeartbeat(owner=owner_name(), at=self._clock.now_iso(), released=released))
                self._released = released


class FlowHeartbeatSender:
    """Sends a heartbeat for every cell that the flow holds. Use as a context manager around a flow."""

    def __init__(self, ledger: Ledger, tell: Callable[[str], None]) -> None:
        """Start nothing yet; `tell` gets what the store failed with, each sentence once in a row."""
        self._ledger, self._tell = ledger, tell
        self._held: list[HeldCell] = []
        self._guard = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow-heartbeat", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> FlowHeartbeatSender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; a fault of ours is raised here, not one of the store: what was measured is to be published."""
        self._stopped.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def managing(self, cell_key: str) -> Iterator[None]:
        """Hold a cell; its first heartbeat is stored before the block begins."""
        cell = HeldCell(self._ledger, cell_key)
        cell.beat()
        with self._guard:
            self._held.append(cell)
        try:
            yield
        finally:
            with self._guard:
                self._held.remove(cell)
            try:
                cell.beat(released=True)
            except StoreError as error:
                self._tell(f"other flows wait {FLOW_DEADLINE_S:.0f} s for this one's cell: {error}")

    def _run(self) -> None:
        last = ""
        try:
            while not self._stopped.wait(BEAT_EVERY_S):
                with self._guard:
                    held = list(self._held)
                said = self._failed(held)
                if said and said != last:
                    self._tell(f"no heartbeat of this flow was stored: {said}")
                last = said
        except BaseException as error:
            self._failure = error

    def _failed(self, held: Sequence[HeldCell]) -> str:
        """Send a heartbeat of each, until the store is away; what it failed with last, empty if it took all."""
        said = ""
        for cell in held:
            if self._stopped.is_set():
                break
            try:
                cell.beat()
            except StoreAway as error:
                return str(error)
            except StoreError as error:
                said = str(error)
        return said
