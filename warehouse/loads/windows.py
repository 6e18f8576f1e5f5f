"""Repeats of a load step as windows of the speed machinery: what was made in slots, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from configs.steps.load import with_category
from warehouse.consolidate.rows import Row
from warehouse.loads.requests import by_category, timed

UNCOUNTED = (
    "chars", "engine_drafts", "engine_draft_tokens", "engine_accepted_tokens", "engine_accepted_by_position",
    "engine_denoising_steps",
)  # fmt: skip
"""What only a whole window has, never a repeat of one category."""


def windows_of(requests: Sequence[Row]) -> list[Row]:
    """One row per load, category or whole suite, and repeat, of one machine.

    Args:
        requests: of one commit on that machine.
    """
    found: dict[str, list[Row]] = {}
    for row in timed(requests):
        found.setdefault(row["condition"], []).append(row)
    last = max((row["attempt"] for row in requests), default=0)
    return [
        _window(with_category(load, category), repeat, last, each)
        for load, rows in found.items()
        for category, asked in by_category(rows).items()
        for repeat, each in _by_repeat(asked).items()
        if fsum(row["slot_s"] for row in each) > 0
    ]


def _by_repeat(rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["repeat"], []).append(row)
    return found


def _window(condition: str, repeat: int, attempt: int, rows: Sequence[Row]) -> Row:
    """Seconds are those of all slots over their number: what the work would have taken by the wall clock."""
    concurrency = rows[0]["concurrency"]
    return {
        "condition": condition,
        "mode": rows[0]["mode"],
        "concurrency": concurrency,
        "context_tokens": None,
        "output_tokens": rows[0]["output_tokens"],
        "repeat": repeat,
        "attempt": attempt,
        "requests": len(rows),
        "prompt_tokens": sum(row["prompt_tokens"] for row in rows),
        "completion_tokens": fsum(row["slot_tokens"] for row in rows),
        "wall_s": fsum(row["slot_s"] for row in rows) / (concurrency or 1),
        **dict.fromkeys(UNCOUNTED),
    }
