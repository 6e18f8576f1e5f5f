"""Renting by our own policy: a site that remembers, for all cells of a run, where it failed and when."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from configs.errors import SpecsweepError
from configs.schema import Cloud, Plan
from flows.clusters.answers import NoAnswer
from flows.clusters.protocol import CellNeed, Cluster, Decision, Launch, LaunchFailed, Wait
from flows.clusters.skypilot.remedies import explain
from flows.clusters.skypilot.server import text_of
from flows.clusters.skypilot.task_file import load_task
from flows.forecast.estimates import GPU_LAUNCH_S, GPU_START_S
from flows.forecast.forecast import Forecast, forecast
from flows.renting.policy import (
    CapacityPool,
    Event,
    Failures,
    Known,
    Pace,
    WatchedFrom,
    decide,
    pool_of,
    remember,
    why_on_demand,
)
from warehouse.ledger.clock import HOUR_S, moment_s
from warehouse.ledger.commits import Ledger
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import Offer, PlacementStory

CHANGEOVER_S = GPU_LAUNCH_S + GPU_START_S  # from asking for a machine until it measures, but for a first download
OFFERS_FRESH_S = 600.0  # how old the offers may be: catalogues change by the hour, and reading one takes a second
UNLISTED_S = 60.0  # pause before they are asked for again, where SkyPilot has not answered


class NothingToRent(LaunchFailed):
    """No enabled cloud offers what the task asks for, or nobody can be asked."""


class LastMachine(NamedTuple):
    """A cell's last machine, and when it was asked for (seconds since 1970)."""

    offer: Offer
    asked_s: float


