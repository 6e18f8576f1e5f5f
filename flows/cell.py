"""One cell until it is measured: launch, follow, take down, and try again where that can help."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from configs.schema import PlannedCell
from flows.clusters.protocol import CellJob, Cluster, LaunchFailed
from tasks.cell import CellRejected, Exit, todo
from warehouse.clock import now_iso
from warehouse.lease import HEARTBEAT_DEADLINE_S, Attempt, Leases
from warehouse.ledger import Ledger

POLL_S = 1.0
"""Pause between two looks at a node; cheap enough not to disturb a measurement on the same machine."""

LOG_TAIL_LINES = 30
"""Lines of the node's log kept in the row of a lost attempt."""

RETRY_PAUSE_S = (1.0, 5.0)
"""Bounds of the random pause before another attempt, so that cells of a fleet do not retry in step."""


class CellOutcome(NamedTuple):
    """How a cell ended in this flow run."""

    cell_key: str
    label: str
    ended: Literal["measured", "rejected", "failed"]
    reason: str
    attempts: int


def measure_cell(
    ledger: Ledger,
    planned: PlannedCell,
    cluster_of: Callable[[], Cluster],
    max_attempts: int,
    committed: Callable[[str], None],
) -> CellOutcome:
    """Attempts until the cell is measured, rejected by its smoke step, or tried `max_attempts` times.

    Args:
        ledger: the run.
        planned: the cell and its steps.
        cluster_of: makes a place to run, one per attempt.
        max_attempts: tries in this call; attempts of earlier calls do not count.
        committed: told the name of each step when its commit appears.
    """
    key, label = planned.cell.cell_key, planned.cell.label
    leases = Leases(ledger, key)
    seen: set[str] = set()
    reason = ""
    for tried in range(1, max_attempts + 1):
        try:
            if not todo(ledger, planned):
                return CellOutcome(key, label, "measured", "", tried - 1)
        except CellRejected as error:
            return CellOutcome(key, label, "rejected", str(error), tried - 1)
        if tried > 1:
            time.sleep(random.uniform(*RETRY_PAUSE_S))
        code, reason = _attempt(ledger, planned, leases, cluster_of(), lambda: _tell(ledger, planned, seen, committed))
        _tell(ledger, planned, seen, committed)
        if code == Exit.DONE and not todo(ledger, planned):
            return CellOutcome(key, label, "measured", "", tried)
        if code == Exit.REJECTED:
            return CellOutcome(key, label, "rejected", reason, tried)
    return CellOutcome(key, label, "failed", reason, max_attempts)


def _attempt(
    ledger: Ledger, planned: PlannedCell, leases: Leases, cluster: Cluster, tell: Callable[[], None]
) -> tuple[int, str]:
    """One launch, followed to its end; the cluster is down afterwards, however this ends."""
    key = planned.cell.cell_key
    before = leases.current()
    _wait_for_owner(leases)
    try:
        cluster.launch(CellJob(ledger.store.url, ledger.run_id, key))
        code = _follow(cluster, leases, tell)
    except LaunchFailed as error:
        return Exit.FAILED, str(error)
    finally:
        cluster.down()
    tail = cluster.log_tail(LOG_TAIL_LINES)
    reason = tail[-1] if tail else f"the node runner ended with code {code}"
    lease = leases.current()
    if lease is not None and lease != before and code not in (Exit.LEASE_HELD, Exit.SUPERSEDED):
        why = f"the node runner was killed by signal {-code}" if code < 0 else reason
        leases.close(Attempt(
            attempt=lease.epoch, outcome="lost" if code < 0 else "failed", reason=why, owner=lease.owner,
            started_at=lease.granted_at, ended_at=now_iso(), log_tail="\n".join(tail),
        ))  # fmt: skip
        reason = why
    return code, reason


def _wait_for_owner(leases: Leases) -> None:
    """A live runner of an earlier flow has the cell: let it work, it is measuring what we want."""
    while (lease := leases.current()) is not None and not leases.is_free(lease):
        time.sleep(POLL_S)


def _follow(cluster: Cluster, leases: Leases, tell: Callable[[], None]) -> int:
    """Wait for the node runner's end; one that has fallen silent is given up."""
    started = time.monotonic()
    while (code := cluster.exit_code()) is None:
        tell()
        lease = leases.current()
        if time.monotonic() - started > HEARTBEAT_DEADLINE_S and lease is not None and leases.is_free(lease):
            # a killed runner frees its lease in the same moment: ask again before calling it silent
            code = cluster.exit_code()
            return Exit.FAILED if code is None else code
        time.sleep(POLL_S)
    return code


def _tell(ledger: Ledger, planned: PlannedCell, seen: set[str], committed: Callable[[str], None]) -> None:
    for spec in planned.steps:
        if spec.step not in seen and ledger.read_commit(planned.cell.cell_key, spec.step) is not None:
            seen.add(spec.step)
            committed(spec.step)
