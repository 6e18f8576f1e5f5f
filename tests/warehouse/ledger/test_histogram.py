"""Times of tokens in buckets: percentiles within a percent, and the rule by which a chunk's tokens share its gap."""

from __future__ import annotations

import random

import pytest

from warehouse.ledger.formulas.load_windows import counted_gaps, percentile_ms


def test_the_tokens_of_a_chunk_share_the_gap_before_it() -> None:
    bursts = counted_gaps([(0.020, 4), (0.020, 4)])
    singles = counted_gaps([(0.005, 1)] * 8)
    assert bursts == singles and bursts[1] == 8
    assert percentile_ms([bursts], 50) == pytest.approx(5, rel=0.01)


def test_percentiles_are_within_a_percent_of_the_true_ones_over_all_answers() -> None:
    draw = random.Random(7)
    gaps = [draw.lognormvariate(-4, 1) for _ in range(4000)]
    halves = [counted_gaps((gap, 1) for gap in half) for half in (gaps[:2000], gaps[2000:])]
    for percent in (50, 95, 99):
        true = sorted(gaps)[int(percent / 100 * len(gaps)) - 1]
        assert percentile_ms(halves, percent) == pytest.approx(1000 * true, rel=0.011)


def test_chunks_that_were_read_at_once_count_and_no_tokens_have_no_percentile() -> None:
    assert percentile_ms([counted_gaps([(0.0, 3)])], 50) == pytest.approx(0.001, rel=0.02)
    assert percentile_ms([], 50) is None and percentile_ms([[]], 50) is None
