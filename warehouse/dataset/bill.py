"""What rented machines cost, and what the seconds were spent on: bills of cells, and what a run or a month has cost.

A placement is billed at the price of its offer, from the machine's launch to its end, both as the cloud reports them.
Only AWS reports both, except the end of a machine that it takes back. Else the bill runs from the request until our
flow knew that the machine was down, or, where its end was not seen (`PlacementEnd.estimated`), until its last sign plus
the time that its own timers give it. `no_capacity` and `refused` cost nothing, because nothing was rented. Neither does
a spot machine that its cloud takes back soon (`FREE_IF_INTERRUPTED_WITHIN_S`): its seconds are listed, at no dollars.

The seconds are split by the moments that the flow wrote down (asked, submitted, down) and by what the node runner
reported of its own time. They sum to what is billed: where two machines' clocks disagree, the billed total wins.

`Spending` counts machines that are still up until now, and those that no process works with any more until they had
idled out (`warehouse.ledger.claims`). It reads a cell only when a listing shows that its placements' records changed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from warehouse.ledger.claims import end_after, estimated_end_s
from warehouse.ledger.clock import moment_s, usd_of
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Attempt, Leases
from warehouse.ledger.looks import SharedLook
from warehouse.ledger.placement import Placement, Placements, PlacementStory
from warehouse.ledger.runs import RUN_ID
from warehouse.ledger.store import Store

FREE_IF_INTERRUPTED_WITHIN_S = {"aws": 3600.0}
"""Age in seconds, by cloud, up to which a spot machine that the cloud itself interrupts is not charged.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-for-interrupted-spot-instances.html (Linux except SUSE).
"""

RUNNER_PHASES = ("load", "smoke", "measure", "lost")
"""How a node runner splits its own time; its record has each phase as `<phase>_s`."""


class Phases(NamedTuple):
    """Billed seconds by what they were spent on; `tables.BILLED_PHASES` says what each is."""

    provision: float = 0.0
    setup: float = 0.0
    load: float = 0.0
    smoke: float = 0.0
    measure: float = 0.0
    idle: float = 0.0
    lost: float = 0.0


class BillLine(NamedTuple):
    """One placement with the attempt that ran on it, or an attempt that was not placed (this machine).

    `number` is the attempt's; None: no node runner ever took the cell. `seconds`: None where nothing was rented.
    `tried`: offers that had no capacity since the line before.
    """

    number: int | None
    story: PlacementStory | None
    attempt: Attempt | None
    seconds: Phases | None
    tried: str

    @property
    def rented_s(self) -> float | None:
        """Seconds from renting until it was down, charged or not; None where nothing was rented."""
        return None if self.seconds is None else sum(self.seconds)

    @property
    def is_charged(self) -> bool:
        """Whether its seconds are paid for; False where nothing was rented."""
        return self.seconds is not None and self.story is not None and not is_free(self.story)

    @property
    def cost_usd(self) -> float | None:
        """Dollars for the rented machine, else what the attempt says; None without a price."""
        if self.seconds is None:
            return None if self.attempt is None else self.attempt.cost_usd
        return self.usd(sum(self.seconds))

    def usd(self, seconds: float) -> float | None:
        """Dollars for this many of its seconds; 0 if it isn't charged, None without a price."""
        price = None if self.story is None else self.story.asked.offer.price_usd_h
        if price is None:
            return None
        return usd_of(price, seconds) if self.is_charged else 0.0


def bill(stories: Sequence[PlacementStory], attempts: Sequence[Attempt], now_s: float | None = None) -> list[BillLine]:
    """The bill of one cell: a line per placement that was rented and per attempt that was not placed, as they began.

    Open placements are billed until `now_s`. With None they are omitted, so that the bill of finished placements is the
    same whenever it is made.
    """
    free = {attempt.attempt: attempt for attempt in attempts}
    lines: list[BillLine] = []
    tried: Counter[str] = Counter()
    for story in stories:
        if story.end is not None and not story.end.outcome.was_rented:
            tried[f"{story.asked.offer.where}: {story.end.outcome}"] += 1
        elif story.end is not None or now_s is not None:
            attempt = _attempt_on(story, free)
            number = attempt.attempt if attempt else story.end.attempt if story.end else None
            lines.append(BillLine(number, story, attempt, phases(story, attempt, now_s), _said(tried)))
            tried.clear()
    lines += [BillLine(attempt.attempt, None, attempt, None, "") for attempt in free.values()]
    return sorted(lines, key=_began)


