"""The fullest window of a run, where the answer is known."""

from __future__ import annotations

import pytest

from tasks.steps.depth import flow, peak_tok_s


def test_a_steady_stream_peaks_at_its_rate_wherever_the_window_lies() -> None:
    steady = flow(7.0, [(0.1 + 0.02 * index, 1 + index) for index in range(101)])
    for window_s in (0.5, 1.0, 1.999):
        assert peak_tok_s([steady], window_s) == pytest.approx(50)


def test_a_burst_is_found_wherever_it_begins() -> None:
    slow = [(0.1 * index, 1 + index) for index in range(11)]
    fast = [(1.0 + 0.01 * index, 11 + index) for index in range(1, 31)]
    assert peak_tok_s([flow(0.0, [*slow, *fast])], 0.3) == pytest.approx(100)
    assert peak_tok_s([flow(0.0, [*slow, *fast])], 0.6) == pytest.approx((30 + 3) / 0.6)


def test_tokens_of_one_chunk_count_as_made_since_the_chunk_before() -> None:
    assert peak_tok_s([flow(0.0, [(0.5, 4), (1.5, 12), (2.5, 20)])], 1.0) == pytest.approx(8), "not 16 at once"


def test_what_came_with_a_first_chunk_is_left_out() -> None:
    assert peak_tok_s([flow(0.0, [(0.1, 500), (1.1, 510), (2.1, 520)])], 1.0) == pytest.approx(10)


def test_streams_beside_one_another_add_up_on_one_clock() -> None:
    one = flow(0.0, [(0.0, 1), (2.0, 41)])
    late = flow(1.0, [(0.0, 1), (2.0, 41)])
    assert peak_tok_s([one, late], 1.0) == pytest.approx(40)


def test_a_run_that_is_shorter_than_the_window_has_no_peak() -> None:
    assert peak_tok_s([flow(0.0, [(0.0, 1), (0.9, 91)])], 1.0) is None
    assert peak_tok_s([flow(0.0, [(0.3, 64)])], 1.0) is None
    assert peak_tok_s([], 1.0) is None
