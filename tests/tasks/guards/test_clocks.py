"""Guards over the client's clock and the engine's own, on figures that were seen and on some that can't be."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.guards.speed import clock_mismatch, held_back
from warehouse.verdicts import Reason


def request(ttft_ms: float | None, wall_ms: float, queue: float = 0.1, made: float = 9.0, rest: float = 650.0) -> Any:
    return {
        "ttft_ms": ttft_ms, "wall_s": wall_ms / 1000, "engine_queue_ms": queue, "engine_ttft_ms": made,
        "engine_generation_ms": rest,
    }  # fmt: skip


CALM = request(15.0, 670.0)
"""A stream of the tiny family on two cores."""

BUSY = request(757.0, 870.0, queue=0.2, made=8.8, rest=110.0)
"""The worst that was seen, at eight a second on two cores that others used: one of 88."""

HELD = request(6509.1, 13000.0, rest=6450.0)
"""What an engine would look like that makes an answer, and then plays it."""

FOUR_DEEP = request(None, 4030.0, made=400.0, rest=3500.0)
"""Not streamed, several at a time."""


def test_a_client_that_saw_all_of_it_later_than_the_engine_made_it_is_right() -> None:
    assert clock_mismatch([CALM, BUSY, FOUR_DEEP]) is None


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (request(8.0, 670.0, queue=3.0), "8.0 ms to the first token, of which the engine's own 12.0"),
        (request(15.0, 600.0), "600.0 ms to the last byte, of which the engine's own 659.1"),
        (request(None, 600.0), "600.0 ms to the last byte"),
    ],
)
def test_a_token_can_not_be_seen_before_it_was_made(row: Any, said: str) -> None:
    found = clock_mismatch([CALM, row, FOUR_DEEP])
    assert found is not None and (found.reason, found.severity) == (Reason.CLOCK_MISMATCH, "suspect")
    assert "1 of 3 requests" in found.sentence and said in found.sentence


@pytest.mark.parametrize("untold", [{"engine_ttft_ms": None}, {"engine_ttft_ms": None, "engine_queue_ms": None}])
def test_an_engine_that_says_nothing_of_its_time_is_held_against_nothing(untold: Any) -> None:
    quiet = request(15.0, 600.0) | untold
    assert clock_mismatch([quiet] * 4) is None and held_back([quiet] * 4) is None
    assert clock_mismatch([{"ttft_ms": 15.0, "wall_s": 0.6}]) is None, "a row of before it was recorded"


def test_a_busy_front_end_holds_nothing_back() -> None:
    assert held_back([CALM] * 8) is None
    assert held_back([BUSY] * 8) is None, "not even if all were as late as the worst"
    assert held_back([HELD, HELD]) is None, "of two streams perhaps both"
    assert held_back([HELD, HELD, CALM, CALM]) is None, "not most of them"
    assert held_back([FOUR_DEEP] * 4) is None, "not streamed"
    assert held_back([request(6500.0, 19000.0, made=4000.0, rest=12000.0)] * 8) is None, "long prompts, many at once"


def test_answers_that_were_made_before_their_first_token_was_seen_were_held_back() -> None:
    found = held_back([CALM, HELD, HELD, HELD])
    assert found is not None and (found.reason, found.severity) == (Reason.LATE_FIRST_TOKEN, "suspect")
    assert "3 of 4 first tokens were seen 6500 ms or more after" in found.sentence
