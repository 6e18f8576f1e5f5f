"""What drafts were worth over a step that has no windows: answers that are graded or compared, not timed."""

from __future__ import annotations

from warehouse.dataset.consolidate.inputs import CommittedStep
from warehouse.dataset.consolidate.raw import Raw
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.consolidate.speed.bandwidth import decoding_steps, total
from warehouse.dataset.consolidate.speed.rows import acceptance_of
from warehouse.ledger.tables import ENGINE_COUNTED


def counted_acceptance(step: CommittedStep, raw: Raw) -> Row:
    """Counts and ratios over all of the step's attempts that ended; empty: nothing is drafted, or nobody counted."""
    cell = step.planned.cell
    counted = raw.rows(step, ENGINE_COUNTED) if cell.technique.drafts else []
    if not counted:
        return {}
    worked = [row | {"completion_tokens": row["engine_generation_tokens"]} for row in counted]
    tokens, steps = total(worked, "completion_tokens"), decoding_steps(cell, worked)
    return acceptance_of(worked) | {"tokens_per_step": tokens / steps if tokens and steps and steps > 0 else None}
