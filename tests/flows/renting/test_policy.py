"""The rental policy's decisions: which place, spot or on demand, or how long to wait, and what it says."""

import random
from typing import Any

import pytest

from flows.clusters.protocol import Launch, Wait
from flows.renting.policy import Event, Failures, Known, Pace, WatchedFrom, decide, pool_of, remember
from tests.flows.renting.test_site import START_S, cloud, need, offer
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import Offer

EAST_A, EAST_B, WEST = offer("us-east-1a"), offer("us-east-1b"), offer("us-west-2a", price_usd_h=2.6)
OD_EAST, OD_WEST = offer("us-east-1a", spot=False), offer("us-west-2a", spot=False)
ALL = [EAST_A, EAST_B, WEST, OD_EAST, OD_WEST]

CHANGEOVER_S = 480.0


def after(*events: Event) -> Failures:
    memory = Failures()
    for event in events:
        memory = remember(memory, event)
    return memory


def failed(at: Offer, kind: str, at_s: float, lived_s: float = 2.0, cell_key: str = "c1") -> Event:
    return Event(cell_key, pool_of(at), Ended(kind), at_s, lived_s)


def known(memory: Failures | None = None, pace: Pace | None = None, *, was_on_demand: bool = False) -> Known:
    return Known(memory or Failures(), pace, was_on_demand)


def launched(offers: list[Offer], what: Known, now_s: float = START_S, seed: int = 1, **fields: Any) -> Launch:
    decision = decide(offers, need(**fields), cloud(), what, now_s, random.Random(seed))
    assert isinstance(decision, Launch), decision
    return decision


def is_spot(what: Known) -> bool:
    offer = launched(ALL, what).offer
    return offer is not None and offer.spot


def waits(offers: list[Offer], what: Known, now_s: float = START_S, seed: int = 1) -> Wait:
    decision = decide(offers, need(), cloud(), what, now_s, random.Random(seed))
    assert isinstance(decision, Wait), decision
    return decision


def test_the_cheapest_spot_offer_comes_first() -> None:
    assert launched([OD_EAST, WEST, EAST_B], known()).offer == EAST_B


def test_cells_spread_over_places_of_one_price() -> None:
    chosen = [launched(ALL, known(), seed=seed).offer for seed in range(20)]
    assert EAST_A in chosen and EAST_B in chosen and all(each in (EAST_A, EAST_B) for each in chosen)


@pytest.mark.parametrize("seed", range(10))
def test_the_zone_just_lost_is_left_for_another_even_a_dearer_one(seed: int) -> None:
    memory = after(failed(EAST_A, "preempted", START_S, 1200))
    assert launched([EAST_A, WEST], known(memory), START_S + 1, seed, losses=1).offer == WEST


def test_a_place_is_as_good_as_before_once_its_time_is_over() -> None:
    memory = after(failed(EAST_A, "preempted", START_S, 1200))
    assert launched([EAST_A, WEST], known(memory), START_S + 1799).offer == WEST
    assert launched([EAST_A, WEST], known(memory), START_S + 1801).offer == EAST_A


def test_each_failure_in_a_row_doubles_how_long_a_place_is_avoided() -> None:
    at_s, memory, avoided = START_S, Failures(), []
    for _ in range(8):
        memory = remember(memory, failed(EAST_A, "no_capacity", at_s))
        trouble = memory.troubles[pool_of(EAST_A)]
        avoided.append(trouble.avoid_s)
        at_s = trouble.avoided_until_s + 5
    assert avoided == [600, 1200, 2400, 4800, 9600, 14400, 14400, 14400]


def test_a_wave_of_losses_counts_once_and_a_long_life_starts_a_new_row() -> None:
    wave = after(*(failed(EAST_A, "preempted", START_S + i, 1000 + i, f"c{i}") for i in range(6)))
    assert wave.troubles[pool_of(EAST_A)].in_a_row == 1
    twice = remember(wave, failed(EAST_A, "preempted", START_S + 2000, 100))
    assert twice.troubles[pool_of(EAST_A)].in_a_row == 2
    later = remember(twice, failed(EAST_A, "preempted", START_S + 5000, 2500))
    assert later.troubles[pool_of(EAST_A)].in_a_row == 1


