"""What rented machines cost, and what the seconds were spent on: one bill line per placement and per attempt.

A placement is billed at the price of its offer, from the machine's launch to its end, both as the cloud reports them.
Only AWS reports both, except the end of a machine that it takes back. Else the bill runs from the request until our
flow knew that the machine was down, or, where its end was not seen (`PlacementEnd.estimated`), until its last sign plus
the time that its own timers give it. `no_capacity` and `refused` cost nothing, because nothing was rented. Neither does
a spot machine that its cloud takes back soon (`FREE_IF_INTERRUPTED_WITHIN_S`): its seconds are listed, at no dollars.

The seconds are split by the moments that the flow wrote down (asked, submitted, down) and by what the node runner
reported of its own time. They sum to what is billed: where two machines' clocks disagree, the billed total wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from warehouse.ledger.clock import moment_s, usd_of
from warehouse.ledger.lease import Attempt
from warehouse.ledger.placement import PlacementStory

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
