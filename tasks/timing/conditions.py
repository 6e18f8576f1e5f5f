"""A timed step is a list of conditions: each is warmed up, measured window by window, and kept with its requests.

What was measured of a condition is kept with its last window. One that a lost machine had begun starts again, since
another start of the engine would be in its figure.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from configs.steps.throughput import WARM_UP_LENGTHS, Repeats
from tasks.client import Ready, Reply, StreamReply
from tasks.context import Progress, StepContext
from tasks.guards.steadiness import is_client_limited, is_starved, unsteady
from tasks.meters import Counters
from tasks.timing.loops import OnAnswer, paces_of
from tasks.timing.timed import AllFailed, Asked, Row, Timed, ready_of, request_rows, timed, untimed
from warehouse.ledger.timed_tables import TimedTables

MOST_TRIES = 3  # of a window whose client was starved or slow; if it still is, the last one is kept, and suspect

NAMES_A_WINDOW = ("condition", "mode", "repeat", "attempt")
"""Columns that identify a window, and tie requests to it: a killed attempt may leave requests without one."""


class Window(NamedTuple):
    """One window: its row, its requests' rows, and what the loop brought."""

    row: Row
    requests: list[Row]
    load: Timed


class TimedCondition(ABC):
    """One condition of a timed step. `name` is the `condition` of its rows."""

    so_far: Sequence[Row] = ()  # all windows of the step, as they come
    peers: Sequence[TimedCondition] = ()  # all conditions of the step

    def __init__(self, ctx: StepContext, name: str, at_once: int, rounds: int) -> None:
        """`rounds` of untimed requests come before the first window, `at_once` of them in flight."""
        self.ctx, self.name, self.at_once, self.rounds = ctx, name, at_once, rounds
        self.warm_replies: list[Reply | StreamReply] = []

    @abstractmethod
    def next_window(self, windows: Sequence[Row]) -> Any | None:
        """What names the next window, given those that there are; None: the condition is measured whole."""

    @abstractmethod
    async def measure(self, wanted: Any) -> Window:
        """Measure the window that `next_window` named."""

    @abstractmethod
    async def warming(self, number: int) -> Sequence[Ready]:
        """Requests of a round, from 0, of a warm-up: like those of a window."""

    async def first_tokens(self, window: str, number: int) -> Sequence[Ready]:
        """Requests for no more than the first token, of prompts of several lengths; none: lengths don't differ."""
        del window, number
        return []

    @abstractmethod
    def size(self, windows: Sequence[Row]) -> tuple[int, int]:
        """How much of the condition is measured by its windows, and how much there will be, in one unit of the step."""

    @abstractmethod
    def line(self, last: Row) -> tuple[str, float | None]:
        """What a window showed, for people, and its rate if it has one."""

    def step_size(self) -> tuple[int, int]:
        """The same of the whole step."""
        sizes = [each.size(of_condition(each.name, self.so_far)) for each in self.peers]
        return sum(done for done, _ in sizes), sum(expected for _, expected in sizes)

    def tell(self, line: str, tok_s: float | None = None) -> None:
        """Tell people how much of the step is done."""
        done, expected = self.step_size()
        self.ctx.tell(Progress(100 * done / expected, line, tok_s))

    async def warm_up(self) -> list[str]:
        """Send untimed requests like those of the windows, and of some lengths; returns a sentence for each failure."""
        failures: list[str] = []
        for number in range(self.rounds):
            self.tell(f"{self.name}: warm-up {number + 1}/{self.rounds}")
            answered = await untimed(self.ctx, "warm-up", await self.warming(number), self.at_once)
            self.warm_replies += [reply for _, reply in answered.each]
            failures += answered.failures
        if self.rounds and (lengths := await self.first_tokens("warm-up-lengths", WARM_UP_LENGTHS)):
            failures += (await untimed(self.ctx, "warm-up", lengths, 1)).failures
        return failures

    async def until_kept_up(
        self, once: Callable[[str], Awaitable[Window]], name: str, starved: Callable[[Row], bool] = is_starved
    ) -> Window:
        """Measure a window until its client kept up and the engine answered; returns what the last try brought.

        A window whose client was starved, or too slow to keep the load up, is measured again: the last try is kept. Not
        one in which requests failed: that is the engine's, and must be seen. One in which all failed has nothing to
        show, so its failures are reported with the next try. `once` is given a name of its own for each try. Raises
        AllFailed: in every try.
        """
        lost: list[str] = []
        for tries in range(1, MOST_TRIES + 1):
            try:
                window = await once(window_of_try(name, tries))
            except AllFailed as error:
                lost += error.failures
                if tries == MOST_TRIES:
                    raise AllFailed(lost) from error
                continue
            if window.row["failed"] or not (starved(window.row) or is_client_limited(window.row)):
                break
        return window._replace(row=with_failures({**window.row, "tries": tries}, lost))