def test_work_done_clears_a_place_unless_it_was_begun_before_the_failure() -> None:
    memory = after(failed(EAST_A, "no_capacity", START_S))
    begun_before = Event("c2", pool_of(EAST_A), None, START_S + 100, 4000.0)
    begun_after = Event("c2", pool_of(EAST_A), None, START_S + 4000, 3000.0)
    assert not remember(memory, begun_before).is_clear(pool_of(EAST_A), START_S + 101)
    assert remember(memory, begun_after).is_clear(pool_of(EAST_A), START_S + 4001)


def test_nothing_clear_means_a_rested_place_and_the_one_just_lost_comes_last() -> None:
    memory = after(
        failed(EAST_A, "preempted", START_S, 1200, "c1"), failed(EAST_B, "no_capacity", START_S + 10, cell_key="c2")
    )
    for cell_key, expected in (("c1", EAST_B), ("c2", EAST_A)):
        decision = launched([EAST_A, EAST_B], known(memory), START_S + 60, cell_key=cell_key)
        assert decision == Launch(expected, f"every place failed lately: trying {expected.where} again")


def test_the_only_zone_is_used_again_after_a_short_rest() -> None:
    memory = after(failed(EAST_A, "preempted", START_S, 1200))
    wait = waits([EAST_A], known(memory), START_S + 1)
    assert START_S + 30 <= wait.until_s <= START_S + 45
    assert launched([EAST_A], known(memory), wait.until_s).offer == EAST_A


def test_no_capacity_anywhere_waits_and_says_what_was_tried_when_and_when_next() -> None:
    memory = after(failed(EAST_A, "no_capacity", START_S - 20), failed(EAST_B, "no_capacity", START_S - 10))
    wait = waits([EAST_A, EAST_B], known(memory))
    assert wait.why.startswith(
        "nothing to be had: aws/us-east-1b spot no_capacity 10 s ago, aws/us-east-1a spot no_capacity 20 s ago; "
        "next try in "
    )
    assert wait.why.endswith(" UTC") and "\n" not in wait.why
    assert START_S + 10 <= wait.until_s <= START_S + 25


def test_many_places_are_counted_and_the_latest_named() -> None:
    zones = [offer(f"us-east-1{letter}") for letter in "abcdefg"]
    memory = after(*(failed(zone, "no_capacity", START_S - i) for i, zone in enumerate(zones)))
    assert waits(zones, known(memory)).why.count("no_capacity") == 4
    assert "and 3 more places" in waits(zones, known(memory)).why


def test_waits_double_up_to_the_bound_and_differ_between_cells() -> None:
    at_s, memory, spans = START_S, Failures(), []
    for _ in range(12):
        memory = remember(memory, failed(EAST_A, "no_capacity", at_s))
        wait = waits([EAST_A], known(memory), at_s)
        spans.append(wait.until_s - at_s)
        failed_s, at_s = at_s, wait.until_s
    assert 30 <= spans[0] <= 45 and 60 <= spans[1] <= 90 and 120 <= spans[2] <= 180
    assert all(400 <= span <= 600 for span in spans[6:])
    assert len({waits([EAST_A], known(memory), failed_s, seed).until_s for seed in range(20)}) == 20


def test_after_the_allowed_losses_the_cell_is_rented_on_demand() -> None:
    assert launched(ALL, known(), losses=2).offer in (EAST_A, EAST_B)
    third = launched(ALL, known(), losses=3)
    assert third.offer is not None and not third.offer.spot
    assert third.why == "on demand: lost 3 machines (cloud.on_demand_after: 3)"


