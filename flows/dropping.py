"""Between the ways of a mirrored run: which K are not started again, decided from the store and kept there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from configs.schema import Plan, PlannedCell
from configs.visits import BACK
from warehouse.dataset.build import consolidate
from warehouse.dataset.curves import curves_of, out_after_first_visit
from warehouse.ledger.commits import Ledger, rows_in_force
from warehouse.ledger.lease import Leases
from warehouse.ledger.store import until_back
from warehouse.ledger.tables import VERDICTS
from warehouse.ledger.verdicts import Reason


def drop_what_is_out(ledger: Ledger, plan: Plan, tell: Callable[[str], None], pause: Callable[[], None]) -> None:
    """Commit the second starts of cells whose K is out as dropped, without a row: later attempts find them done.

    What the first start measured stays. A cell whose way back was measured in part is not dropped any more. One that a
    killed flow had begun to drop is dropped whole, by what was said then. `tell` gets a sentence for each; while the
    store is away, `pause` is called. Raises StoreError: what is committed can't be read.
    """

    def drop() -> None:
        asked = [planned for planned in plan.cells if planned.drop == "after_first_visit"]
        backs = [(planned, _way_back(ledger, planned)) for planned in asked]
        left = [(planned, back) for planned, back in backs if back.missing and not back.is_measured]
        if not left:
            return
        built = consolidate(ledger.store, [ledger.run_id])
        out = out_after_first_visit(curves_of(ledger.run_id, plan.cells), built.results)
        for planned, back in left:
            sentence = back.dropped_for or out.get(planned.cell.cell_key)
            if sentence is not None:
                _drop(ledger, planned.cell.cell_key, back.missing, sentence)
                tell(f"{planned.cell.label}: not visited again (drop: after_first_visit): {sentence}")

    until_back(drop, pause)


class _WayBack(NamedTuple):
    """What the store has of a cell's second start: what lacks a commit, whether some was made, why the rest was not."""

    missing: list[str]
    is_measured: bool
    dropped_for: str | None


def _way_back(ledger: Ledger, planned: PlannedCell) -> _WayBack:
    names = [each.name for start in planned.starts if start.leg == BACK for each in start.measurements]
    commits = {name: ledger.read_commit(planned.cell.cell_key, name) for name in names}
    made = [commit for commit in commits.values() if commit is not None]
    dropped = [commit for commit in made if Reason.DROPPED in commit.reasons]
    said = next((row["details"][0] for commit in dropped for row in rows_in_force(ledger, commit, VERDICTS)), None)
    return _WayBack([name for name in names if commits[name] is None], len(dropped) < len(made), said)


def _drop(ledger: Ledger, key: str, names: Sequence[str], sentence: str) -> None:
    lease = Leases(ledger, key).current()
    attempt, reasons = 1 if lease is None else lease.epoch, [Reason.DROPPED.value]
    for name in names:
        said = {
            "run_id": ledger.run_id, "cell_key": key, "step": name, "attempt": attempt,
            "measured_at": ledger.clock.now_iso(), "verdict": "ok", "reasons": reasons, "details": [sentence],
        }  # fmt: skip
        part = ledger.write_part(key, name, VERDICTS, [said], attempt)
        ledger.commit(key, ledger.new_commit(name, attempt, "flow", "ok", reasons, 0.0, [part]))
