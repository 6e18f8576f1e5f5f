"""Where a run stands, read off the ledger: the source of `sweep status` and of the live view."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal, NamedTuple

from configs.schema import Plan
from configs.step import MeasuredStep
from warehouse.bill.spending import Spending, Spent
from warehouse.lease import Heartbeat, Leases
from warehouse.ledger import Ledger
from warehouse.verdicts import VERDICTS, Verdict

StepState = Verdict | Literal["running", "waiting", "skipped", "not built"]


class CellProgress(NamedTuple):
    """One cell: the state of each step, its last heartbeat while an owner lives, and how its last attempt failed."""

    label: str
    cell_key: str
    steps: Mapping[str, StepState]
    heartbeat: Heartbeat | None
    attempts: int
    failure: str = ""

    def document(self) -> dict[str, object]:
        """The cell for `--json`."""
        doing = None if self.heartbeat is None else self.heartbeat.model_dump(mode="json")
        return {"label": self.label, "cell_key": self.cell_key, "steps": dict(self.steps), "heartbeat": doing}


class RunProgress(NamedTuple):
    """One run; `spent` is what its machines have cost so far, None if nothing was rented."""

    run_id: str
    cells: tuple[CellProgress, ...]
    spent: Spent | None = None

    @property
    def measured(self) -> int:
        """Steps with a commit."""
        return sum(state in VERDICTS for cell in self.cells for state in cell.steps.values())

    @property
    def total(self) -> int:
        """Steps that are measured or will be."""
        return sum(state not in ("not built", "skipped") for cell in self.cells for state in cell.steps.values())

    @property
    def complete(self) -> bool:
        """Whether nothing is left to measure."""
        return self.measured == self.total


class ProgressReader:
    """Reads a run as often as asked; commits never change and are read only once."""

    def __init__(self, ledger: Ledger, plan: Plan) -> None:
        self._ledger = ledger
        self._plan = plan
        self._verdicts: dict[tuple[str, str], StepState] = {}
        self._spending = Spending(ledger.store, time.time)

    def read(self) -> RunProgress:
        """Where the run stands now."""
        committed = self._ledger.committed_steps()
        cells = []
        for planned in self._plan.cells:
            key = planned.cell.cell_key
            states: dict[str, StepState] = {}
            gates: list[StepState] = []
            for spec in planned.steps:
                if not isinstance(spec, MeasuredStep):
                    states[spec.step] = "not built"
                elif spec.step in committed.get(key, ()):
                    states[spec.step] = self._verdict(key, spec.step)
                else:
                    states[spec.step] = "skipped" if "rejected" in gates else "waiting"
                if isinstance(spec, MeasuredStep) and spec.is_gate:
                    gates.append(states[spec.step])
            cells.append(self._with_owner(planned.cell.label, key, states))
        spent = self._spending.of_run(self._ledger.run_id)
        return RunProgress(self._ledger.run_id, tuple(cells), spent if spent.by_cell else None)

    def _with_owner(self, label: str, key: str, states: dict[str, StepState]) -> CellProgress:
        if not any(state == "waiting" for state in states.values()):
            return CellProgress(label, key, states, None, 0)
        leases = Leases(self._ledger, key)
        lease = leases.current()
        beat = leases.heartbeat() if lease is not None and not leases.is_free(lease) else None
        if beat is not None and beat.step is not None and states.get(beat.step) == "waiting":
            states[beat.step] = "running"
        ended = leases.closed(lease.epoch) if lease is not None and beat is None else None
        failure = f"attempt {ended.attempt} {ended.outcome}: {ended.reason}" if ended and ended.reason else ""
        return CellProgress(label, key, states, beat, lease.epoch if lease else 0, failure)

    def _verdict(self, key: str, step: str) -> StepState:
        if (key, step) not in self._verdicts:
            commit = self._ledger.read_commit(key, step)
            self._verdicts[key, step] = commit.verdict if commit else "waiting"
        return self._verdicts[key, step]