def phases(story: PlacementStory, attempt: Attempt | None, now_s: float | None) -> Phases:
    """What a placement's seconds were spent on; they sum to `rented_s`.

    Each phase takes at most what those before it left, so that clocks that disagree can't make a bill longer.
    """
    left = rented_s(story, now_s)
    spent: dict[str, float] = {}
    rented, _ = rented_span(story, now_s)
    granted = None if attempt is None or attempt.started_at is None else moment_s(attempt.started_at)
    submitted = granted if story.up is None else moment_s(story.up.at)  # nobody said so: the flow died in between
    wanted = {
        "provision": left if submitted is None else submitted - rented,
        "setup": left if granted is None or submitted is None else granted - submitted,
        **({} if attempt is None else {name: getattr(attempt, f"{name}_s") or 0.0 for name in RUNNER_PHASES}),
    }
    for name, seconds in wanted.items():
        spent[name] = min(max(0.0, seconds), left)
        left -= spent[name]
    return Phases(**spent, idle=left)


def rented_s(story: PlacementStory, now_s: float | None) -> float:
    """Seconds of `rented_span`."""
    start_s, end_s = rented_span(story, now_s)
    return end_s - start_s


def rented_span(story: PlacementStory, now_s: float | None) -> tuple[float, float]:
    """First and last billed moment, s since 1970; empty: nothing was rented. ValueError: open, and `now_s` is None."""
    start_s = _launched_s(story)
    if story.end is not None:
        if not story.end.outcome.was_rented:
            return start_s, start_s
        known_s, by_cloud = moment_s(story.end.at), story.end.machine_ended_at
        return start_s, max(start_s, known_s if by_cloud is None else min(known_s, moment_s(by_cloud)))
    if now_s is None:
        raise ValueError(f"placement {story.asked.number} of {story.asked.cell_key} is open: say until when to bill it")
    return start_s, max(start_s, now_s)


def is_free(story: PlacementStory) -> bool:
    """Whether its cloud charges nothing, because it took the machine back soon."""
    end, offer = story.end, story.asked.offer
    if end is None or not end.interrupted or not offer.spot:
        return False
    start_s, end_s = rented_span(story, None)
    return end_s - start_s <= FREE_IF_INTERRUPTED_WITHIN_S.get(offer.cloud, 0.0)


def _launched_s(story: PlacementStory) -> float:
    """When a machine began to cost: never before it was asked for or after its runner was submitted, by any clock."""
    asked_s = moment_s(story.asked.asked_at)
    if story.up is not None and story.up.rented_at is not None:
        return max(asked_s, min(moment_s(story.up.rented_at), moment_s(story.up.at)))
    if story.end is not None and story.end.machine_launched_at is not None:  # its flow died before it could say so
        return max(asked_s, moment_s(story.end.machine_launched_at))
    return asked_s


def month_of(now_s: float) -> tuple[float, float]:
    """Start and end of the calendar month of a moment, UTC, seconds since 1970."""
    now = datetime.fromtimestamp(now_s, UTC)
    start = datetime(now.year, now.month, 1, tzinfo=UTC)
    end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return start.timestamp(), end.timestamp()


def _attempt_on(story: PlacementStory, free: dict[int, Attempt]) -> Attempt | None:
    """The attempt that ran on a placement; it is taken out of `free`, those without a placement yet."""
    if story.end is not None:
        return None if story.end.attempt is None else free.pop(story.end.attempt, None)
    asked = moment_s(story.asked.asked_at)
    later = [each.attempt for each in free.values() if each.started_at and moment_s(each.started_at) >= asked]
    return free.pop(max(later)) if later else None


def _said(tried: Counter[str]) -> str:
    return "; ".join(text if times == 1 else f"{text} ({times} times)" for text, times in tried.items())


def _began(line: BillLine) -> tuple[float, int]:
    if line.story is not None:
        return moment_s(line.story.asked.asked_at), line.story.asked.number
    began = "" if line.attempt is None else line.attempt.started_at or line.attempt.ended_at
    return moment_s(began), line.number or 0


RUN_REFRESH_S = 30.0
"""How old the listing of a run may be: at 10 USD/h, a new placement costs 8 cents before it is listed."""

STORE_REFRESH_S = 600.0
"""How old the listing of the whole store may be, which finds other runs' placements but lists every part too."""

READERS = 16  # cells read at the same time
_Cell = tuple[str, str]  # a run's id, and a cell's key

ANY_TIME = (float("-inf"), float("inf"))


class Spent(NamedTuple):
    """Dollars by cell key. `up`: clusters without a recorded end. `unpriced`: at an unknown price; they count as 0."""

    by_cell: Mapping[str, float]
    up: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()

    @property
    def usd(self) -> float:
        """Dollars of all cells together."""
        return sum(self.by_cell.values(), 0.0)


