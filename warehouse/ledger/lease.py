"""Who measures a cell now: leases, heartbeats and the rows that attempts leave behind.

    cells/<cell_key>/leases/<epoch>.json      Created only if absent. The highest epoch owns the cell, and is the
                                              number of the attempt.
    cells/<cell_key>/heartbeat.json           Written by the owner. Silence past the deadline frees the cell.
    cells/<cell_key>/attempts/<epoch>.json    How the attempt went. A lease whose attempt is closed is free.
    cells/<cell_key>/stop/<epoch>.json        A request to stop this attempt. Its runner sees it at its next beat.

Ages are read from the store's own clock, so that two machines never compare theirs.
"""

from __future__ import annotations

from functools import partial

from configs.secrets import redacted
from warehouse.ledger.clock import seconds_between, usd_of
from warehouse.ledger.commits import Ledger, Record
from warehouse.ledger.outcomes import AttemptOutcome, Ended
from warehouse.ledger.owner import lives_here
from warehouse.ledger.store import StoreError
from warehouse.ledger.store.protocol import numbers

HEARTBEAT_DEADLINE_S = 60.0
"""Silence after which a cell is free: no preemption may cost more than a minute of finished work."""


class Lease(Record):
    """The right to measure a cell. `epoch` is the attempt's number, from 1."""

    cell_key: str
    epoch: int
    owner: str
    granted_at: str


class Heartbeat(Record):
    """What the owner is doing: people read it, and the deadline runs from it. Seconds are those spent so far.

    `measure_s` is on all steps but smoke. `at_risk_s`: measured since rows were last stored; lost if the node goes now.
    """

    attempt: int
    phase: str
    step: str | None = None
    percent: float = 0.0
    last_line: str = ""
    tok_s: float | None = None
    load_s: float = 0.0
    smoke_s: float = 0.0
    measure_s: float = 0.0
    at_risk_s: float = 0.0
    at: str


class Attempt(Record):
    """How one try of a cell went. `lost_s` is work that was not kept; `smoke_s` and `measure_s` exclude it."""

    attempt: int
    outcome: AttemptOutcome
    reason: str = ""
    owner: str = ""
    started_at: str | None = None
    ended_at: str
    wall_s: float | None = None
    load_s: float | None = None
    smoke_s: float | None = None
    measure_s: float | None = None
    lost_s: float | None = None
    exit_code: int | None = None
    price_usd_h: float | None = None
    cost_usd: float | None = None
    log_tail: str = ""


class LeaseHeld(StoreError):
    """Another runner is measuring this cell and has given a sign of life within the deadline."""

    exit_code = Ended.LEASE_HELD.exit_code


