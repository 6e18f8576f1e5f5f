"""Shows that the runner lives while it measures, and notices when another runner has taken the cell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tasks.context import Progress
from warehouse.ledger.lease import Heartbeat, Lease, Leases
from warehouse.ledger.store import StoreAway

INTERVAL_S = 5.0
"""From one heartbeat to the next; a twelfth of the deadline, so a slow store does not lose the cell."""


class HeartbeatSender:
    """The runner's state as others see it, written every `interval_s` seconds and at every change of phase."""

    def __init__(self, leases: Leases, lease: Lease, interval_s: float = INTERVAL_S) -> None:
        self._leases = leases
        self._lease = lease
        self._interval_s = interval_s
        self._phase = "starting"
        self._step: str | None = None
        self._progress = Progress(0, "")
        self._changed = asyncio.Event()
        self._spent_s = dict.fromkeys(("load", "smoke", "measure"), 0.0)
        self._since = time.monotonic()
        self._kept_at = time.monotonic()
        self._cut_at: float | None = None
        """When measuring was cut short; None: it was not."""

    def phase(self, phase: str, step: str | None = None) -> None:
        """Enter a phase: starting, waiting, engine, measuring, stopping. Also printed, for the node's log."""
        self._spent_s = self.spent_s()
        self._since = time.monotonic()
        self._cut_at = self._since if (self._phase, phase) == ("measuring", "stopping") else None
        if phase == "measuring":
            self._kept_at = self._since
        self._phase, self._step = phase, step
        self._progress = Progress(0, "")
        print(f"[{phase}] {step or ''}".rstrip(), flush=True)
        self._changed.set()

    def spent_s(self) -> dict[str, float]:
        """Seconds spent so far, named as in the bill: `load` (engine start), `smoke`, `measure` (all other steps)."""
        spent, bill = dict(self._spent_s), {"engine": "load", "measuring": "measure"}.get(self._phase)
        if bill is not None:
            bill = "smoke" if (self._phase, self._step) == ("measuring", "smoke") else bill
            spent[bill] += time.monotonic() - self._since
        return spent

    def kept(self, until: float) -> None:
        """Rows were stored: what was measured until then (`time.monotonic`) survives this node."""
        self._kept_at = max(self._kept_at, until)

    def at_risk_s(self) -> float:
        """Seconds of measuring since rows were last stored; of one that was cut short, until then."""
        until = time.monotonic() if self._phase == "measuring" else self._cut_at
        return 0.0 if until is None else max(0.0, until - self._kept_at)

    def tell(self, progress: Progress) -> None:
        """Note progress; it goes out with the next heartbeat."""
        self._progress = progress

    def line(self, text: str) -> None:
        """Note a line for people; percentage and rate stay as they are."""
        self._progress = self._progress._replace(line=text)

    async def run(self, on_lost: Callable[[], None], on_stop: Callable[[], None]) -> None:
        """Send heartbeats until the lease is lost (calls `on_lost`) or a stop is asked for (calls `on_stop`).

        No error ends them. A store that was away tells on its return whether the lease is lost. One that takes no
        heartbeats takes no results either, and that ends the runner.
        """
        told = ""
        while True:
            self._changed.clear()
            began = time.monotonic()
            try:
                if not await asyncio.to_thread(self._leases.still_mine, self._lease):
                    on_lost()
                    return
                if await asyncio.to_thread(self._leases.stop_asked, self._lease) is not None:
                    on_stop()
                    return
                await asyncio.to_thread(self._leases.beat, self._now())
                told = ""
            except StoreAway:
                told = ""
            except Exception as error:
                if told != str(error):
                    told = str(error)
                    print(f"no heartbeat was stored: {told}", flush=True)
            # A lost machine's bill stands at its last heartbeat. So the store's own time is taken off the pause, unless
            # that is so long that the next beat would come at once.
            pause_s = self._interval_s - min(time.monotonic() - began, self._interval_s / 2)
            try:
                await asyncio.wait_for(self._changed.wait(), pause_s)
            except TimeoutError:
                continue

    def _now(self) -> Heartbeat:
        spent = self.spent_s()
        return Heartbeat(
            attempt=self._lease.epoch,
            phase=self._phase,
            step=self._step,
            percent=self._progress.percent,
            last_line=self._progress.line,
            tok_s=self._progress.tok_s,
            load_s=spent["load"],
            smoke_s=spent["smoke"],
            measure_s=spent["measure"],
            at_risk_s=self.at_risk_s(),
            at=self._leases.clock.now_iso(),
        )
