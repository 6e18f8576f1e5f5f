"""Between the ways of a mirrored run: which K are not visited again, decided from the store and kept there."""

from __future__ import annotations

from collections.abc import Callable

from configs.schema import Plan, PlannedCell
from warehouse.build import consolidate
from warehouse.lease import Leases
from warehouse.ledger import Ledger
from warehouse.speculation.curves import curves_of
from warehouse.speculation.out import out_after_first_visit
from warehouse.tables import VERDICTS
from warehouse.verdicts import Reason

OWNER = "flow"
"""Who commits a visit that nobody makes."""


def drop_what_is_out(ledger: Ledger, plan: Plan, tell: Callable[[str], None]) -> None:
    """Commit the second visits of cells whose K is out as dropped, without a row: whoever goes on finds them done.

    What the first visit measured stays as it is. A cell whose way back has begun is not dropped any more.

    Args:
        ledger: the run, measured on the way forwards.
        plan: cells that may be dropped say so.
        tell: gets a sentence for each that is.

    Raises:
        StoreError: what is committed can't be read.
    """
    asked = [planned for planned in plan.cells if planned.drop == "after_first_visit"]
    left = [planned for planned in asked if not _has_begun(ledger, planned)]
    if not left:
        return
    built = consolidate(ledger.store, [ledger.run_id])
    out = out_after_first_visit(curves_of(ledger.run_id, plan.cells), built.results)
    for planned in left:
        sentence = out.get(planned.cell.cell_key)
        if sentence is not None:
            _drop(ledger, planned, sentence)
            tell(f"{planned.cell.label}: not visited again (drop: after_first_visit): {sentence}")


def _has_begun(ledger: Ledger, planned: PlannedCell) -> bool:
    return any(ledger.read_commit(planned.cell.cell_key, name) is not None for name in _way_back(planned))


def _way_back(planned: PlannedCell) -> list[str]:
    return [each.name for start in planned.starts if start.leg == 2 for each in start.measurements]


def _drop(ledger: Ledger, planned: PlannedCell, sentence: str) -> None:
    key = planned.cell.cell_key
    lease = Leases(ledger, key).current()
    attempt = lease.epoch if lease is not None else 1
    reasons = [Reason.DROPPED.value]
    for name in _way_back(planned):
        said = {
            "run_id": ledger.run_id, "cell_key": key, "step": name, "attempt": attempt,
            "measured_at": ledger.clock.now_iso(), "verdict": "ok", "reasons": reasons, "details": [sentence],
        }  # fmt: skip
        part = ledger.write_part(key, name, VERDICTS, [said], attempt)
        ledger.commit(key, ledger.new_commit(name, attempt, OWNER, "ok", reasons, 0.0, [part]))