async def measure_conditions(
    ctx: StepContext,
    tables: TimedTables,
    conditions: Sequence[TimedCondition],
    names_a_window: Sequence[str] = NAMES_A_WINDOW,
    sent_in: Callable[[Row], Iterable[tuple[Any, ...]]] | None = None,
) -> list[tuple[list[Row], list[Row]]]:
    """Measure what no earlier attempt on this machine has finished; one part of each table per window.

    `names_a_window`: columns that identify a window; `sent_in`: those columns of its requests; None: its own. Returns
    windows and requests of each condition, of one start of the engine.
    """
    windows, requests = await _finished(ctx, tables, conditions, names_a_window, sent_in)
    for condition in conditions:
        condition.so_far, condition.peers = windows, conditions
        beside: list[str] | None = None
        while (wanted := condition.next_window(of_condition(condition.name, windows))) is not None:
            beside = await condition.warm_up() if beside is None else []
            window = await condition.measure(wanted)
            row = with_failures(window.row, beside)
            await ctx.write(tables.requests, window.requests)
            await ctx.write(tables.windows, [row])  # behind its requests: it says that they are all there
            windows.append(ctx.stamp(row))
            requests += map(ctx.stamp, window.requests)
            line, tok_s = condition.line(row)
            condition.tell(line + (f", measured {row['tries']} times" if row.get("tries", 1) > 1 else ""), tok_s)
    names = [condition.name for condition in conditions]
    return [(of_condition(name, windows), of_condition(name, requests)) for name in names]


async def _finished(
    ctx: StepContext,
    tables: TimedTables,
    conditions: Sequence[TimedCondition],
    names_a_window: Sequence[str],
    sent_in: Callable[[Row], Iterable[tuple[Any, ...]]] | None,
) -> tuple[list[Row], list[Row]]:
    """Windows and requests of the conditions that one earlier attempt finished on this machine.

    Rows of those that were only begun, and of other machines, stay in the commit and are no part of this one's figures.
    """
    kept = await ctx.resume(tables.windows, names_a_window)
    tied = sent_in or (lambda row: [tuple(row[name] for name in names_a_window)])
    sent = await ctx.resume(tables.requests, names_a_window, only={each for row in kept for each in tied(row)})
    whole: list[Row] = []
    for condition in conditions:
        here = [row for row in of_condition(condition.name, kept) if ctx.is_here(row)]
        last = max((row["attempt"] for row in here), default=None)
        of_last = [row for row in here if row["attempt"] == last]
        if condition.next_window(of_last) is None:
            whole += of_last
    taken = {(row["condition"], row["attempt"]) for row in whole}
    return whole, [row for row in sent if (row["condition"], row["attempt"]) in taken]


def of_condition(name: str, rows: Sequence[Row]) -> list[Row]:
    """Rows of a condition."""
    return [row for row in rows if row["condition"] == name]


def windows_wanted(repeats: Repeats, there: Sequence[Mapping[str, Any]]) -> int:
    """How many windows there must be, as far as those that there are can tell: repeated until the guard is content."""
    if repeats.within is None or len(there) < repeats.min:
        return repeats.min
    if unsteady(paces_of(there), repeats.within) is None:
        return len(there)
    return min(len(there) + 1, repeats.max)


async def window_of(
    ctx: StepContext,
    asked: Sequence[Asked],
    same: Row,
    on_answer: OnAnswer | None = None,
    moments_s: Sequence[float] = (),
    beside: Sequence[str] = (),
) -> Window:
    """Send requests in a closed loop, or each at its moment if there are any, as one window: see `timed`.

    `same` are columns of the window and its requests; `concurrency` is None in an open loop. `beside` has a sentence
    for each request beside it that failed.
    """
    load = await timed(ctx, ready_of(asked), same["concurrency"], on_answer, moments_s)
    # long texts take seconds to look through: heartbeats go on meanwhile
    rows = await asyncio.to_thread(request_rows, load, asked, same)
    window = {**same, **load.columns(), "chars": sum(row["chars"] for row in rows)}
    return Window(with_failures(window, beside), rows, load)


def window_of_try(name: str, number: int) -> str:
    """Name of a window in its first try, and in later ones, whose prompts are others."""
    return name if number == 1 else f"{name}-try-{number}"


def with_failures(window: Row, beside: Sequence[str]) -> Row:
    """A window's row, to which what failed beside it belongs: its warm-up, its probes. No engine fails only untimed."""
    first = window["first_failure"] or next(iter(beside), None)
    return window | {"failed": window["failed"] + len(beside), "first_failure": first}


async def tried(
    ctx: StepContext, tables: TimedTables, asked: Sequence[Asked], same: Row, what: str
) -> tuple[list[Row], Counters]:
    """Send a few requests one at a time before hours are spent; returns their rows, and what the engine counted.

    `same` are columns that all of them share; `what` one of them is, for people. Raises RequestFailed with the first.
    """

    def tell(ended: int, _: object) -> None:
        ctx.tell(Progress(100 * ended / len(asked), f"{what} {ended}/{len(asked)}"))

    window = await window_of(ctx, asked, {"condition": "smoke", "concurrency": 1, **same}, tell)
    window.load.answered.require_all()
    await ctx.write(tables.requests, window.requests)
    return window.requests, window.load.counted
