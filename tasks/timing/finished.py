"""What earlier attempts at a timed step finished: windows of conditions that are whole, with their requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tasks.context import StepContext
from warehouse.columns import Table

Row = dict[str, Any]


async def finished(
    ctx: StepContext,
    windows: Table,
    requests: Table,
    window: Sequence[str],
    conditions: Iterable[tuple[str, Callable[[list[Row]], bool]]],
    sent_in: Callable[[Row], Iterable[tuple[Any, ...]]] | None = None,
) -> tuple[list[Row], list[Row]]:
    """Windows and requests of the conditions that one earlier attempt finished on this machine.

    A condition that was only begun starts again: another start of the engine would be in its figure. Its rows, and
    those of other machines, stay in the commit and are no part of this one's figures.

    Args:
        ctx: of the step.
        windows: its table of windows.
        requests: and of requests.
        window: columns that identify a window, and tie requests to it: a killed attempt may leave requests without one.
        conditions: name of each, and whether these windows are all of it.
        sent_in: those columns of the requests of a window; None: the window's own.
    """
    kept = await ctx.resume(windows, window)
    tied = sent_in or (lambda row: [tuple(row[name] for name in window)])
    sent = await ctx.resume(requests, window, only={each for row in kept for each in tied(row)})
    whole: list[Row] = []
    for condition, is_whole in conditions:
        here = [row for row in kept if row["condition"] == condition and ctx.is_here(row)]
        last = max((row["attempt"] for row in here), default=None)
        of_last = [row for row in here if row["attempt"] == last]
        if is_whole(of_last):
            whole += of_last
    taken = {(row["condition"], row["attempt"]) for row in whole}
    return whole, [row for row in sent if (row["condition"], row["attempt"]) in taken]
