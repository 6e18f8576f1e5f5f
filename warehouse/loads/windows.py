"""Repeats of a load step as windows of the speed machinery: what was made in slots, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from configs.steps.load import condition_name
from warehouse.consolidate.rows import Row
from warehouse.loads.requests import by_category, timed

UNCOUNTED = (
    "chars", "engine_drafts", "engine_accepted_tokens", "engine_accepted_by_position", "engine_denoising_steps",
)  # fmt: skip
"""What only a whole window has, never a repeat of one category."""


def windows_of(requests: Sequence[Row], mode: str) -> list[Row]:
    """One row per concurrency, category or whole suite, and repeat, of one machine.

    Args:
        requests: of one commit on that machine.
        mode: of the rows.
    """
    found: dict[int, list[Row]] = {}
    for row in timed(requests):
        found.setdefault(row["concurrency"], []).append(row)
    last = max((row["attempt"] for row in requests), default=0)
    return [
        _window(condition_name(concurrency, category), mode, concurrency, repeat, last, each)
        for concurrency, rows in found.items()
        for category, asked in by_category(rows).items()
        for repeat, each in _by_repeat(asked).items()
        if fsum(row["slot_s"] for row in each) > 0
    ]


def _by_repeat(rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["repeat"], []).append(row)
    return found


def _window(condition: str, mode: str, concurrency: int, repeat: int, attempt: int, rows: Sequence[Row]) -> Row:
    """Seconds are those of all slots over their number: what the work would have taken by the wall clock."""
    return {
        "condition": condition,
        "mode": mode,
        "concurrency": concurrency,
        "context_tokens": None,
        "output_tokens": rows[0]["output_tokens"],
        "repeat": repeat,
        "attempt": attempt,
        "requests": len(rows),
        "prompt_tokens": sum(row["prompt_tokens"] for row in rows),
        "completion_tokens": fsum(row["slot_tokens"] for row in rows),
        "wall_s": fsum(row["slot_s"] for row in rows) / concurrency,
        **dict.fromkeys(UNCOUNTED),
    }
