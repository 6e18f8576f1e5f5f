"""What a step is given (cell, engine's client, a place to put rows), and what the file that measures it defines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Sequence
from copy import copy
from math import fsum
from time import monotonic
from typing import Any, NamedTuple, Protocol, cast

from configs.cell import Cell
from configs.schema import PlannedCell
from configs.step import MeasuredStep, module_of
from configs.visits import Measurement
from tasks import meters
from tasks.client import Client, RequestFailed
from tasks.engine.server import Engine
from tasks.frameworks.process import Frameworks
from tasks.meters import Cards
from tasks.prompts import PROSE_KEPT_AS, Prompt, build_prompt, paragraphs_here, prose_from_json
from warehouse.ledger.commits import Ledger, Part
from warehouse.ledger.tables import ENGINE_COUNTED, PROVENANCE, Row, Table
from warehouse.ledger.verdicts import Finding, Judgement

COUNTER_SETTLE_S = 2.0  # how long the engine's counters may lag behind its answers


class Progress(NamedTuple):
    """What a step is doing: share done in percent, a line for people, and the current rate if it has one."""

    percent: float
    line: str
    tok_s: float | None = None


class _Spending:
    """Seconds since a step's rows were last stored: each part that is stored takes them with it."""

    def __init__(self) -> None:
        self._since_s = monotonic()

    def take_s(self) -> float:
        since_s, self._since_s = self._since_s, monotonic()
        return self._since_s - since_s


class StepContext:
    """One step of one cell in one attempt. Rows go out as parts; the runner commits them when the step ends."""

    def __init__(
        self,
        planned: PlannedCell,
        served: Cell,
        client: Client,
        ledger: Ledger,
        measurement: Measurement,
        attempt: int,
        tell: Callable[[Progress], None],
        frameworks: Frameworks,
        engine: Engine | None = None,
        cards: Cards | None = None,
    ) -> None:
        self.planned = planned
        self.cell = served  # what is served: the planned cell, or its control
        self.client = client
        self.measurement = measurement
        self.step = measurement.name
        self.tell = tell
        self.frameworks = frameworks
        self.engine = engine  # what serves; None: something that nobody here has started
        self.cards = cards  # those that it uses; None: none, or the driver tells nothing of them
        self.parts: list[Part] = []
        self.facts: dict[str, Any] = {}  # columns of the provenance that only the step knows, e.g. `dataset_revision`
        self.recorded: list[dict[str, Any]] = []
        """Answers in the response log of an earlier attempt at this step, where several evaluations share it."""
        self._key = planned.cell.cell_key
        self._ledger = ledger
        self._attempt = attempt
        self._prose: tuple[str, ...] | None = None
        self._spending = _Spending()
        self._place: dict[str, Any] = {}
        self._machines: dict[int, str | None] = {}
        self._before: meters.Counters | None = None

    async def begin(self, place: Row) -> None:
        """Start the step's clock and store where this attempt measures; what earlier ones said stays in the commit.

        `place`: columns of `provenance`, as `tasks.place.provenance.gather` has them.
        """
        self._spending.take_s()  # what was waited for before is no part of its cost
        self._place = dict(place)
        earlier = await self.resume(PROVENANCE, ("attempt", "measured_at"))
        self._machines = {row["attempt"]: row["machine"] for row in earlier}
        await self.write(PROVENANCE, [self._place])
        technique = self.cell.technique
        if (technique.drafts or technique.denoises) and not self.measurement.spec.is_timed:
            self._before = await self.counters()  # over the engine as a whole: a timed step has windows for that

    async def keep_counted(self) -> None:
        """Store what the engine counted since `begin`, where that is of use; call it while the engine is there."""
        if self._before is not None:
            counted = (await self.counters()).since(self._before)
            await self.write(ENGINE_COUNTED, [dict(counted.columns())])

    async def end(self) -> list[Part]:
        """The parts to commit. Facts that only the step knows are added to its provenance; nobody's seconds are lost.

        An attempt's last provenance row counts. Seconds of rows that no later attempt took over (a smoke step starts
        anew) go with the provenance of the attempt that spent them.
        """
        if self.facts.items() - self._place.items():
            await self.write(PROVENANCE, [self._place | self.facts])
        taken = {part.key for part in self.parts}
        orphans = self._ledger.orphan_parts(self._key, self.step, but=taken)
        left = await asyncio.to_thread(lambda: [part for part, _ in orphans])
        carriers = {part.attempt: part.key for part in reversed(self.parts) if part.table == PROVENANCE.name}
        for number, part in enumerate(self.parts):
            if part.key == carriers.get(part.attempt):
                further_s = fsum(other.spent_s or 0.0 for other in left if other.attempt == part.attempt)
                self.parts[number] = part.model_copy(update={"spent_s": (part.spent_s or 0.0) + further_s})
        return self.parts

    def part(self, index: int, count: int) -> StepContext:
        """This context for part `index` (from 0) of `count`: the progress of all parts adds up to the step's."""
        part = copy(self)
        part.tell = lambda progress: self.tell(progress._replace(percent=(100 * index + progress.percent) / count))
        return part

    def stamp(self, row: Row) -> dict[str, Any]:
        """The row with its identity: run, cell, step, attempt, moment."""
        return {
            "run_id": self._ledger.run_id,
            "cell_key": self._key,
            "step": self.step,
            "attempt": self._attempt,
            "measured_at": self._ledger.clock.now_iso(),
            **row,
        }

    async def prose(self) -> tuple[str, ...]:
        """The run's own paragraphs, the same on every node; a run from before it kept them has those of this Python."""
        if self._prose is None:
            kept = await asyncio.to_thread(self._ledger.prompts, PROSE_KEPT_AS)
            self._prose = paragraphs_here() if kept is None else prose_from_json(kept)
        return self._prose

    async def prompt(self, kind: str, seed: int, context_tokens: int, output_tokens: int) -> Prompt:
        """`build_prompt` with the run's prose, counted by this cell's engine: call it before the clock starts."""
        return await build_prompt(kind, seed, context_tokens, output_tokens, self.prose, self.client.count_tokens)

    async def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Store rows as a part of this step, off the event loop. From then on they survive this attempt."""
        if not rows:
            return
        store, stamped = self._ledger.write_part, [self.stamp(row) for row in rows]
        spent_s = self._spending.take_s()
        self.parts.append(await asyncio.to_thread(store, self._key, self.step, table, stamped, self._attempt, spent_s))

    async def resume(
        self, table: Table, identity: Sequence[str], only: Collection[tuple[Any, ...]] | None = None
    ) -> list[dict[str, Any]]:
        """Rows of `table` that earlier attempts measured; their parts join this step's commit.

        A part is taken whole or not at all. One that repeats rows already taken stays an orphan: a runner that had lost
        the cell measured it beside its successor. `identity`: the columns that tell one measurement from another;
        `only`: identities that may be taken, None: any.
        """
        found = await asyncio.to_thread(lambda: list(self._ledger.orphan_parts(self._key, self.step, table)))
        kept: list[dict[str, Any]] = []
        taken: set[tuple[Any, ...]] = set()
        for part, rows in found:
            keys = {tuple(row.get(column) for column in identity) for row in rows}
            if not keys & taken and (only is None or keys <= set(only)):
                taken |= keys
                kept += rows
                self.parts.append(part)
        return kept

    def is_here(self, row: Row) -> bool:
        """Whether an earlier attempt measured the row on this machine, or before attempts said on which they were."""
        return self._machines.get(row["attempt"]) in (None, self._place.get("machine"))

    async def counters(self) -> meters.Counters:
        """The engine's counters now; every field is None if it shows none."""
        try:
            return meters.parse(await self.client.text("/metrics"))
        except RequestFailed:
            return meters.parse("")  # not an error here: `token_mismatch` reports an engine without counters

    async def counters_after(self, before: meters.Counters, requests: int) -> meters.Counters:
        """What was counted since `before`; waits up to `COUNTER_SETTLE_S` for `requests` finished requests to show."""
        deadline = asyncio.get_running_loop().time() + COUNTER_SETTLE_S
        while True:
            counted = (await self.counters()).since(before)
            settled = counted.requests_finished is None or counted.requests_finished >= requests
            if settled or asyncio.get_running_loop().time() > deadline:
                return counted
            await asyncio.sleep(0.05)


