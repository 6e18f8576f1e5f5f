"""Where a run stands, read off the ledger: the source of `sweep status` and of the live view."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal, NamedTuple

from configs.schema import Plan, PlannedCell
from configs.visits import split_name
from warehouse.dataset.spending import Spending, Spent
from warehouse.ledger.commits import Commit, Ledger
from warehouse.ledger.lease import Heartbeat, Leases
from warehouse.ledger.verdicts import VERDICTS, Reason, Verdict

StepState = Verdict | Literal["running", "waiting", "skipped", "dropped"]
"""Of a measurement: a step in one visit, by its name in the ledger."""


class CellProgress(NamedTuple):
    """One cell: the state of each measurement, its last heartbeat while an owner lives, how its last attempt failed.

    `judged` has, of each that is measured, how many conditions are ok and how many there are.
    """

    label: str
    cell_key: str
    steps: Mapping[str, StepState]
    judged: Mapping[str, tuple[int, int]]
    heartbeat: Heartbeat | None
    attempts: int
    failure: str = ""

    def document(self) -> dict[str, object]:
        """The cell for `--json`."""
        doing = None if self.heartbeat is None else self.heartbeat.model_dump(mode="json")
        conditions = {name: {"ok": ok, "of": of} for name, (ok, of) in self.judged.items()}
        return {
            "label": self.label,
            "cell_key": self.cell_key,
            "steps": dict(self.steps),
            "conditions": conditions,
            "heartbeat": doing,
        }


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
        return sum(state not in ("skipped", "dropped") for cell in self.cells for state in cell.steps.values())

    @property
    def complete(self) -> bool:
        """Whether nothing is left to measure."""
        return self.measured == self.total


class ProgressReader:
    """Reads a run as often as asked; commits never change and are read only once."""

    def __init__(self, ledger: Ledger, plan: Plan) -> None:
        self._ledger = ledger
        self._plan = plan
        self._commits: dict[tuple[str, str], Commit] = {}
        self._spending = Spending(ledger.store, time.time)

    def read(self) -> RunProgress:
        """Where the run stands now."""
        committed = self._ledger.committed_steps()
        cells = []
        for planned in self._plan.cells:
            key, done = planned.cell.cell_key, committed.get(planned.cell.cell_key, ())
            states: dict[str, StepState] = {}
            judged: dict[str, tuple[int, int]] = {}
            for name in _names(planned):
                commit = self._commit(key, name) if name in done else None
                states[name] = "waiting" if commit is None else _state(commit)
                if commit is not None and commit.judged is not None and commit.judged_ok is not None:
                    judged[name] = (commit.judged_ok, commit.judged)
            gates = {each.name for each in planned.measurements if each.spec.is_gate}
            if any(states[gate] == "rejected" for gate in gates):
                states = {name: "skipped" if state == "waiting" else state for name, state in states.items()}
            cells.append(self._with_owner(planned.cell.label, key, states, judged))
        spent = self._spending.of_run(self._ledger.run_id)
        return RunProgress(self._ledger.run_id, tuple(cells), spent if spent.by_cell else None)

    def _with_owner(
        self, label: str, key: str, states: dict[str, StepState], judged: Mapping[str, tuple[int, int]]
    ) -> CellProgress:
        if not any(state == "waiting" for state in states.values()):
            return CellProgress(label, key, states, judged, None, 0)
        leases = Leases(self._ledger, key)
        lease = leases.current()
        beat = leases.heartbeat() if lease is not None and not leases.is_free(lease) else None
        if beat is not None and beat.step is not None and states.get(beat.step) == "waiting":
            states[beat.step] = "running"
        ended = leases.closed(lease.epoch) if lease is not None and beat is None else None
        failure = f"attempt {ended.attempt} {ended.outcome}: {ended.reason}" if ended and ended.reason else ""
        return CellProgress(label, key, states, judged, beat, lease.epoch if lease else 0, failure)

    def _commit(self, key: str, name: str) -> Commit | None:
        if (key, name) not in self._commits:
            commit = self._ledger.read_commit(key, name)
            if commit is None:
                return None
            self._commits[key, name] = commit
        return self._commits[key, name]


def _state(commit: Commit) -> StepState:
    return "dropped" if Reason.DROPPED in commit.reasons else commit.verdict


def _names(planned: PlannedCell) -> list[str]:
    """Names of a cell's measurements, the visits of a step side by side."""
    names = [each.name for each in planned.measurements]
    order = [step.step for step in planned.steps]
    return sorted(names, key=lambda name: order.index(split_name(name)[0]))
