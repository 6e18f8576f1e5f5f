"""Attempt rows: how every try of a cell went, and what its machine cost."""

from __future__ import annotations

from typing import Any

from warehouse.dataset.bill.bill import BillLine, bill
from warehouse.dataset.consolidate.inputs import CellHistory
from warehouse.dataset.consolidate.rows import Row, labels
from warehouse.dataset.tables import ATTEMPTS
from warehouse.ledger.lease import Attempt
from warehouse.ledger.placement import PlacementStory

RECORDED = tuple(name for name in ATTEMPTS.column_names() if name in Attempt.model_fields)
"""Columns that an attempt's own record has."""


def attempt_rows(history: CellHistory) -> list[Row]:
    """A row per closed attempt and per machine that is down; one that is still up has no bill yet."""
    identity = {
        "run_id": history.run_id,
        "cell_key": history.planned.cell.cell_key,
        **labels(history.planned),
        "unmeasured": list(history.unmeasured),
    }
    return [identity | _row(line) for line in bill(history.placements, history.attempts)]


def _row(line: BillLine) -> Row:
    if line.attempt is not None:
        row = {name: _null_if_empty(getattr(line.attempt, name)) for name in RECORDED}
    else:
        assert line.story is not None, "a bill line has an attempt or a placement"
        row = _unrecorded(line.number, line.story)
    return row if line.story is None else row | _billed(line, line.story)


def _null_if_empty(value: Any) -> Any:
    """A record says "" where it has no words; in the dataset that would be taken for a reason or a log."""
    return None if value == "" else value


def _unrecorded(number: int | None, story: PlacementStory) -> Row:
    """A try whose runner left no record: what is known is how its machine ended."""
    assert story.end is not None, "open placements are not billed here"
    return {
        "attempt": number,
        "outcome": story.end.outcome.row.outcome,
        "reason": story.end.detail or story.end.outcome,
        "started_at": story.asked.asked_at,
        "ended_at": story.end.at,
    }


def _billed(line: BillLine, story: PlacementStory) -> Row:
    """Columns of the rented machine: which one, how it ended, what its seconds were spent on."""
    assert line.seconds is not None, "what was placed is billed"
    phases = line.seconds._asdict()
    return {
        **story.asked.offer.model_dump(),
        "cluster": story.asked.cluster,
        "tried": line.tried or None,
        "ended": None if story.end is None else story.end.outcome,
        "rented_s": line.rented_s,
        "estimated": (story.end is not None and story.end.estimated) or None,
        "charged": line.is_charged,
        "cost_usd": line.cost_usd,
        **{f"{phase}_s": seconds for phase, seconds in phases.items()},
        **{f"{phase}_usd": line.usd(seconds) for phase, seconds in phases.items()},
    }
