"""Rows of the dataset that a load step makes: rates and speedups by the speed machinery, latencies beside them."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from statistics import fmean
from typing import TYPE_CHECKING

from configs.cell import Cell
from configs.steps.load import LoadStep, category_of, whole_of
from warehouse.columns import Table
from warehouse.consolidate.inputs import CommittedStep, Group, Identity
from warehouse.consolidate.rows import Made, Row, verdict_columns, verdict_of
from warehouse.consolidate.speed.bandwidth import decoding_steps, total
from warehouse.consolidate.speed.energy import energy_of
from warehouse.consolidate.speed.rows import acceptance_of, speed_rows
from warehouse.consolidate.speed.visits import Visited, visited
from warehouse.loads.acceptance import counts_of
from warehouse.loads.arrivals import Followed, followed
from warehouse.loads.latencies import load_row
from warehouse.loads.requests import Machine, by_machine, loops, timed, without_texts
from warehouse.loads.windows import windows_of
from warehouse.verdicts import Reason

if TYPE_CHECKING:  # nodes import this file and have no polars
    from warehouse.consolidate.raw import Raw

UNJUDGED = "steadiness not judged: the engine doesn't say what it drafted for each request"
"""Of rows whose repeats are other prompts, on which drafts are worth more or less."""

Place = tuple[str, Machine]
"""Cell and machine."""


class Measured:
    """Requests and windows of all visits of a group's cells, by machine."""

    def __init__(self) -> None:
        self.visits: dict[Identity, list[Visited]] = {}
        self.requests: dict[Place, list[Row]] = {}
        self.windows: dict[Place, list[Row]] = {}
        self.schedules: dict[Place, list[tuple[str, Followed]]] = {}
        """With the load's name."""


def load_rows(group: Group, raw: Raw, requests: Table, windows: Table) -> Made:
    """One row per load, and one per load and category, with their rows of `visits` and `load`.

    Args:
        group: steps that are compared with each other.
        raw: has their rows.
        requests: table of what was asked.
        windows: table of what the engine counted meanwhile.
    """
    found = Measured()
    for step in group:
        if step.wrote(requests):
            _collect(step, raw, requests, windows, found)
    made = speed_rows(group, found.visits, raw)
    results = _charged([_told(_with_counts(row, group, found), group, found) for row in made.results])
    return made._replace(results=results, visits=_charged(made.visits), load=_latencies(results, group, found))


def _collect(step: CommittedStep, raw: Raw, requests: Table, windows: Table, found: Measured) -> None:
    asked = by_machine(step, raw, raw.rows(step, requests, without_texts))
    counted = by_machine(step, raw, raw.rows(step, windows))
    told = {machine: _of_starts(loops(rows), counted.get(machine, ())) for machine, rows in asked.items()}
    rates = [window for rows in asked.values() for window in windows_of(rows)]
    visits = visited(step, raw, rates, [])
    loads = [_of_load(visit.shape[0], told.get(visit.machine, ())) for visit in visits]
    found.visits[step.identity] = [
        visit._replace(powered=_alone(category_of(visit.shape[0]), load))
        for visit, load in zip(visits, loads, strict=True)
    ]
    if step.visit.role == "control":
        return
    for machine, rows in asked.items():
        place = step.cell_key, machine
        found.requests.setdefault(place, []).extend(timed(rows))
        found.windows.setdefault(place, []).extend(told[machine])
        schedules = [(loop[0]["condition"], followed(loop)) for loop in loops(rows)]
        found.schedules.setdefault(place, []).extend((name, each) for name, each in schedules if each is not None)


def _of_starts(asked: Sequence[Sequence[Row]], windows: Sequence[Row]) -> list[Row]:
    """Windows of the attempts that these loops are of."""
    starts = {(loop[0]["condition"], loop[0]["attempt"]) for loop in asked}
    return [row for row in windows if (row["condition"], row["attempt"]) in starts]


def _of_load(condition: str, windows: Sequence[Row]) -> list[Row]:
    return [row for row in windows if row["condition"] == whole_of(condition)]


def _alone(category: str | None, windows: Sequence[Row]) -> list[Row]:
    """Windows of a load; of a category those that had nothing else in them."""
    return [row for row in windows if category in (None, row["category"])]


