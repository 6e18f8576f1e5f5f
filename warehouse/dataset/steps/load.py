"""Load: rates, speedups and goodput of a prompt suite by the speed machinery, with latencies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import fsum
from statistics import fmean
from typing import NamedTuple, TypeVar

import polars as pl

from configs.cell import Cell
from configs.steps.load import LoadStep, category_of, whole_of
from warehouse.dataset.consolidate.inputs import STEP, CommittedStep, Group, Raw
from warehouse.dataset.consolidate.rows import Machine, Made, Result, Row, Start, placed
from warehouse.dataset.consolidate.speed.rows import acceptance_of, speed_rows, tokens_per_step
from warehouse.dataset.consolidate.speed.starts import TimedStart, energy_of, machine_of, timed_starts
from warehouse.dataset.loads import Followed, followed, load_row
from warehouse.ledger.formulas import loops, timed, windows_of
from warehouse.ledger.timed_tables import LOAD, LOAD_REQUESTS, LOAD_WINDOWS
from warehouse.ledger.verdicts import Reason

TABLES = LOAD

UNJUDGED = "steadiness not judged: the engine doesn't say what it drafted for each request"
"""Of rows whose repeats are other prompts, on which drafts are worth more or less."""

KEPT = (
    "attempt", "condition", "mode", "concurrency", "rate_s", "arrival", "due_s", "category", "prompt_id", "repeat",
    "sent_s", "wall_s", "prompt_tokens", "completion_tokens", "finish_reason", "output_tokens", "ttft_ms", "tpot_ms",
    "first_chunk_tokens", "chunk_ms", "itl_histogram", "engine_draft_steps", "engine_draft_tokens",
    "engine_accepted_tokens", "engine_accepted_histogram",
)  # fmt: skip

CellOnMachine = tuple[str, Machine]  # cell and machine


class Told(NamedTuple):
    """What a cell's own starts showed on one machine."""

    requests: list[Row]  # `timed`
    windows: list[Row]
    schedules: list[tuple[str, Followed]]  # with the load's name

    def asked(self, condition: str) -> list[Row]:
        """The requests that a row is of."""
        load, category = whole_of(condition), category_of(condition)
        return [row for row in self.requests if row["condition"] == load and category in (None, row["category"])]

    def followed(self, condition: str) -> list[Followed]:
        """The schedules that its load was sent on; none: closed loops."""
        return [each for name, each in self.schedules if name == whole_of(condition)]


def rows(group: Group, raw: Raw) -> Made:
    """One row per load, and one per load and category, with their rows of `visits` and `load`."""
    told: defaultdict[CellOnMachine, Told] = defaultdict(lambda: Told([], [], []))
    visits = {step.identity: _visits(step, raw, told) for step in group if step.wrote(LOAD_REQUESTS)}
    made = speed_rows(group, visits, raw)
    steps = {step.cell_key: step for step in group}
    results, load = [], []
    for each in made.results:
        step, there = steps[each.columns["cell_key"]], told[each.columns["cell_key"], each.columns.get("machine")]
        condition = each.columns.get("condition") or ""
        results.append(_with_told(each, step.planned.cell, there) if condition else each)
        if asked := there.asked(condition):
            limits = step.spec.limits if isinstance(step.spec, LoadStep) else None
            load.append(load_row(each.columns, category_of(condition), asked, limits, there.followed(condition)))
    return made._replace(results=_charged(results), visits=_charged(made.visits), load=load)


def _visits(step: CommittedStep, raw: Raw, told: defaultdict[CellOnMachine, Told]) -> list[TimedStart]:
    """What a commit measured; `told` gets what it tells of the cell itself."""
    asked = _by_machine(step, raw, raw.rows(step, LOAD_REQUESTS, _without_texts))
    counted = _by_machine(step, raw, raw.rows(step, LOAD_WINDOWS))
    windows: dict[Machine, list[Row]] = {}
    for machine, rows in asked.items():
        starts = {(loop[0]["condition"], loop[0]["attempt"]) for loop in loops(rows)}
        windows[machine] = [row for row in counted.get(machine, ()) if (row["condition"], row["attempt"]) in starts]
        if step.visit.role != "control":
            there = told[step.cell_key, machine]
            there.requests.extend(timed(rows))
            there.windows.extend(windows[machine])
            schedules = [(loop[0]["condition"], followed(loop)) for loop in loops(rows)]
            there.schedules.extend((name, each) for name, each in schedules if each is not None)
    visits = timed_starts(step, raw, [window for rows in asked.values() for window in windows_of(rows)], [])
    return [visit._replace(powered=_alone(visit.shape[0], windows.get(visit.machine, ()))) for visit in visits]


