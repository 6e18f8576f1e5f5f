"""The flow's own heartbeat: which cells' clusters it manages, so that no reaper and no second flow touches them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from configs.errors import SpecsweepError
from flows.telling import once_in_a_row
from warehouse.ledger.claims import FLOW_DEADLINE_S, Claims, ManagedElsewhere, beat
from warehouse.ledger.clock import iso_of
from warehouse.ledger.commits import Ledger
from warehouse.ledger.owner import owner_name
from warehouse.ledger.store import StoreAway, StoreError

BEAT_EVERY_S = 30.0  # a quarter of `FLOW_DEADLINE_S`: a slow store does not make a flow look dead


class CellTaken(SpecsweepError):
    """Another flow has taken the cell over while this one was not heard of; its clusters are that flow's now."""


class HeldCell:
    """A cell in the hands of this flow, which asks whether it still is after a silence, say of a laptop that slept."""

    def __init__(self, ledger: Ledger, cell_key: str, pulse: str) -> None:
        """Take the cell; `pulse` names the flow's heartbeat, which speaks for it."""
        self._claims, self._clock = Claims(ledger, cell_key), ledger.clock
        self.cell_key, self._guard = cell_key, threading.Lock()
        self._is_over = False
        self._heard_s = self._clock.now_s()
        self._claim = self._claims.take(owner_name(), pulse)

    def release(self) -> None:
        """Let go of the cell."""
        with self._guard:
            if not self._is_over and self._is_mine():
                self._claims.release(self._claim)
                self._is_over = True

    def forget(self) -> None:
        """Release nothing any more: the flow takes the cell again, by a claim that this one would free, too."""
        with self._guard:
            self._is_over = True

    def heard(self, at_s: float) -> None:
        """The flow's heartbeat was stored at this moment, by the flow's clock."""
        with self._guard:
            if not self._is_over and self._is_mine():
                self._heard_s = max(self._heard_s, at_s)

    def require(self) -> None:
        """Go on only while the cell is ours. Raises CellTaken: it is another flow's."""
        with self._guard:
            if not self._is_mine():
                raise CellTaken(f"cell {self.cell_key}: another flow has taken it over")

    def _is_mine(self) -> bool:
        # nobody takes it over sooner, so that a flow that beats in time need not ask
        now_s = self._clock.now_s()
        if now_s - self._heard_s < FLOW_DEADLINE_S / 2:
            return True
        try:
            self._claim = self._claims.renew(self._claim, iso_of(self._heard_s))
        except ManagedElsewhere:
            return False
        self._heard_s = now_s
        return True


class HeldCells:
    """All cells of one flow, and its heartbeat for them. Use as a context manager around a flow: it sends that."""

    def __init__(
        self, ledger: Ledger, tell: Callable[[str], None], attend: Callable[[str], None] = lambda _: None
    ) -> None:
        """Start nothing yet; `tell` gets what a heartbeat failed with, each sentence once in a row.

        `attend` gets a cell's key whenever its own thread asks for the cell: one that hangs does not.
        """
        self._ledger, self._tell, self._attend = ledger, tell, attend
        self._pulse = uuid.uuid4().hex[:16]
        self._held: list[HeldCell] = []
        self._left: list[HeldCell] = []
        """Cells whose release was not stored: the heartbeat would keep them from everybody else."""
        self._guard, self._stopped = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow-heartbeat", daemon=True)

    def __enter__(self) -> HeldCells:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @contextmanager
    def managing(self, cell_key: str) -> Iterator[None]:
        """Hold a cell; that is stored before the block begins. Raises ManagedElsewhere: another flow has it."""
        with self._guard:
            again = [cell for cell in self._left if cell.cell_key == cell_key]
            self._left = [cell for cell in self._left if cell not in again]
        for cell in again:
            cell.forget()
        cell = HeldCell(self._ledger, cell_key, self._pulse)
        with self._guard:
            self._held.append(cell)
        try:
            yield
        finally:
            with self._guard:
                self._held.remove(cell)
            try:
                cell.release()
            except StoreError as error:
                with self._guard:
                    self._left.append(cell)
                self._tell(f"other flows wait {FLOW_DEADLINE_S:.0f} s for this one's cell: {error}")

    def require(self, cell_key: str) -> None:
        """Go on with a cell only while it is ours (see `HeldCell.require`)."""
        self._attend(cell_key)
        with self._guard:
            held = [cell for cell in self._held if cell.cell_key == cell_key]
        for cell in held:
            cell.require()

    def beat(self) -> None:
        """Store one heartbeat for all cells, nothing if there are none, and the releases that are left."""
        with self._guard:
            held, left = list(self._held), list(self._left)
        if held:
            now_s = self._ledger.clock.now_s()
            beat(self._ledger, self._pulse)
            for cell in held:
                cell.heard(now_s)
        for cell in left:
            cell.release()
            with self._guard:
                self._left = [other for other in self._left if other is not cell]

    def _run(self) -> None:
        """Whatever a heartbeat fails with, the next one is sent: a flow that falls silent loses its cells."""
        told = once_in_a_row(self._tell)
        while not self._stopped.wait(BEAT_EVERY_S):
            try:
                self.beat()
                told("")
            except StoreAway as error:
                told(f"no heartbeat of this flow was stored: {error}")
            except Exception as error:
                told(f"no heartbeat of this flow was stored: {type(error).__name__}: {error}")