class PolicySite:
    """A `Site` that chooses among offers by our policy; safe for the threads of many cells."""

    def __init__(
        self,
        offers: Callable[[], Sequence[Offer]],
        make_cluster: Callable[[str, Offer | None], Cluster],
        cloud: Cloud,
        history: Iterable[PlacementStory],
        now_s: Callable[[], float],
        rng: random.Random,
        *,
        waiting_s: Mapping[str, float] | None = None,
        places: int = 1,
        changeover_s: float = CHANGEOVER_S,
    ) -> None:
        """Learn from `history`, the run's placements so far; offers are not asked for until a cell needs one.

        `waiting_s`: forecast seconds of every cell that is not measured, by its key; without it each cell has the
        deadline to itself. `places`: cells that are measured at the same time.
        """
        self._offers, self.cluster, self._cloud = offers, make_cluster, cloud
        self._now_s, self._rng = now_s, rng
        self._waiting_s, self._places, self._changeover_s = dict(waiting_s or {}), places, changeover_s
        self._guard, self._listing = threading.Lock(), threading.Lock()
        self._listed: tuple[float, Sequence[Offer]] | None = None
        self._starts: dict[str, WatchedFrom] = {}
        self._rented: dict[str, LastMachine] = {}
        self._memory = Failures()
        self._refusals: dict[CapacityPool, str] = {}
        self._recall(history)

    def choose(self, need: CellNeed) -> Decision:
        """Where to launch the cell's next cluster, or when to ask again; NothingToRent without any offer."""
        try:
            self._look_at_offers()
        except NoAnswer as error:
            if self._listed is None:
                return Wait(self._now_s() + UNLISTED_S, f"{error}; next try in {UNLISTED_S / 60:.0f} min")
        with self._guard:
            last = self._rented.get(need.cell_key)
            was_on_demand = last is not None and not last.offer.spot
            known = Known(self._memory, self._pace(need), was_on_demand)
            now_s = self._now_s()
            decision = decide(self._allowed_offers(), need, self._cloud, known, now_s, self._rng)
            if isinstance(decision, Launch) and decision.offer is not None:
                self._rented[need.cell_key] = LastMachine(decision.offer, now_s)
                is_silent = not decision.why and not decision.offer.spot
                if is_silent and any(offer.spot for offer in self._current_offers()):
                    return decision._replace(why="on demand: every spot offer was refused")
            return decision

    def ended(self, cell_key: str, offer: Offer, loss: Ended | None, detail: str = "") -> None:
        """Remember how a placement ended (see `Site.ended`)."""
        with self._guard:
            if loss is Ended.REFUSED:
                self._refusals[pool_of(offer)] = detail or f"{offer.where}: refused"
            now_s, rented = self._now_s(), self._rented.get(cell_key)
            lived_s = now_s - rented.asked_s if rented is not None and rented.offer == offer else 0.0
            self._memory = remember(self._memory, Event(cell_key, pool_of(offer), loss, now_s, lived_s))

    def _recall(self, history: Iterable[PlacementStory]) -> None:
        """Learn from the placements of the run's earlier flows, in the order in which they ended."""
        stories = sorted(history, key=lambda story: moment_s(story.end.at if story.end else story.asked.asked_at))
        for story in stories:
            asked, asked_s = story.asked, moment_s(story.asked.asked_at)
            before = self._rented.get(asked.cell_key)
            if before is None or before.asked_s <= asked_s:
                self._rented[asked.cell_key] = LastMachine(asked.offer, asked_s)
            if story.end is None:
                self._waiting_s.pop(asked.cell_key, None)  # it may still be up; then it is adopted
                continue
            if story.end.outcome is Ended.REFUSED:
                continue  # whoever starts the run again may have mended it
            at_s = moment_s(story.end.at)
            event = Event(asked.cell_key, pool_of(asked.offer), story.end.outcome.loss, at_s, at_s - asked_s)
            self._memory = remember(self._memory, event)

    def _allowed_offers(self) -> Sequence[Offer]:
        """Current offers without those that the account can't rent: what it is refused, it is refused again."""
        offers = self._current_offers()
        refused = {pool for pool, trouble in self._memory.troubles.items() if trouble.kind is Ended.REFUSED}
        allowed = [offer for offer in offers if pool_of(offer) not in refused]
        if not allowed:
            said = "; ".join(dict.fromkeys(self._refusals.values()))
            raise NothingToRent(f"all that the task asks for was refused: mend that, and start the run again: {said}")
        return allowed

    def _look_at_offers(self) -> None:
        """List them anew where they are old, for one cell at a time; who only tells how a placement ended never waits.

        NoAnswer: what they were will do, if they are known.
        """
        with self._listing:
            now_s = self._now_s()
            if self._listed is not None and now_s - self._listed[0] <= OFFERS_FRESH_S:
                return
            try:
                self._listed = now_s, self._offers()
            except SpecsweepError:
                raise
            except Exception as error:  # SkyPilot's and the clouds' own, of many lines: the cause and what to do
                raise NothingToRent(explain(text_of(error))) from error

    def _current_offers(self) -> Sequence[Offer]:
        offers = self._listed[1] if self._listed is not None else ()
        if not offers:
            self._listed = None
            raise NothingToRent(
                f"nothing can be rented for the task {self._cloud.task!r} (cloud.task): no enabled cloud has its "
                "accelerators within its any_of and max_hourly_cost; `sweep doctor` tells which clouds are enabled"
            )
        return offers

    def _pace(self, need: CellNeed) -> Pace | None:
        """How the cell and its share of the waiting cells stand against the run's deadline; None without a deadline."""
        self._waiting_s.pop(need.cell_key, None)
        if self._cloud.finish_by_h is None:
            return None
        left_s = need.remaining_s + sum(self._waiting_s.values()) / self._places
        time_left_s = self._cloud.finish_by_h * 3600 - need.elapsed_s
        pace = Pace(self._starts.get(need.cell_key), left_s, time_left_s, self._changeover_s)
        if pace.start is None and pace.is_tight:
            pace = pace._replace(start=self._starts.setdefault(need.cell_key, WatchedFrom(left_s, time_left_s)))
        return pace


def expected(plan: Plan, ledger: Ledger | None) -> Forecast:
    """The forecast of what is left, on demand where spot would not be rented; or TaskFileError (`cloud.task`)."""
    committed = {} if ledger is None else ledger.committed_steps()
    left = forecast(plan, committed)
    if plan.cloud is None or not left.spot or left.gpu_h == 0:
        return left
    if not load_task(plan.cloud.task).allows_spot:
        return forecast(plan, committed, why_on_demand="use_spot is false in the sweep's task (cloud.task)")
    # what the policy says of all that is left, as if it were one cell that has lost nothing. With a deadline some cells
    # may still get spot. Nobody knows which, so all are priced as the last one would be
    cloud, work_s, pace = plan.cloud, left.wall_h * HOUR_S, None
    elapsed_s = 0.0 if ledger is None else ledger.age_s()
    if cloud.finish_by_h is not None:
        pace = Pace(None, work_s, cloud.finish_by_h * HOUR_S - elapsed_s, CHANGEOVER_S)
    need = CellNeed(cell_key="", losses=0, remaining_s=work_s, elapsed_s=elapsed_s)
    why = why_on_demand(need, cloud, Known(Failures(), pace, was_on_demand=False))
    return left if why is None else forecast(plan, committed, why_on_demand=why)
