"""Curves over K and recommendations from what stands in a merged dataset, by the build's own functions.

The build makes them of one run, and a lease's run has the K that fitted into it. Here a curve has every K of a plan
that stands in the dataset, each with its own bracket: what it gains over its own control, how much starts differ in its
own run, whether that run may claim anything, and its step in units of its own AR's. So no rate of a lease is ever held
against another's. A K of the plan that nobody measured, or that is suspect, is missing as it is in a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from configs.schema import PlannedCell
from warehouse.consolidate.rows import Row, labels
from warehouse.consolidate.serving import arguments
from warehouse.consolidate.speed.settled import Known
from warehouse.speculation.curves import curves_of
from warehouse.speculation.rows import Curves, add_curve

Today = Mapping[tuple[str, str], str]
"""Run and cell, to the key that the plan has for the cell."""


class Server(NamedTuple):
    """What K of one curve share, which the plan of a run holds them to."""

    draft: str | None
    """Revision of the drafter; AR has none, and stands beside each."""
    engine: str | None
    model: str | None
    asked: tuple[tuple[str, str], ...]
    """Arguments of the engine."""


def over_leases(planned: Sequence[PlannedCell], results: Sequence[Row], load: Sequence[Row], known: Known) -> Curves:
    """The curves of these cells; one for each engine and checkpoint that several K were served by.

    Args:
        planned: all that leases are to measure.
        results: rows of `results_consolidated`, restated.
        load: rows of `load`.
        known: what the visits that stand in the dataset say.
    """
    today = _today(planned, results)
    known = known._replace(
        arms={
            ((run_id, today[run_id, cell], step, role, machine), shape): visits
            for ((run_id, cell, step, role, machine), shape), visits in known.arms.items()
            if (run_id, cell) in today
        }
    )
    rows, streams = _renamed(results, today), _renamed(load, today)
    made = Curves([], [])
    for curve in curves_of("", planned):
        keys = {each.cell.cell_key for each in curve.cells.values()}
        drafting = [row for row in rows if row["cell_key"] in keys and row["tok_s"] is not None]
        for server in sorted({_server(row) for row in drafting}, key=str):
            latest = max((row["measured_at"], row["run_id"]) for row in drafting if _server(row) == server)
            ar = server._replace(draft=None)
            beside = [row for row in rows if _server(row) == (server if row["cell_key"] in keys else ar)]
            add_curve(made, curve._replace(run_id=latest[1]), beside, streams, known)
    was = {(run_id, key): cell for (run_id, cell), key in today.items()}
    return made._replace(
        k_curves=[row | {"cell_key": was[row["measured_in"], row["cell_key"]]} for row in made.k_curves]
    )


def _today(planned: Sequence[PlannedCell], results: Sequence[Row]) -> Today:
    """A row is of the cell that is called the same, what is made up of it included: keys change with the version."""
    named = [labels(each) for each in planned]
    by_name = {tuple(name.values()): each.cell.cell_key for name, each in zip(named, planned, strict=True)}
    called = {(row["run_id"], row["cell_key"]): tuple(row[column] for column in named[0]) for row in results}
    return {cell: by_name[name] for cell, name in called.items() if name in by_name}


def _renamed(rows: Sequence[Row], today: Today) -> list[Row]:
    """The rows of the plan's cells, under its keys."""
    known = [(row, today.get((row["run_id"], row["cell_key"]))) for row in rows]
    return [row | {"cell_key": key} for row, key in known if key is not None]


def _server(row: Row) -> Server:
    asked = arguments(row["argv"] or "")
    asked.pop("--speculative-config", None)  # K is in it, and the drafter, which `draft` tells
    return Server(row["draft_revision"], row["engine_version"], row["model_revision"], tuple(sorted(asked.items())))
