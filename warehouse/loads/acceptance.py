"""Whose drafts were accepted: with categories mixed only the requests can tell, and vLLM from 0.29 on lets them.

No more than counters: what a request's last step accepted behind its end is in both (tasks/guards/drafting.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.consolidate.rows import Row


def counts_of(category: str | None, requests: Sequence[Row], windows: Sequence[Row]) -> list[Row]:
    """Rows of counts, named as windows name them, whose sums are of a category; none: nobody can tell it.

    Args:
        category: of whose drafts; None: the whole suite, which the engine's counters know.
        requests: rows of `load_requests` at the concurrency, of that category.
        windows: rows of `load_windows` at the concurrency; those of one category count where requests say nothing.
    """
    if category is not None and requests and all(row["engine_draft_steps"] is not None for row in requests):
        return [counts_of_request(row) for row in requests]
    return [row for row in windows if category in (None, row["category"])]


def counts_of_request(request: Row) -> Row:
    """One answer's drafts, as a window would have counted them.

    At least i tokens were accepted in as many steps as accepted i, i + 1, ..., K.
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
