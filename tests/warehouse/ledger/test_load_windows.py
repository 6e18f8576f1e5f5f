"""Slots that a client leaves empty between requests are part of the load; times of tokens are counted in buckets."""

from __future__ import annotations

import random
from math import fsum

import pytest

from configs.steps.throughput import NATURAL
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.loads import NAMED, load_row
from warehouse.ledger.formulas import counted_gaps, percentile_ms, timed, windows_of

SLOTS, EACH, GAP_S = 64, 20, 0.03
"""Seconds that a busy client leaves a slot empty behind each answer: assumed, the same beside AR and its draft."""

AR_S, DRAFT_S = 2.0, 0.7


def asked(wall_s: float, gap_s: float) -> list[Row]:
    """A closed loop of staggered slots, each with its gap behind every answer; answers have 200 or 300 tokens."""
    return [
        {
            "condition": f"load c={SLOTS}", "mode": NATURAL, "concurrency": SLOTS, "category": "ab"[number % 2],
            "prompt_id": f"{slot}/{number}", "repeat": 0, "attempt": 1, "prompt_tokens": 10, "output_tokens": 999,
            "sent_s": slot * wall_s / SLOTS / 4 + number * (wall_s + gap_s), "wall_s": wall_s,
            "completion_tokens": 200 + number % 2 * 100, "finish_reason": "stop", "ttft_ms": 30.0, "tpot_ms": 5.0,
            "chunk_ms": 5.0, "first_chunk_tokens": 1, "itl_histogram": None, "due_s": None, "arrival": None,
        }
        for slot in range(SLOTS)
        for number in range(EACH)
    ]  # fmt: skip


def tok_s(rows: list[Row]) -> float:
    whole = next(row for row in windows_of(rows) if row["condition"] == f"load c={SLOTS}")
    return float(whole["completion_tokens"] / whole["wall_s"])


@pytest.mark.parametrize("wall_s", [AR_S, DRAFT_S])
def test_a_rate_is_tokens_over_wall_clock_although_slots_are_empty_between_requests(wall_s: float) -> None:
    rows = asked(wall_s, GAP_S)
    begin = min(row["sent_s"] + row["wall_s"] for row in rows)
    end = max(row["sent_s"] for row in rows)
    spent = [max(0.0, min(row["sent_s"] + wall_s, end) - max(row["sent_s"], begin)) / wall_s for row in rows]
    made = fsum(share * row["completion_tokens"] for share, row in zip(spent, rows, strict=True))
    assert tok_s(rows) == pytest.approx(made / (end - begin))


def test_a_draft_gains_no_speedup_from_a_client_that_takes_as_long_for_both() -> None:
    without_gap = AR_S / DRAFT_S
    assert tok_s(asked(DRAFT_S, 0.0)) / tok_s(asked(AR_S, 0.0)) == pytest.approx(without_gap, rel=0.01)
    held = (AR_S + GAP_S) / (DRAFT_S + GAP_S)
    assert tok_s(asked(DRAFT_S, GAP_S)) / tok_s(asked(AR_S, GAP_S)) == pytest.approx(held, rel=0.005)


def test_categories_add_up_to_the_whole() -> None:
    whole, *categories = windows_of(asked(DRAFT_S, GAP_S))
    for name in ("completion_tokens", "wall_s", "requests"):
        assert fsum(row[name] for row in categories) == pytest.approx(whole[name])


def test_requests_per_second_are_those_of_the_same_clock() -> None:
    row: Row = dict.fromkeys(NAMED) | {"concurrency": SLOTS, "condition": f"load c={SLOTS}"}
    told = load_row(row, None, timed(asked(DRAFT_S, GAP_S)), None, [])
    assert told["requests_s"] == pytest.approx(SLOTS / (DRAFT_S + GAP_S), rel=0.005)


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
