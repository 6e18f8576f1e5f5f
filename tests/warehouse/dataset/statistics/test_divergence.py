"""Where outputs part: a tie is a tie for both, and what isn't known isn't guessed."""

from __future__ import annotations

from warehouse.dataset.consolidate.parity_bar import Output, agreement

AR = {"p": Output([1, 2, 3], [9.0, 0.125, 9.0]), "q": Output([1, 2], [9.0, 9.0]), "r": Output([7, 8], [0.25, 3.5])}


def test_outputs_that_part_at_a_near_tie_are_told_from_those_that_part_where_the_model_was_sure() -> None:
    others = {"p": Output([1, 5, 5], [9.0, 0.0, 1.0]), "q": Output([1, 2], [9.0, 9.0]), "r": Output([7, 9], [0.3, 3.1])}
    found = agreement(AR, others)
    assert (found.equal, found.compared, found.first_divergence) == (1, 3, 1)
    assert (found.near_ties, found.margin) == (1, 3.5)


def test_one_witness_that_was_sure_is_enough() -> None:
    found = agreement(AR, {"p": Output([1, 5], [9.0, 2.0])})
    assert (found.near_ties, found.margin) == (0, 2.0)


def test_two_steps_of_bf16_are_still_a_tie() -> None:
    assert agreement({"p": Output([1], [0.2500009])}, {"p": Output([2], [0.125])}).near_ties == 1
    assert agreement({"p": Output([1], [0.375])}, {"p": Output([2], [0.125])}).near_ties == 0


def test_an_output_that_ended_first_is_no_witness() -> None:
    found = agreement({"p": Output([1, 2, 3], [1.0, 1.0, 0.1])}, {"p": Output([1, 2], [1.0, 1.0])})
    assert (found.first_divergence, found.near_ties, found.margin) == (2, 1, 0.1)


def test_without_gaps_nothing_is_said_about_ties() -> None:
    for others in ({"p": Output([1, 5, 5])}, {"p": Output([1, 2, 3])}):
        found = agreement(AR, others)
        assert (found.near_ties, found.margin) == (None, None)