def _with_counts(row: Row, group: Group, found: Measured) -> Row:
    """The row with how long its answers were, and what engine and cards told meanwhile.

    Null where nobody can tell it, or nothing drafts. Bandwidth is left out: it needs the steps of the very seconds of
    which the rate is.
    """
    if row.get("condition") is None:
        return row
    windows = _of_load(row["condition"], found.windows.get(_place(row), ()))
    category = category_of(row["condition"])
    asked = _asked(row, found)
    counts = counts_of(category, asked, windows)
    cell = _cell(row, group)
    drafts = cell.technique.drafts
    tokens = total(counts, "completion_tokens") if counts else None
    steps = decoding_steps(cell, counts) if counts and drafts else None
    return row | {
        "mbu": None,
        "answer_tokens": fmean(each["completion_tokens"] for each in asked) if asked else None,
        "truncated": sum(each["finish_reason"] == "length" for each in asked) if asked else None,
        **(acceptance_of(counts) if counts and drafts else {}),
        "tokens_per_step": tokens / steps if tokens and steps and steps > 0 else None,
        **energy_of(_alone(category, windows)),
    }


def _cell(row: Row, group: Group) -> Cell:
    return next(step.planned.cell for step in group if step.cell_key == row["cell_key"])


def _told(row: Row, group: Group, found: Measured) -> Row:
    """The row with what became of its schedule, if it has one: too much of it is a fact, and no fault, of the row.

    And that nobody judged its repeats, where the node could not (`tasks.timing.load_verdict`).
    """
    verdict = verdict_of(row)
    if _is_unjudged(row, group, found):
        verdict = verdict.noting(UNJUDGED)
    for schedule in _schedules(row, found):
        if schedule.is_overloaded and schedule.sentence not in verdict.details:
            verdict = verdict.noting(schedule.sentence)
    return row | verdict_columns(verdict)


def _is_unjudged(row: Row, group: Group, found: Measured) -> bool:
    """Whether its repeats differ by what drafts were worth on their prompts, and nobody says by how much.

    A node of before would have judged them all the same, by tokens/s.
    """
    if row.get("concurrency") is None or Reason.UNSTEADY in verdict_of(row).reasons:
        return False
    untold = any(each["engine_draft_steps"] is None for each in _asked(row, found))
    return untold and not _cell(row, group).technique.is_baseline


def _schedules(row: Row, found: Measured) -> list[Followed]:
    load = whole_of(row.get("condition") or "")
    return [each for name, each in found.schedules.get(_place(row), ()) if name == load]


def _charged(rows: Sequence[Row]) -> list[Row]:
    """Rows whose seconds stand with the whole suite: a category is a further reading of the same answers.

    The seconds that a cell's categories were given by their share go to its whole-suite rows, by theirs.
    """
    cells: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["cell_key"], row.get("role"), row.get("visit"), row.get("complete")), []).append(row)
    return [charged for each in cells.values() for charged in _charged_one(each)]


def _charged_one(rows: Sequence[Row]) -> list[Row]:
    whole = [row for row in rows if row.get("condition") is None or category_of(row["condition"]) is None]
    done = []
    for row in rows:
        is_whole = any(row is each for each in whole)
        amounts = {name: _amount(row, name, rows, whole) if is_whole else None for name in ("gpu_s", "cost_usd")}
        done.append(row | amounts if whole else row)
    return done


def _amount(row: Row, name: str, rows: Sequence[Row], whole: Sequence[Row]) -> float | None:
    if row.get(name) is None:
        return None
    own, everything = fsum(each[name] or 0.0 for each in whole), fsum(each[name] or 0.0 for each in rows)
    return float(row[name] * everything / own) if own else float(row[name])


def _latencies(results: Sequence[Row], group: Group, found: Measured) -> list[Row]:
    specs = {step.cell_key: step.spec for step in group if isinstance(step.spec, LoadStep)}
    rows = []
    for row in results:
        asked = _asked(row, found)
        if asked:
            spec = specs.get(row["cell_key"])
            limits = spec.limits if spec else None
            rows.append(load_row(row, category_of(row["condition"]), asked, limits, _schedules(row, found)))
    return rows


def _asked(row: Row, found: Measured) -> list[Row]:
    """The requests that a row is of; none for a row of nothing that was measured."""
    condition = row.get("condition") or ""
    load, category = whole_of(condition), category_of(condition)
    return [
        each
        for each in found.requests.get(_place(row), ())
        if each["condition"] == load and category in (None, each["category"])
    ]


def _place(row: Row) -> Place:
    return row["cell_key"], row.get("machine")
