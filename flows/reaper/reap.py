"""Ask everybody what is rented, decide, take down what has no owner, and close its records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from flows.clusters.answers import LOOK_S, MayYetCome, NoAnswer, answered
from flows.clusters.clouds.account import Account, CloudError, Instance, NotAsked
from flows.clusters.skypilot.api import Rented
from flows.clusters.skypilot.server import text_of
from flows.reaper.books import Books, CellOfRun
from flows.reaper.found import STRAY, Fate, Found, Reaped, ReapReport, fate_of, put_together, seen_again
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import PlacementStory
from warehouse.ledger.store import Store, StoreError

REASON = "reaped: nobody owned its cluster"  # reason of an attempt that the reaper closes

GONE = "gone when the reaper looked, and nobody managed it"
"""Detail of a placement whose cluster vanished without a word; its end is estimated (`warehouse.ledger.claims`)."""

SECOND_LOOK_S = 45.0
"""Pause before a second look at what seems to have no owner. A store that was away makes everybody silent, which a
process that begins after its return can't see. A laptop that wakes renews its labels. Runners send heartbeats every 5 s
and flows every 30 s. If a store fails them, they try it again within 5 s. So a living one is heard from meanwhile."""

AT_ONCE = 16  # clusters that go down at the same time, so that none waits for one that hangs


class Sky(Protocol):
    """What the reaper asks of SkyPilot: `flows.clusters.skypilot.api` has it."""

    def rented(self, names: list[str] | None = None, *, refresh: bool = False) -> list[Rented]:
        """Clusters that SkyPilot knows."""

    def take_down(self, name: str, *, purge: bool = False, is_ended: bool = False) -> bool:
        """Terminate a cluster; `purge`: forget it even if its cloud can't be asked. `is_ended`: its cloud has."""


@dataclass
class Census:
    """What everybody answered. `complete`: clouds that listed all their machines, but for `unseen`.

    `unseen`: places that could not be looked into (`aws`, `aws/us-west-2`), and why.
    """

    rented: list[Rented] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    complete: list[str] = field(default_factory=list)
    not_asked: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unseen: dict[str, str] = field(default_factory=dict)


def reap_store(
    store: Store,
    sky: Sky,
    accounts: Sequence[Account],
    now_s: float,
    *,
    dry_run: bool,
    pause: Callable[[float], None] = time.sleep,
) -> ReapReport:
    """Take down every cluster of ours that two looks find without an owner; with `dry_run`, say which after one look.

    Leases and flows of `store` own clusters; those of other stores are left until they expire. StoreError: it can't be
    read, so that nobody knows who owns what; nothing was touched.
    """
    census = _census(sky, accounts)  # before the owners are read: a flow records before it rents
    books = Books(store)
    found = put_together(census.rented, census.instances, census.complete, books.clusters)
    fates = [fate_of(each, books, now_s) for each in found]
    gone = _gone(books, census, {each.cluster for each in found}, now_s)
    doomed = {each.cluster for each, fate in zip(found, fates, strict=True) if fate.reap}
    expired = set(filter(books.knows_not, doomed))
    if not dry_run and (gone or expired or doomed & books.clusters.keys()):
        pause(SECOND_LOOK_S)
        found = seen_again(found, expired, accounts) if expired else found

    def one(each: Found, fate: Fate) -> Reaped:
        try:
            return _one(each, fate, books=books, sky=sky, accounts=accounts, now_s=now_s, dry_run=dry_run)
        except StoreError as error:  # it was there when the owners were read: what became of the others is told
            return Reaped(each, fate, "not down", None, None, text_of(error))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        reaped = tuple(pool.map(one, found, fates))
    closed = []
    for name, cell in gone.items():
        if not dry_run and books.owner(cell) is None:
            books.close(cell, Ended.AUTODOWNED, GONE, f"lost: {GONE}", was_there=False)
            closed.append(name)
    return ReapReport(
        store=store.url,
        dry_run=dry_run,
        reaped=reaped,
        asked=tuple(census.asked),
        not_asked=tuple(census.not_asked),
        problems=(*census.problems, *_rented_unseen(books, census)),
        closed=tuple(closed),
    )


def _census(sky: Sky, accounts: Sequence[Account]) -> Census:
    seen = Census()
    try:
        seen.rented = sky.rented()
        seen.asked.append("SkyPilot")
    except Exception as error:  # reported, with exit code 1: what the clouds themselves know still goes down
        seen.problems.append(f"SkyPilot could not be asked: {text_of(error)}")
    for account in accounts:
        try:
            sighting = answered(account.look, LOOK_S)
        except NotAsked as error:
            seen.not_asked.append(f"{account.cloud}: {error}")
            seen.unseen[account.cloud] = str(error)
            continue
        except Exception as error:  # of a library, too: reported, and the other clouds are asked all the same
            said = str(error) if isinstance(error, CloudError) else f"{account.cloud}: {text_of(error)}"
            seen.problems.append(said)
            seen.unseen[account.cloud] = said
            continue
        seen.asked.append(account.cloud)
        seen.instances += sighting.instances
        seen.not_asked += sighting.refused
        seen.unseen |= {place: why for place, _, why in (said.partition(": ") for said in sighting.refused)}
        seen.problems += sighting.problems
        if not sighting.problems:
            seen.complete.append(account.cloud)
        else:
            seen.unseen[account.cloud] = "; ".join(sighting.problems)
    return seen