class Leases:
    """Leases, heartbeats and attempts of one cell of one run."""

    def __init__(self, ledger: Ledger, cell_key: str, deadline_s: float = HEARTBEAT_DEADLINE_S) -> None:
        self.store = ledger.store
        self.clock = ledger.clock
        self.cell_key = cell_key
        self.root = ledger.cell_root(cell_key)
        self.deadline_s = deadline_s

    def current(self) -> Lease | None:
        """The lease with the highest epoch; None: the cell was never leased."""
        epochs = numbers(self.store.list(f"{self.root}/leases"), partial(self._key, kind="leases"))
        return Lease.read(self.store, self._key(epochs[-1], "leases")) if epochs else None

    def acquire(self, owner: str) -> Lease:
        """Become the owner of the cell; the attempt of an owner that fell silent is closed as lost.

        LeaseHeld: a live owner has it, or another runner was faster.
        """
        last = self.current()
        if last is not None and not self.is_free(last):
            raise LeaseHeld(
                f"cell {self.cell_key} is being measured by {last.owner} (attempt {last.epoch}): wait for it, "
                f"or for {self.deadline_s:.0f} s of silence"
            )
        if last is not None:
            reason, now = "its owner fell silent", self.clock.now_iso()
            self.close(gone_attempt(last, self.heartbeat(), Ended.SILENT, reason, now, None))
        lease = Lease(
            cell_key=self.cell_key, epoch=(last.epoch if last else 0) + 1, owner=owner, granted_at=self.clock.now_iso()
        )
        if not self.store.put_new(self._key(lease.epoch, "leases"), lease.model_dump_json().encode()):
            raise LeaseHeld(f"cell {self.cell_key} was taken by somebody else just now")
        return lease

    def is_free(self, lease: Lease) -> bool:
        """Whether the lease's attempt is closed, its process is known to be dead, or it has been silent too long."""
        if self.store.get(self._key(lease.epoch, "attempts")) is not None or lives_here(lease.owner) is False:
            return True
        age_s = self.silence_s(lease)
        return age_s is None or age_s > self.deadline_s

    def still_mine(self, lease: Lease) -> bool:
        """Whether no other runner has taken the cell over."""
        return self.store.get(self._key(lease.epoch + 1, "leases")) is None

    def ask_to_stop(self, lease: Lease, why: str) -> None:
        """Ask the lease's runner to flush and end; it sees this at its next beat."""
        self.store.put(self._key(lease.epoch, "stop"), why.encode())

    def stop_asked(self, lease: Lease) -> str | None:
        """Why the lease's runner should stop; None: no request to stop was made."""
        why = self.store.get(self._key(lease.epoch, "stop"))
        return None if why is None else why.decode()

    def silence_s(self, lease: Lease) -> float | None:
        """Seconds since the runner's heartbeat, else its lease, by the store's clock; None: the store has neither."""
        # one beat of a superseded runner may come late: that costs seconds, reading whose each is a request per look
        keys = (f"{self.root}/heartbeat.json", self._key(lease.epoch, "leases"))
        silences_s = (self.store.silence_s(key) for key in keys)
        return min((silence_s for silence_s in silences_s if silence_s is not None), default=None)

    def beat(self, heartbeat: Heartbeat) -> None:
        """Replace the cell's heartbeat; the silence starts anew."""
        self.store.put(f"{self.root}/heartbeat.json", redacted(heartbeat.model_dump_json()).encode())

    def heartbeat(self) -> Heartbeat | None:
        """The cell's last heartbeat, whichever attempt sent it; None: there never was one."""
        return Heartbeat.read(self.store, f"{self.root}/heartbeat.json")

    def close(self, attempt: Attempt) -> bool:
        """Record how an attempt went; the first record counts. False: it was closed before."""
        if attempt.wall_s is None and attempt.started_at is not None:
            wall_s = max(_counted_s(attempt), seconds_between(attempt.started_at, attempt.ended_at))
            cost_usd = usd_of(attempt.price_usd_h, wall_s)
            attempt = attempt.model_copy(update={"wall_s": wall_s, "cost_usd": cost_usd})
        return self.store.put_new(
            self._key(attempt.attempt, "attempts"), redacted(attempt.model_dump_json(indent=1)).encode()
        )

    def closed(self, epoch: int) -> Attempt | None:
        """How one attempt went; None while it runs."""
        return Attempt.read(self.store, self._key(epoch, "attempts"))

    def attempts(self) -> list[Attempt]:
        """Closed attempts, oldest first."""
        epochs = numbers(self.store.list(f"{self.root}/attempts"), partial(self._key, kind="attempts"))
        return [attempt for attempt in map(self.closed, epochs) if attempt is not None]

    def _key(self, epoch: int, kind: str) -> str:
        return f"{self.root}/{kind}/{epoch:06d}.json"


def _counted_s(attempt: Attempt) -> float:
    """Seconds that its runner counted itself: no attempt is shorter, whichever machines' clocks its two moments are."""
    return sum(seconds or 0.0 for seconds in (attempt.load_s, attempt.smoke_s, attempt.measure_s, attempt.lost_s))


def gone_attempt(
    lease: Lease,
    beat: Heartbeat | None,
    how: Ended,
    reason: str,
    ended_at: str,
    price_usd_h: float | None,
    log_tail: str = "",
) -> Attempt:
    """The row of an attempt whose runner couldn't write it itself, filled in from its last heartbeat."""
    heard = beat if beat is not None and beat.attempt == lease.epoch else Heartbeat(attempt=0, phase="", at="")
    smoke_s, measure_s = kept_s(heard.smoke_s, heard.measure_s, heard.at_risk_s)
    outcome = how.row.outcome
    assert outcome is not None, "nobody writes a row for this kind of ending"
    return Attempt(
        attempt=lease.epoch,
        outcome=outcome,
        reason=reason,
        owner=lease.owner,
        started_at=lease.granted_at,
        ended_at=ended_at,
        load_s=heard.load_s,
        smoke_s=smoke_s,
        measure_s=measure_s,
        lost_s=heard.at_risk_s,
        price_usd_h=price_usd_h,
        log_tail=log_tail,
    )


def kept_s(smoke_s: float, measure_s: float, lost_s: float) -> tuple[float, float]:
    """Seconds of smoke and of the other steps, less those whose work was not kept; the later steps lose first."""
    from_measure_s = min(measure_s, lost_s)
    return max(0.0, smoke_s - (lost_s - from_measure_s)), measure_s - from_measure_s
