"""The parts of the tape that need no network: turns, and an engine that stands still."""

from __future__ import annotations

from tasks.evals.recording.answers import Answers
from tasks.evals.recording.watch import Standstill


def test_a_turn_that_was_given_back_is_the_next_one() -> None:
    answers = Answers([])
    first, second = answers.take("a"), answers.take("a")
    answers.give_back(first)
    assert (first.occurrence, second.occurrence) == (0, 1)
    assert [answers.take("a").occurrence for _ in range(2)] == [0, 2]


def test_a_turn_of_a_job_that_was_killed_is_not_given_back_to_the_next_job() -> None:
    answers = Answers([])
    killed = answers.take("a")
    answers.begin()
    assert answers.take("a").occurrence == 0
    answers.give_back(killed)  # the tape hears of the hang-up only now
    assert answers.take("a").occurrence == 1


def test_a_standstill_begins_with_the_last_token_or_answer() -> None:
    standstill = Standstill(0)
    assert standstill.lasts_s(10, 5, 0, in_flight=1) == 0
    assert standstill.lasts_s(20, 5, 0, in_flight=1) == 10
    assert standstill.lasts_s(30, 6, 0, in_flight=1) == 0
    assert standstill.lasts_s(40, 6, 1, in_flight=1) == 0
    assert standstill.lasts_s(50, 6, 1, in_flight=1) == 10
    assert standstill.lasts_s(60, 6, 1, in_flight=0) == 0, "nobody waits"
    assert standstill.lasts_s(70, 6, 1, in_flight=1) == 10


def test_an_engine_without_a_counter_moves_by_its_answers() -> None:
    standstill = Standstill(0)
    assert standstill.lasts_s(10, None, 3, in_flight=2) == 0
    assert standstill.lasts_s(20, None, 3, in_flight=2) == 10
    assert standstill.lasts_s(30, None, 4, in_flight=2) == 0
