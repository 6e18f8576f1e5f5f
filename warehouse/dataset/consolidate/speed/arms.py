"""Which visits of a cell become its figure, and what that figure is held against: always on one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from configs.cell import Cell
from configs.visits import Role
from warehouse.dataset.consolidate.inputs import CommittedStep, Identity, baseline_among
from warehouse.dataset.consolidate.speed.visits import Visited
from warehouse.ledger.verdicts import Reason

Machine = str | None
"""None: nobody recorded it."""

ArmKey = tuple[str, str, str, Role, Machine]
"""Run, cell, step, role and machine: visits of one thing on one machine."""


class Standing(NamedTuple):
    """A cell's figure among those of its run."""

    cell: Cell
    arm: ArmKey
    baseline: Cell | None
    """What it is held against; None for AR itself, and where there is none."""
    baseline_arm: ArmKey | None
    """None: `refusal` says why."""
    refusal: str
    """Reason and sentence, where there is nothing to be held against; else empty."""


Homes = Mapping[tuple[str, Role], Sequence[Machine]]
"""By cell and role, the machine of each of its visits that were measured to the end."""


def homes_of(measured: Mapping[Identity, Sequence[Visited]]) -> dict[tuple[str, Role], list[Machine]]:
    """The machines of the visits of one comparison group, one each, in the order of the visits."""
    found: dict[tuple[str, Role], list[Machine]] = {}
    for visits in measured.values():
        last = next((visit for visit in visits if visit.is_complete), None)
        if last is not None:
            found.setdefault((last.step.cell_key, last.step.visit.role), []).append(last.machine)
    return found


def standing(step: CommittedStep, others: Sequence[CommittedStep], homes: Homes) -> Standing:
    """Where a cell stands: its machine is the one with most of its visits, of those that have a baseline, too.

    Args:
        step: a visit of the cell.
        others: the steps of its comparison group that were measured.
        homes: `homes_of` that group.
    """
    planned, own = step.planned, homes[step.cell_key, "cell"]
    role: Role = "control" if planned.control is not None else "cell"
    baseline, key = planned.control, step.cell_key
    if planned.control is None:
        found = baseline_among(planned, (other.planned for other in others if other.visit.role == "cell"))
        baseline, key = (found.cell, found.cell.cell_key) if found is not None else (None, "")
    there = homes.get((key, role), ())
    machine = max(own, key=lambda each: (each is not None and each in there, own.count(each), -own.index(each)))
    shared = (step.run_id, key, step.name, role, machine)
    refusal = "" if planned.cell.technique.is_baseline else _refusal(baseline, machine, there)
    return Standing(
        cell=planned.cell,
        arm=(step.run_id, step.cell_key, step.name, "cell", machine),
        baseline=baseline,
        baseline_arm=None if refusal or baseline is None else shared,
        refusal=refusal,
    )


def _refusal(baseline: Cell | None, machine: Machine, there: Sequence[Machine]) -> str:
    """Why a cell on this machine has nothing to be held against; empty: it has."""
    if baseline is None:
        return f"{Reason.NO_BASELINE}: no AR cell of this run was measured"
    if not there:
        return f"{Reason.NO_BASELINE}: the cell's control was not measured"
    if machine is None:
        return f"{Reason.NO_CONTROL}: nobody recorded on which machine the cell was measured"
    return "" if machine in there else f"{Reason.NO_CONTROL}: AR was measured on another machine"
