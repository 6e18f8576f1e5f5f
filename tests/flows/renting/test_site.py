"""The renting site over whole lives of cells: zones that fail, capacity that is gone, deadlines, a restarted flow.

The zones exist on paper only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from configs.schema import Cloud
from flows.clusters.answers import NoAnswer
from flows.clusters.protocol import CellNeed, Launch, Wait
from flows.renting.site import NothingToRent, PolicySite
from tests.fake_cloud import OFFER, JumpingClock
from warehouse.ledger.clock import iso_of
from warehouse.ledger.commits import Ledger
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import Offer, PlacementEnd, Placements
from warehouse.ledger.store import open_store

START_S = 1_800_000_000.0  # the first moment of every simulation
ASKING_S = 2.0  # how long a cloud takes to say that it has no capacity


def offer(zone: str, *, spot: bool = True, price_usd_h: float | None = None) -> Offer:
    price = price_usd_h if price_usd_h is not None else 2.5 if spot else 7.0
    return OFFER.model_copy(update={"region": zone[:-1], "zone": zone, "spot": spot, "price_usd_h": price})


def cloud(**fields: object) -> Cloud:
    return Cloud.model_validate({"task": "lab", **fields})


def need(cell_key: str = "c1", **fields: Any) -> CellNeed:
    """A cell with an hour of work left that has just begun."""
    return CellNeed(cell_key, losses=0, remaining_s=3600.0, elapsed_s=0.0)._replace(**fields)


def site_of(
    offers: list[Offer], hands: JumpingClock, settings: Cloud | None = None, seed: int = 1, **more: Any
) -> PolicySite:
    def no_cluster(cell_key: str, offer: Offer | None) -> Any:
        raise AssertionError("no test of the policy launches anything")

    rng = random.Random(seed)
    return PolicySite(lambda: offers, no_cluster, settings or cloud(), [], hands.now_s, rng, **more)


class Life(NamedTuple):
    """What became of a cell: every launch with its moment and end, seconds waited, and when it was done."""

    launches: list[tuple[float, Offer, Ended | None]]
    waits: list[Wait]
    done_s: float

    def zones(self) -> list[str | None]:
        return [offer.zone for _, offer, _ in self.launches]


class World(NamedTuple):
    """What clouds do: whether an offer has capacity at a moment, and after how many seconds a machine is lost."""

    has_capacity: Callable[[Offer, float], bool]
    lost_after_s: Callable[[Offer], tuple[float, Ended] | None]


def live(
    site: PolicySite, hands: JumpingClock, world: World, work_s: float, changeover_s: float, cell_key: str = "c1"
) -> Life:
    """One cell from its first choice until its work is done; progress starts a changeover after each launch."""
    done_s, losses, began_s = 0.0, 0, hands.at_s
    launches: list[tuple[float, Offer, Ended | None]] = []
    waits: list[Wait] = []
    end: Ended | None
    while True:
        assert len(launches) + len(waits) < 10_000, "the policy never gets anywhere"
        decision = site.choose(CellNeed(cell_key, losses, work_s - done_s, hands.at_s - began_s))
        if isinstance(decision, Wait):
            waits.append(decision)
            hands.at_s = decision.until_s
            continue
        assert isinstance(decision, Launch) and decision.offer is not None
        rented, at_s = decision.offer, hands.at_s
        needs_s = changeover_s + work_s - done_s
        takes_s, end = needs_s, None
        if not world.has_capacity(rented, at_s):
            takes_s, end = ASKING_S, Ended.NO_CAPACITY
        elif (lost := world.lost_after_s(rented)) and lost[0] < needs_s:
            takes_s, end = lost
            losses += 1
            done_s += max(0.0, takes_s - changeover_s)
        hands.at_s += takes_s
        launches.append((at_s, rented, end))
        site.ended(cell_key, rented, end)
        if end is None:
            return Life(launches, waits, hands.at_s)


A, B, C = offer("us-east-1a", price_usd_h=2.0), offer("us-east-1b"), offer("us-west-2a", price_usd_h=3.0)
ON_DEMAND = offer("us-east-1a", spot=False)

CHANGEOVER_S = 480.0
PATIENT = cloud(on_demand_after=1000)


@pytest.fixture
def hands() -> JumpingClock:
    return JumpingClock()


def always(offer: Offer, at_s: float) -> bool:
    return True


def never_lost(offer: Offer) -> None:
    return None


def chosen(site: PolicySite, cell_key: str = "c1") -> Offer | None:
    """What a cell gets now; None: it waits."""
    decision = site.choose(need(cell_key))
    return decision.offer if isinstance(decision, Launch) else None


def no_loss(life: Life) -> list[Ended | None]:
    return [loss for _, _, loss in life.launches]


def test_without_trouble_a_cell_is_launched_once_in_the_cheapest_place(hands: JumpingClock) -> None:
    life = live(site_of([A, B, ON_DEMAND], hands), hands, World(always, never_lost), 3600, CHANGEOVER_S)
    assert life.zones() == ["us-east-1a"] and no_loss(life) == [None] and not life.waits


def test_a_zone_that_always_fails_is_asked_rarely_and_ever_more_rarely(hands: JumpingClock) -> None:
    site = site_of([A, B, C], hands, PATIENT)
    world = World(lambda where, _: where != A, lambda where: (3000, Ended.PREEMPTED))
    lives = [live(site, hands, world, 2500, CHANGEOVER_S, f"c{cell}") for cell in range(40)]
    asked = [at_s - START_S for life in lives for at_s, where, _ in life.launches if where == A]
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    # four times in the first three hours, then once in four
    assert 6 <= len(asked) <= 4 + (hands.at_s - START_S) / (4 * 3600)
    assert pauses[-1] > 4 * 3600 > 3600 > pauses[0]


def test_a_zone_whose_setup_always_fails_is_left_to_others(hands: JumpingClock) -> None:
    site = site_of([A, B], hands, PATIENT)
    world = World(always, lambda where: (200, Ended.SETUP_FAILED) if where == A else None)
    lives = [live(site, hands, world, 3600, CHANGEOVER_S, f"c{cell}") for cell in range(30)]
    assert all(life.zones()[-1] == "us-east-1b" for life in lives)
    failed = [life.zones().count("us-east-1a") for life in lives]
    assert max(failed) == 1 and sum(failed[10:]) <= 6


@pytest.mark.parametrize("seed", range(20))
def test_no_cell_goes_back_to_the_zone_that_it_has_just_lost_while_there_is_another(seed: int) -> None:
    rng, hands = random.Random(seed), JumpingClock()
    site = site_of([A, B], hands, PATIENT, seed)
    world = World(always, lambda _: (rng.uniform(700, 3000), Ended.PREEMPTED))
    zones = live(site, hands, world, 8 * 3600, 300).zones()
    assert len(zones) > 8 and all(first != second for first, second in pairwise(zones))


def test_capacity_gone_everywhere_and_back_again_is_waited_for(hands: JumpingClock) -> None:
    back_s = START_S + 5 * 3600
    world = World(lambda _, at_s: at_s >= back_s, never_lost)
    life = live(site_of([A, B, C], hands), hands, world, 3600, CHANGEOVER_S)
    assert life.done_s - (3600 + CHANGEOVER_S) - back_s < 600 and 10 <= len(life.waits) <= 120
    assert all("no_capacity" in wait.why and "next try in" in wait.why for wait in life.waits)


def test_after_three_losses_the_cell_is_on_demand_and_others_are_not(hands: JumpingClock) -> None:
    site = site_of([A, B, C, ON_DEMAND], hands)
    world = World(always, lambda where: (900, Ended.PREEMPTED) if where.spot else None)
    life = live(site, hands, world, 7200, CHANGEOVER_S)
    assert [place.spot for _, place, _ in life.launches] == [True, True, True, False]
    hands.at_s += 7200
    fresh = chosen(site, "c2")
    assert fresh is not None and fresh.spot


def test_a_cell_without_any_spot_goes_on_demand_when_its_deadline_gets_tight_and_not_before(
    hands: JumpingClock,
) -> None:
    settings = cloud(finish_by_h=10)
    world = World(lambda where, _: not where.spot, never_lost)
    life = live(site_of([A, B, ON_DEMAND], hands, settings), hands, world, 4 * 3600, CHANGEOVER_S)
    at_s, where, _ = life.launches[-1]
    tight_s = START_S + 10 * 3600 - 4 * 3600 / 0.7  # progress is watched from here on, and there is none
    assert where == ON_DEMAND and tight_s < at_s <= tight_s + 5
    assert life.done_s <= START_S + 10 * 3600


@pytest.mark.parametrize("seed", range(60))
def test_deadlines_are_met_whatever_spot_does_where_on_demand_is_to_be_had(seed: int) -> None:
    rng, hands = random.Random(seed), JumpingClock()
    work_s = rng.uniform(1800, 8 * 3600)
    whole_s = (work_s + 2 * CHANGEOVER_S) * rng.uniform(1.0, 3.0) + 60
    mean_life_s, mean_spell_s, share = rng.uniform(300, 20_000), rng.uniform(60, 7200), rng.random()

    def has_capacity(where: Offer, at_s: float) -> bool:
        spell = random.Random(f"{seed} {where.zone} {at_s // mean_spell_s}")
        return not where.spot or spell.random() < share

    def lost_after_s(where: Offer) -> tuple[float, Ended] | None:
        return (rng.expovariate(1 / mean_life_s), Ended.PREEMPTED) if where.spot else None

    settings = cloud(finish_by_h=whole_s / 3600, on_demand_after=1000)
    site = site_of([A, B, C, ON_DEMAND], hands, settings, seed, changeover_s=CHANGEOVER_S)
    life = live(site, hands, World(has_capacity, lost_after_s), work_s, CHANGEOVER_S)
    # asking places that have no capacity takes seconds that the formula knows nothing of
    asking_s = 2.0 * sum(loss == "no_capacity" for loss in no_loss(life)) + len(life.waits)
    assert life.done_s - START_S <= whole_s + asking_s


def test_cells_that_still_wait_for_a_place_count_against_the_deadline(hands: JumpingClock) -> None:
    settings = cloud(finish_by_h=2.5)
    waiting_s = {f"c{i}": 3600.0 for i in range(1, 6)}
    assert chosen(site_of([A, ON_DEMAND], hands, settings)) == A, "alone"
    for places, offer_of_it in ((4, A), (2, ON_DEMAND)):
        site = site_of([A, ON_DEMAND], hands, settings, waiting_s=waiting_s, places=places)
        assert chosen(site) == offer_of_it


def test_a_restarted_flow_remembers_what_the_run_wrote_down(hands: JumpingClock, tmp_path: Path) -> None:
    ledger = Ledger(open_store(str(tmp_path)), "night")
    placements = Placements(ledger, "c1")
    for place, asked_s, end_s, outcome in ((A, 0, 1500, Ended.PREEMPTED), (B, 1510, 1512, Ended.NO_CAPACITY)):
        asked = placements.ask("cluster", place, "flow", iso_of(START_S + asked_s))
        placements.end(asked.number, PlacementEnd(at=iso_of(START_S + end_s), outcome=outcome))
    for at_s, wanted in ((1600, C), (1512 + 601, B), (1500 + 1801, A)):
        hands.at_s = START_S + at_s
        restarted = PolicySite(
            lambda: [A, B, C], lambda *_: pytest.fail(), PATIENT, placements.stories(), hands.now_s, random.Random(1)
        )
        assert chosen(restarted, "c2") == wanted


def test_cells_share_what_one_of_them_has_learnt_and_wait_for_different_moments(hands: JumpingClock) -> None:
    site = site_of([A], hands)
    assert chosen(site) == A
    site.ended("c1", A, Ended.NO_CAPACITY)
    waits = [site.choose(need(f"c{cell}")) for cell in range(2, 12)]
    assert all(isinstance(wait, Wait) for wait in waits)
    assert len({wait.until_s for wait in waits if isinstance(wait, Wait)}) == 10


def test_many_threads_may_ask_and_tell_at_once(hands: JumpingClock) -> None:
    site = site_of([A, B, C], hands, PATIENT)

    def cell(number: int) -> int:
        launches = 0
        for _ in range(200):
            decision = site.choose(need(f"c{number}"))
            if isinstance(decision, Launch) and decision.offer is not None:
                launches += 1
                site.ended(f"c{number}", decision.offer, Ended.NO_CAPACITY)
        return launches

    with ThreadPoolExecutor(8) as pool:
        launches = list(pool.map(cell, range(8)))
    # every place fails at once and nobody may ask it again before it has rested: at most what was on its way
    assert 3 <= sum(launches) <= 3 * 8


def test_nothing_to_rent_is_one_line_with_the_remedy() -> None:
    with pytest.raises(NothingToRent, match=r"task 'lab' \(cloud.task\).*`sweep doctor`") as error:
        site_of([], JumpingClock()).choose(need())
    assert "\n" not in str(error.value)


def test_clouds_that_can_not_be_asked_are_one_line_with_the_remedy() -> None:
    def offers() -> list[Offer]:
        raise RuntimeError("Cloud access is not set up. Run:\n  \x1b[1m$ sky check\x1b[0m\n" + "| AWS | no |\n" * 40)

    site = PolicySite(offers, lambda *_: pytest.fail(), cloud(), [], JumpingClock().now_s, random.Random(1))
    with pytest.raises(NothingToRent, match=r"no cloud is enabled; remedy: .*`bin/sky check`") as error:
        site.choose(need())
    assert "\n" not in str(error.value)


def test_offers_are_listed_again_after_ten_minutes() -> None:
    hands, listed = JumpingClock(), [[B], [A]]
    site = PolicySite(listed.pop, lambda *_: pytest.fail(), PATIENT, [], hands.now_s, random.Random(1))
    for _ in range(3):
        assert site.choose(need()) == Launch(A)
    hands.at_s += 601
    assert site.choose(need()) == Launch(B)


def test_while_skypilot_does_not_answer_a_cell_waits_or_takes_what_was_offered_before() -> None:
    hands, answers = JumpingClock(), [NoAnswer("no answer"), [A], NoAnswer("no answer")]

    def offers() -> list[Offer]:
        answer = answers.pop()
        if isinstance(answer, NoAnswer):
            raise answer
        return answer

    site = PolicySite(offers, lambda *_: pytest.fail(), PATIENT, [], hands.now_s, random.Random(1))
    waits = site.choose(need())
    assert isinstance(waits, Wait) and waits.until_s > hands.at_s and "no answer" in waits.why
    assert site.choose(need()) == Launch(A)
    hands.at_s += 601
    assert site.choose(need()) == Launch(A)


def test_where_every_spot_offer_is_refused_the_log_says_why_a_cell_is_on_demand() -> None:
    site = site_of([A, ON_DEMAND], JumpingClock())
    site.ended("c1", A, Ended.REFUSED, "no spot quota")
    assert site.choose(need("c1")) == Launch(ON_DEMAND, "on demand: every spot offer was refused")


def test_what_the_account_may_not_rent_is_not_asked_again_and_the_run_ends_when_nothing_else_is_left(
    hands: JumpingClock,
) -> None:
    site = site_of([A, B], hands, PATIENT)
    site.ended("c1", A, Ended.REFUSED, "us-east-1a: no quota; remedy: ask for it")
    for _ in range(3):
        hands.at_s += 24 * 3600
        assert site.choose(need("c1")) == Launch(B), "neither a rest nor another cell makes it allowed"
        site.ended("c1", B, Ended.NO_CAPACITY)
    site.ended("c2", B, Ended.REFUSED, "us-east-1b: lacks a permission")
    with pytest.raises(NothingToRent, match=r"1a: no quota; remedy: ask for it; us-east-1b: lacks a permission"):
        site.choose(need("c3"))