class StepFile(Protocol):
    """What `tasks/steps/<step>.py` defines.

    And may define: `make_ready(spec, tell)`, what can be fetched, installed or found missing before an engine starts.
    It calls `tell` with a line at least every second, and an error out of that ends it at once. `smoke(ctx, spec,
    items)`, a `Trial`, where the items of other steps don't tell enough.
    """

    def measure(self, ctx: StepContext, spec: MeasuredStep) -> Awaitable[list[Judgement]]:
        """Measure what no earlier attempt measured, write the rows, and judge all of them."""


def file_of(spec: MeasuredStep) -> StepFile:
    """The file that measures the step of `spec`. Raises StepIncomplete: there is none."""
    return cast(StepFile, module_of("tasks", spec))


Trial = Callable[[StepContext, MeasuredStep, int], Awaitable[list[Finding | None]]]
"""Tries so many items of a step's work before hours are spent, and returns what the guards say."""


def trial_of(spec: MeasuredStep) -> Trial | None:
    """How the step is tried; None: it has nothing to try of its own. Raises as `file_of` does."""
    return cast(Trial | None, getattr(file_of(spec), "smoke", None))


class NotWanted(Exception):
    """Raised out of `tell`, in the thread that makes a step ready: its runner was asked to stop."""


async def make_ready(spec: MeasuredStep, tell: Callable[[str], None]) -> None:
    """Do what the step can do before there is an engine; if cancelled, it ends with the next line that it tells.

    So a stop doesn't wait for an install or a download. Raises SpecsweepError: the step can't be measured here.
    """
    prepare = getattr(file_of(spec), "make_ready", None)
    if prepare is None:
        return
    cancelled = threading.Event()

    def tell_if_wanted(line: str) -> None:
        if cancelled.is_set():
            raise NotWanted
        tell(line)

    try:
        await asyncio.to_thread(prepare, spec, tell_if_wanted)
    except asyncio.CancelledError:
        cancelled.set()
        raise