def _one(
    found: Found, fate: Fate, *, books: Books, sky: Sky, accounts: Sequence[Account], now_s: float, dry_run: bool
) -> Reaped:
    cell = books.clusters.get(found.cluster)
    if fate.reap and not dry_run:
        fate = fate_of(found, books, now_s)  # asked at the last moment: a flow may adopt it while others go down
    age_s = None if found.since_s is None else max(0.0, now_s - found.since_s)
    usd_h = _usd_h(found, books, cell)
    if not fate.reap or dry_run:
        return Reaped(found, fate, "would go down" if fate.reap else "left", age_s, usd_h)
    failed, remark = _take_down(found, sky, accounts)
    if failed:
        return Reaped(found, fate, "not down", age_s, usd_h, remark)
    if cell is not None and found.status != STRAY:
        books.close(cell, Ended.REAPED, "reaped", REASON, was_there=not found.is_gone)
    return Reaped(found, fate, "down", age_s, usd_h, remark)


def _usd_h(found: Found, books: Books, cell: CellOfRun | None) -> float | None:
    if found.is_gone:
        return 0.0
    story = None if cell is None or found.price_usd_h is not None else books.story(cell)
    price = found.price_usd_h if story is None else story.asked.offer.price_usd_h
    return None if price is None else price * max(1, len(found.instances))


def _take_down(found: Found, sky: Sky, accounts: Sequence[Account]) -> tuple[bool, str]:
    """Whether that failed, and what was said: by id all that its cloud showed, then by SkyPilot if it knows it."""
    failures = []  # the ids first: they need no SkyPilot, and a failover may have left more than it knows
    for account in accounts:
        mine = [each for each in found.instances if each.cloud == account.cloud]
        try:
            if mine:
                answered(partial(account.terminate, mine), LOOK_S)
        except Exception as error:  # of a library, too: it becomes the cluster's line, and exit code 1
            failures.append(text_of(error))
    is_ended = found.clouds_asked and not failures
    refused = _down_by_sky(found, sky, is_ended=is_ended) if found.in_sky else None
    if refused is None:
        return bool(failures), "; ".join(failures)
    by_sky = f"SkyPilot can't take it down: {text_of(refused)}"
    if not is_ended or isinstance(refused, MayYetCome):
        return True, "; ".join([*failures, by_sky])
    # gone by the cloud's own word, so SkyPilot may forget it; if it doesn't answer, that is for the next time
    said = f"terminated by id, as {by_sky}"
    forgotten = None if isinstance(refused, NoAnswer) else _down_by_sky(found, sky, purge=True, is_ended=True)
    return forgotten is not None, said + (f"; SkyPilot can't forget: {text_of(forgotten)}" if forgotten else "")


def _down_by_sky(found: Found, sky: Sky, *, purge: bool = False, is_ended: bool) -> Exception | None:
    """Take a cluster down; returns what SkyPilot said if it could not, whatever that is."""
    try:
        sky.take_down(found.cluster, purge=purge, is_ended=is_ended)
    except Exception as error:
        return error
    return None


def _gone(books: Books, census: Census, there: set[str], now_s: float) -> dict[str, CellOfRun]:
    """Open records whose cluster neither SkyPilot nor its cloud lists any more, and which nobody seems to manage.

    Where a cloud can be asked through SkyPilot only, the cluster must have had the time to remove itself, too.
    """
    found = {}
    for name, cell in books.open.items():
        story = books.story(cell)
        if name in there or story is None or "SkyPilot" not in census.asked or _why_unseen(story, census) is not None:
            continue
        is_told = story.asked.offer.cloud in census.complete
        with books.reading():
            if (is_told or books.gone_s(cell, story) < now_s) and books.owner(cell) is None:
                found[name] = cell
    return found


def _rented_unseen(books: Books, census: Census) -> list[str]:
    """Clusters that are recorded as up where nobody may look: what they cost can't be stopped from here."""
    said = []
    for name, cell in books.open.items():
        story = books.story(cell)
        why = None if story is None else _why_unseen(story, census)
        if story is not None and why is not None:
            said.append(
                f"{name} was rented in {story.asked.offer.where}, and that can't be looked into ({why}): allow it, or "
                "start its run again"
            )
    return said


def _why_unseen(story: PlacementStory, census: Census) -> str | None:
    offer = story.asked.offer
    return census.unseen.get(offer.cloud) or census.unseen.get(f"{offer.cloud}/{offer.region}")
