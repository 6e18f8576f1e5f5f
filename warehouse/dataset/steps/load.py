"""Load: rates, speedups and goodput of a prompt suite by the speed machinery, with latencies beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import fsum
from statistics import fmean
from typing import NamedTuple

import polars as pl

from configs.cell import Cell
from configs.steps.load import LoadStep, category_of, whole_of
from warehouse.dataset.consolidate.costs import placed
from warehouse.dataset.consolidate.inputs import STEP, CommittedStep, Group
from warehouse.dataset.consolidate.raw import Raw
from warehouse.dataset.consolidate.rows import Made, Row, verdict_columns, verdict_of
from warehouse.dataset.consolidate.speed.bandwidth import decoding_steps, total
from warehouse.dataset.consolidate.speed.rows import acceptance_of, speed_rows
from warehouse.dataset.consolidate.speed.visits import Visited, energy_of, machine_of, visited
from warehouse.dataset.loads.arrivals import Followed, followed
from warehouse.dataset.loads.latencies import load_row
from warehouse.ledger.formulas.load_windows import loops, timed, windows_of
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

Machine = str | None

Place = tuple[str, Machine]
"""Cell and machine."""


class Told(NamedTuple):
    """What a cell's own visits told on one machine."""

    requests: list[Row]
    """`timed`."""
    windows: list[Row]
    schedules: list[tuple[str, Followed]]
    """With the load's name."""

    def asked(self, condition: str) -> list[Row]:
        """The requests that a row is of."""
        load, category = whole_of(condition), category_of(condition)
        return [row for row in self.requests if row["condition"] == load and category in (None, row["category"])]

    def followed(self, condition: str) -> list[Followed]:
        """The schedules that its load was sent on; none: closed loops."""
        return [each for name, each in self.schedules if name == whole_of(condition)]


def rows(group: Group, raw: Raw) -> Made:
    """One row per load, and one per load and category, with their rows of `visits` and `load`."""
    told: defaultdict[Place, Told] = defaultdict(lambda: Told([], [], []))
    visits = {step.identity: _visits(step, raw, told) for step in group if step.wrote(LOAD_REQUESTS)}
    made = speed_rows(group, visits, raw)
    steps = {step.cell_key: step for step in group}
    results, load = [], []
    for row in made.results:
        step, there = steps[row["cell_key"]], told[row["cell_key"], row.get("machine")]
        results.append(_with_told(row, step.planned.cell, there) if row.get("condition") else row)
    results = _charged(results)
    for row in results:
        step, there = steps[row["cell_key"]], told[row["cell_key"], row.get("machine")]
        condition = row.get("condition") or ""
        if asked := there.asked(condition):
            limits = step.spec.limits if isinstance(step.spec, LoadStep) else None
            load.append(load_row(row, category_of(condition), asked, limits, there.followed(condition)))
    return made._replace(results=results, visits=_charged(made.visits), load=load)


def _visits(step: CommittedStep, raw: Raw, told: defaultdict[Place, Told]) -> list[Visited]:
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
    visits = visited(step, raw, [window for rows in asked.values() for window in windows_of(rows)], [])
    return [visit._replace(powered=_alone(visit.shape[0], windows.get(visit.machine, ()))) for visit in visits]


def _without_texts(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Times and tokens, in the order in which they were asked."""
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


def _with_told(row: Row, cell: Cell, told: Told) -> Row:
    """The row with how long its answers were, what engine and cards told meanwhile, and what became of its schedule.

    Null where nobody can tell it, or nothing drafts. Bandwidth is left out: it needs the steps of the very seconds of
    which the rate is. Too much of a schedule is a fact, and no fault, of the row. It says that nobody judged its
    repeats where the node could not (`tasks.steps.load`).
    """
    condition, drafts = row["condition"], cell.technique.drafts
    asked, alone = told.asked(condition), _alone(condition, told.windows)
    each_told = bool(asked) and all(each["engine_draft_steps"] is not None for each in asked)
    # with categories mixed only the requests can tell whose drafts were accepted; the whole suite's the engine counts
    counts = [*map(_counts_of_request, asked)] if category_of(condition) is not None and each_told else alone
    tokens = total(counts, "completion_tokens") if counts else None
    steps = decoding_steps(cell, counts) if counts and drafts else None
    verdict = verdict_of(row)
    is_judged = row.get("concurrency") is None or Reason.UNSTEADY in verdict.reasons or cell.technique.is_baseline
    if asked and not each_told and not is_judged:
        verdict = verdict.noting(UNJUDGED)
    for schedule in told.followed(condition):
        if schedule.is_overloaded and schedule.sentence not in verdict.details:
            verdict = verdict.noting(schedule.sentence)
    return row | {
        **verdict_columns(verdict),
        "mbu": None,
        "answer_tokens": fmean(each["completion_tokens"] for each in asked) if asked else None,
        "truncated": sum(each["finish_reason"] == "length" for each in asked) if asked else None,
        **(acceptance_of(counts) if counts and drafts else {}),
        "tokens_per_step": tokens / steps if tokens and steps and steps > 0 else None,
        **energy_of(alone),
    }


def _counts_of_request(request: Row) -> Row:
    """One answer's drafts, as a window would have counted them.

    No more than counters: what a request's last step accepted behind its end is in both (tasks/guards/drafting.py). At
    least i tokens were accepted in as many steps as accepted i, i + 1, ..., K.
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


def _charged(rows: Sequence[Row]) -> list[Row]:
    """Rows whose seconds stand with the whole suite: a category is a further reading of the same answers.

    The seconds that a cell's categories were given by their share go to its whole-suite rows, by theirs.
    """
    cells: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["cell_key"], row.get("role"), row.get("visit"), row.get("complete")), []).append(row)
    return [charged for each in cells.values() for charged in _charged_one(each)]


def _charged_one(rows: Sequence[Row]) -> list[Row]:
    whole = [row for row in rows if not row.get("condition") or category_of(row["condition"]) is None]
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