class Spending:
    """Reads a store's placements again and again; safe for many threads."""

    def __init__(self, store: Store, now_s: Callable[[], float], look: SharedLook | None = None) -> None:
        """`now_s` returns seconds since 1970; `look`: where a flow lists its run anyway."""
        self._store, self._look = store, look
        self._now_s = now_s
        self._lock = threading.Lock()
        self._stories: dict[_Cell, list[PlacementStory]] = {}
        self._placements: dict[_Cell, Placements] = {}
        self._records: dict[_Cell, list[str]] = {}
        self._read_at_s: dict[str, float] = {}
        self._until_s: dict[tuple[str, str, int], float] = {}
        """Until when an open placement is billed at the latest, by run, cell and number; it never becomes earlier."""

    def of_run(self, run_id: str, *, fresh: bool = False) -> Spent:
        """What one run has cost; `fresh` reads the store now."""
        with self._lock:
            self._refresh(f"runs/{run_id}/cells", 0.0 if fresh else RUN_REFRESH_S)
            return self._spent([cell for cell in self._stories if cell[0] == run_id], ANY_TIME)

    def of_month(self, *, fresh: bool = False) -> Spent:
        """What all runs of the store have cost in this calendar month, UTC; by cell, whatever its run."""
        with self._lock:
            self._refresh("runs", 0.0 if fresh else STORE_REFRESH_S)
            return self._spent(self._stories, month_of(self._now_s()))

    def _refresh(self, prefix: str, max_age_s: float) -> None:
        """List `prefix` if that was last done too long ago, and read the cells with new or open placements."""
        now_s = self._now_s()
        if prefix in self._read_at_s and now_s - self._read_at_s[prefix] < max_age_s:
            return
        keys, age_s = self._listed(prefix, max_age_s)
        records, until_s = _records(keys), now_s + max_age_s
        changed = [
            cell for cell, names in records.items() if self._records.get(cell) != names or self._is_due(cell, until_s)
        ]
        with ThreadPoolExecutor(READERS) as pool:
            self._stories |= zip(changed, pool.map(partial(self._read, until_s=until_s), changed), strict=True)
        self._records |= records
        self._read_at_s[prefix] = now_s - age_s

    def _listed(self, prefix: str, max_age_s: float) -> tuple[list[str], float]:
        """Keys below a prefix, and how many seconds ago they were listed."""
        if self._look is None or prefix != self._look.root or not max_age_s:
            return self._store.list(prefix), 0.0
        return self._look.keys(max_age_s)

    def _is_due(self, cell: _Cell, until_s: float) -> bool:
        """Whether an open placement of the cell is billed by then only if a runner or flow still works with it."""
        return any(
            story.end is None and self._until_s.get((*cell, story.asked.number), 0.0) <= until_s
            for story in self._stories[cell]
        )

    def _read(self, cell: _Cell, until_s: float) -> list[PlacementStory]:
        """The placements of a cell, and of the open ones whether they are billed until the next listing."""
        run_id, cell_key = cell
        ledger = Ledger(self._store, run_id)
        placements = self._placements.setdefault(cell, Placements(ledger, cell_key))
        stories = placements.stories()
        for story, later in zip(stories, [*stories[1:], None], strict=True):
            if story.end is not None:
                continue
            key = (run_id, cell_key, story.asked.number)
            next_asked_at = None if later is None else later.asked.asked_at
            known_s = max(self._until_s.get(key, 0.0), end_after(story, (), (), next_asked_at))
            if known_s <= until_s:  # one request for the runner's word, which may do, before some for its flow's
                beat = Leases(ledger, cell_key).heartbeat()
                known_s = end_after(story, [] if beat is None else [beat.at], (), next_asked_at)
            self._until_s[key] = known_s if known_s > until_s else estimated_end_s(ledger, story, next_asked_at)
        return stories

    def _spent(self, cells: Iterable[tuple[str, str]], within: tuple[float, float]) -> Spent:
        """Dollars of the billed seconds inside a span of time."""
        now_s = self._now_s()
        by_cell: dict[str, float] = {}
        up: list[str] = []
        unpriced: list[str] = []
        billed: set[Placement] = set()
        for run_id, cell_key in cells:
            for story in self._stories[run_id, cell_key]:
                if story.asked in billed:  # of a copy of a run
                    continue
                billed.add(story.asked)
                until_s = self._until_s.get((run_id, cell_key, story.asked.number), now_s)
                start_s, end_s = rented_span(story, min(now_s, until_s))
                inside_s = max(0.0, min(end_s, within[1]) - max(start_s, within[0]))
                seconds = 0.0 if is_free(story) else inside_s
                price = story.asked.offer.price_usd_h
                if story.end is None:
                    up.append(story.asked.cluster)
                if price is None and seconds > 0:
                    unpriced.append(f"{story.asked.cluster} on {story.asked.offer.where}")
                by_cell[cell_key] = by_cell.get(cell_key, 0.0) + usd_of(price or 0.0, seconds)
        return Spent(by_cell, tuple(up), tuple(unpriced))


def _records(keys: Iterable[str]) -> dict[_Cell, list[str]]:
    """Placements' records by run and cell, from keys `runs/<run>/cells/<cell>/placements/<n>[.word].json`."""
    found: dict[_Cell, list[str]] = {}
    for key in keys:
        parts = key.split("/")
        if len(parts) == 6 and parts[4] == "placements" and RUN_ID.match(parts[1]):
            found.setdefault((parts[1], parts[3]), []).append(parts[5])
    return found