def _without_texts(frame: pl.LazyFrame) -> pl.LazyFrame:
    return frame.select(*STEP, *KEPT).sort("condition", "attempt", "sent_s", "prompt_id")


def _by_machine(step: CommittedStep, raw: Raw, rows: Iterable[Row]) -> dict[Machine, list[Row]]:
    """Rows of one commit by the machine that measured them; attempts that named none are the committing one's."""
    machines = {row["attempt"]: machine_of(row) for row in placed(step, raw)}
    home = machines.get(step.commit.attempt)
    found: dict[Machine, list[Row]] = {}
    for row in rows:
        found.setdefault(machines.get(row["attempt"]) or home, []).append(row)
    return found


def _alone(condition: str, windows: Sequence[Row]) -> list[Row]:
    """Windows of a load; of a category those that had nothing else in them."""
    load, category = whole_of(condition), category_of(condition)
    return [row for row in windows if row["condition"] == load and category in (None, row["category"])]


def _with_told(result: Result, cell: Cell, told: Told) -> Result:
    """The row with the length of its answers, what engine and cards reported meanwhile, and how its schedule went.

    Bandwidth is left out: it needs the steps of the same seconds as the rate. An overloaded schedule is a fact, no
    fault. The row says that its repeats were not judged where the node could not (`tasks.steps.load`).
    """
    condition, drafts = result.columns["condition"], cell.technique.drafts
    asked, alone = told.asked(condition), _alone(condition, told.windows)
    each_told = bool(asked) and all(each["engine_draft_steps"] is not None for each in asked)
    # with categories mixed only the requests can tell whose drafts were accepted; the whole suite's the engine counts
    counts = [*map(_counts_of_request, asked)] if category_of(condition) is not None and each_told else alone
    is_closed, is_unsteady = result.columns.get("concurrency") is not None, Reason.UNSTEADY in result.judged.reasons
    if asked and not each_told and is_closed and not is_unsteady and not cell.technique.is_baseline:
        result = result.noting(UNJUDGED)
    for schedule in told.followed(condition):
        if schedule.is_overloaded and schedule.sentence not in result.judged.details:
            result = result.noting(schedule.sentence)
    columns = {
        "mbu": None,
        "answer_tokens": fmean(each["completion_tokens"] for each in asked) if asked else None,
        "truncated": sum(each["finish_reason"] == "length" for each in asked) if asked else None,
        **(acceptance_of(counts) if counts and drafts else {}),
        "tokens_per_step": tokens_per_step(cell, counts),
        **energy_of(alone),
    }
    return result.plus(columns)


def _counts_of_request(request: Row) -> Row:
    """One answer's drafts, as a window would have counted them.

    What a last step accepted behind the end is in both (tasks/guards/tokens.py). At least i tokens were accepted in as
    many steps as accepted i, i + 1, ..., K.
    """
    histogram = request["engine_accepted_histogram"]
    positions = None if histogram is None else [sum(histogram[place:]) for place in range(1, len(histogram))]
    return {
        "requests": 1,
        "completion_tokens": request["completion_tokens"],
        "engine_drafts": request["engine_draft_steps"],
        "engine_draft_tokens": request["engine_draft_tokens"],
        "engine_accepted_tokens": request["engine_accepted_tokens"],
        "engine_accepted_by_position": positions,
        "engine_denoising_steps": None,
    }


Charged = TypeVar("Charged", Result, Start)


def _charged(rows: Sequence[Charged]) -> list[Charged]:
    """Rows whose seconds are counted with the whole suite: a category is a further reading of the same answers.

    The seconds that a cell's categories were given by their share go to its whole-suite rows, by theirs.
    """
    cells: dict[tuple[object, ...], list[Charged]] = {}
    for each in rows:
        cells.setdefault(tuple(map(each.columns.get, ("cell_key", "role", "visit", "complete"))), []).append(each)
    return [charged for each in cells.values() for charged in _charged_one(each)]


def _charged_one(rows: Sequence[Charged]) -> list[Charged]:
    everything = [each.columns for each in rows]
    whole = [row for row in everything if category_of(row.get("condition") or "") is None]
    if not whole:
        return list(rows)
    done = []
    for each in rows:
        amounts: Row = dict.fromkeys(("gpu_s", "cost_usd"))
        for name in amounts:
            amount = each.columns.get(name) if any(each.columns is row for row in whole) else None
            own, total_of_all = (fsum(row[name] or 0.0 for row in some) for some in (whole, everything))
            amounts[name] = amount * total_of_all / own if amount is not None and own else amount
        done.append(each._replace(columns=each.columns | amounts))
    return done