def test_on_demand_avoids_the_zone_that_has_just_reclaimed() -> None:
    memory = after(failed(EAST_A, "preempted", START_S, 1200))
    for _ in range(5):
        assert launched(ALL, known(memory), START_S + 1, losses=3).offer == OD_WEST


@pytest.mark.parametrize(
    ("offers", "gone", "said"),
    [
        ([EAST_A], (), "but nothing can be rented on demand: spot"),
        ([WEST, OD_EAST, OD_WEST], (OD_EAST, OD_WEST), "but there is no on-demand capacity: spot"),
    ],
)
def test_where_on_demand_is_not_to_be_had_spot_is_used_and_said(
    offers: list[Offer], gone: tuple[Offer, ...], said: str
) -> None:
    memory = after(*(failed(zone, "no_capacity", START_S) for zone in gone))
    decision = launched(offers, known(memory), START_S + 1, losses=3)
    assert (decision.offer, decision.why) == (offers[0], f"lost 3 machines (cloud.on_demand_after: 3), {said}")


def test_a_task_without_spot_is_rented_on_demand_without_a_word() -> None:
    assert launched([OD_EAST], known()) == Launch(OD_EAST, "")


def test_safety_net_speaks_at_two_changeovers_and_not_before() -> None:
    start = WatchedFrom(3600.0, 5000.0)
    at_the_line = Pace(start, left_s=3600.0, time_left_s=3600.0 + 2 * CHANGEOVER_S, changeover_s=CHANGEOVER_S)
    over_it = at_the_line._replace(time_left_s=at_the_line.time_left_s - 1)
    assert is_spot(known(pace=at_the_line))
    decision = launched(ALL, known(pace=over_it))
    assert decision.offer is not None and not decision.offer.spot
    assert decision.why == "on demand: 1.0 h of work left, 1.3 h to cloud.finish_by_h"


def test_behind_means_on_demand_only_where_no_spot_is_to_be_had() -> None:
    start = WatchedFrom(work_s=20_000.0, whole_s=28_000.0)
    # after 7 000 s a quarter of the work, 5 000 s, is expected
    on_line = Pace(start, left_s=15_000.0, time_left_s=21_000.0, changeover_s=CHANGEOVER_S)
    behind = on_line._replace(left_s=15_001.0)
    gone = after(*(failed(zone, "no_capacity", START_S - 1) for zone in (EAST_A, EAST_B, WEST)))
    assert not on_line.is_behind and behind.is_behind
    assert is_spot(known(pace=behind)), "the paper's Taking Risks"
    assert not is_spot(known(gone, behind)) and waits(ALL, known(gone, on_line)).until_s == START_S + 1


def test_a_wait_ends_when_the_deadline_speaks() -> None:
    gone = after(*(failed(zone, "no_capacity", START_S - 1) for zone in (EAST_A, EAST_B, WEST)))
    ahead = Pace(WatchedFrom(20_000.0, 28_000.0), 14_990.0, 21_000.0, CHANGEOVER_S)
    assert waits(ALL, known(gone, ahead)).until_s == pytest.approx(START_S + 14)
    loose = Pace(None, 3600.0, 3600 / 0.7 + 5, CHANGEOVER_S)
    assert waits(ALL, known(gone, loose)).until_s == pytest.approx(START_S + 5)


def test_hysteresis_stays_on_demand_until_two_changeovers_ahead() -> None:
    start = WatchedFrom(work_s=20_000.0, whole_s=28_000.0)
    expected_s = (7_000 + 2 * CHANGEOVER_S) * 20_000 / 28_000
    short = Pace(start, 20_000 - expected_s + 1, 21_000.0, CHANGEOVER_S)
    enough = short._replace(left_s=short.left_s - 1)
    assert not is_spot(known(pace=short, was_on_demand=True)), "it stays"
    assert is_spot(known(pace=enough, was_on_demand=True)), "it leaves"
    assert is_spot(known(pace=short)), "it never was"
