"""Several in flight are measured in the steady state: shown against engines of known rate."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from statistics import fmean

import pytest

from tasks.timing.loops import delivered_share, paces_of, steady_state, steps_of_answer
from warehouse.ledger.formulas import Span, steps_of

TOKENS = 256
SLOTS_TOK_S = (100.0, 87.0, 71.0, 60.0)


def served(number: int, seconds_of: Callable[[int], float], slots: int = len(SLOTS_TOK_S)) -> Iterator[Span]:
    """Requests as `slots` take them, each at once when its slot is free; `seconds_of` a slot's next request."""
    free = [(0.0, slot) for slot in range(slots)]
    for _ in range(number):
        sent_s, slot = heapq.heappop(free)
        ended_s = sent_s + seconds_of(slot)
        heapq.heappush(free, (ended_s, slot))
        yield Span(sent_s, ended_s, TOKENS)


def off(rate: float, truth: float) -> float:
    return rate / truth - 1


@pytest.mark.parametrize(("number", "lost"), [(16, 0.07), (32, 0.025)])
def test_slots_of_known_speed_are_measured_to_one_in_a_hundred(number: int, lost: float) -> None:
    spans = list(served(number, lambda slot: TOKENS / SLOTS_TOK_S[slot]))
    steady = steady_state(spans, len(SLOTS_TOK_S))
    assert steady is not None
    assert abs(off(steady.tokens / steady.seconds, sum(SLOTS_TOK_S))) < 0.01
    whole = number * TOKENS / max(span.ended_s for span in spans)
    assert off(whole, sum(SLOTS_TOK_S)) < -lost, "the window with its tail is several per cent too slow"


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.3])
def test_requests_of_uneven_length_in_time_are_measured_without_bias(spread: float) -> None:
    """As drafts that are accepted now and then make them."""
    draw = random.Random(5)
    steady, whole = [], []
    for _ in range(1500):
        spans = list(served(16, lambda slot: max(0.2, draw.gauss(1, spread))))
        found = steady_state(spans, len(SLOTS_TOK_S))
        assert found is not None
        steady.append(found.tokens / found.seconds)
        whole.append(16 * TOKENS / max(span.ended_s for span in spans))
    truth = len(SLOTS_TOK_S) * TOKENS
    assert abs(off(fmean(steady), truth)) < 0.01
    assert off(fmean(whole), truth) < off(fmean(steady), truth)


def test_one_at_a_time_and_too_few_requests_have_no_steady_state() -> None:
    assert steady_state([Span(0, 1, TOKENS), Span(1, 2, TOKENS)], 1) is None
    assert steady_state(list(served(8, lambda slot: 1.0)), len(SLOTS_TOK_S)) is None, "two rounds, as in old plans"


def test_the_pace_is_that_of_decoding_steps() -> None:
    """A draft's tokens cost no step of their own; a diffusion's steps are counted; else a token is a step."""
    plain = {"completion_tokens": 512, "wall_s": 2.0}
    drafted = {**plain, "engine_accepted_tokens": 256}
    denoised = {**plain, "engine_denoising_steps": 64, "engine_accepted_tokens": None}
    assert [paces_of([row]) for row in (plain, drafted, denoised)] == [[256.0], [128.0], [32.0]]


def test_what_was_accepted_behind_an_answers_end_saves_no_step() -> None:
    """Two answers of 16 tokens: a first token and two steps of K = 7 each, of which 3 tokens are behind the end."""
    window = {"completion_tokens": 32, "engine_accepted_tokens": 28, "engine_drafts": 4, "requests": 2}
    assert steps_of(window) == 6 and paces_of([{**window, "wall_s": 2.0}]) == [3.0]
    assert steps_of({**window, "requests": None}) == 4, "of graded answers nobody counted prefills"
    assert steps_of({**window, "mode": "decode"}) == 4, "behind the first tokens"
    request = {"completion_tokens": 16, "engine_accepted_tokens": 14, "engine_draft_steps": 2}
    assert steps_of_answer(request) == 3 and steps_of_answer({**request, "engine_draft_steps": None}) is None


def test_slots_that_are_refilled_at_once_deliver_the_whole_load() -> None:
    spans = list(served(32, lambda slot: TOKENS / SLOTS_TOK_S[slot]))
    assert delivered_share(spans, len(SLOTS_TOK_S)) == pytest.approx(1.0)
    assert delivered_share(spans[:4], len(SLOTS_TOK_S)) == pytest.approx(1.0), "one round, without any refill"
    assert delivered_share([Span(0.0, 1.0, TOKENS)], 1) == 1.0


def test_a_client_that_rests_between_requests_delivers_less() -> None:
    spans = [Span(1.25 * index, 1.25 * index + 1, TOKENS) for index in range(20)]
    assert delivered_share(spans, 1) == pytest.approx(0.8)
