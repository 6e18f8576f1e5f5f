"""Schedules and closed loops: what was offered and answered, who could not follow, slots left empty, and gaps."""

import random
from itertools import accumulate
from math import fsum

import pytest

from configs.steps.load import LoadStep, Offered, with_category
from configs.steps.throughput import NATURAL
from tests.warehouse.runs import MinuteByMinute, view_of
from tests.warehouse.synthetic import StepWriter, demo_plan, only
from warehouse.dataset.build import Consolidated, consolidate
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.loads import NAMED, followed, load_row
from warehouse.ledger.commits import Ledger
from warehouse.ledger.formulas import counted_gaps, percentile_ms, timed, windows_of
from warehouse.ledger.store import Store
from warehouse.ledger.timed_tables import LOAD_REQUESTS, LOAD_WINDOWS
from warehouse.report.display.markup import Markup
from warehouse.report.display.view import View
from warehouse.report.steps import step_sections

LIMITS = {"ttft_ms": 60, "e2e_s": 2}
SPEC = LoadStep.model_validate({"step": "load", "dataset": "twin", "rates": [2, 8], "limits": LIMITS})
LIGHT, HEAVY = SPEC.loads
REQUESTS, TOKENS, ANSWER_S = 200, 50, 1.0
SLOTS = 4  # of the engine: it answers four a second
TOKEN_MS = 20.0
LATE_S = 0.002


def served(load: Offered, number: int = REQUESTS, seed: int = 3) -> list[Row]:
    """A first-come queue of `SLOTS`, on Poisson arrivals; every chunk has two tokens."""
    draw = random.Random(seed)
    assert load.rate_s is not None
    due = accumulate(draw.expovariate(load.rate_s) for _ in range(number))
    free, rows = [0.0] * SLOTS, []
    for place, due_s in enumerate(due):
        slot = free.index(min(free))
        begun_s = max(due_s + LATE_S, free[slot])
        free[slot] = begun_s + ANSWER_S
        queued_s = begun_s - due_s - LATE_S
        rows.append({
            "condition": load.name, "mode": load.mode, "concurrency": None, "rate_s": load.rate_s, "arrival": "poisson",
            "output_tokens": 96, "category": ("coding", "writing")[place % 2], "prompt_id": f"p/{place}",
            "repeat": place % 4, "due_s": due_s, "sent_s": due_s + LATE_S, "wall_s": queued_s + ANSWER_S,
            "ttft_ms": 1000 * queued_s + 30, "tpot_ms": TOKEN_MS, "chunk_ms": 2 * TOKEN_MS, "chunks": 25,
            "itl_histogram": counted_gaps([(2 * TOKEN_MS / 1000, 2)] * 24), "prompt_tokens": 20,
            "completion_tokens": TOKENS, "finish_reason": "stop", "text": "words", "engine_draft_steps": 20,
            "engine_draft_tokens": 80, "engine_accepted_tokens": 30, "engine_accepted_histogram": [5, 5, 5, 5, 0],
        })  # fmt: skip
    return rows


def sections(view: View) -> dict[str, Markup | None]:
    """As the page has them, by anchor."""
    return {each.anchor: each.make(view) for each in step_sections()}


def window(load: Offered, rows: list[Row]) -> Row:
    tokens = sum(row["completion_tokens"] for row in rows)
    ends = [row["sent_s"] + row["wall_s"] for row in rows]
    return {
        "condition": load.name, "mode": load.mode, "rate_s": load.rate_s, "arrival": "poisson", "output_tokens": 96,
        "category": None, "requests": len(rows), "wall_s": max(ends), "prompt_tokens": 20 * len(rows),
        "completion_tokens": tokens, "engine_generation_tokens": tokens, "engine_drafts": 20 * len(rows),
        "engine_draft_tokens": 80 * len(rows), "engine_accepted_tokens": 30 * len(rows),
        "engine_accepted_by_position": [15 * len(rows), 10 * len(rows), 5 * len(rows), 0],
    }  # fmt: skip


@pytest.fixture
def built(local: Store) -> Consolidated:
    return consolidated(local)


def consolidated(local: Store, light: list[Row] | None = None) -> Consolidated:
    """The dataset of both loads, the light one perhaps with other requests."""
    plan = demo_plan()
    mtp = plan.cells[3].model_copy(update={"visits": "single", "steps": (SPEC,)})
    ledger = Ledger(local, "r1", MinuteByMinute())
    ledger.write_plan(plan.model_copy(update={"cells": (mtp,)}))
    step = StepWriter(ledger, mtp.cell.cell_key, "load").provenance(machine="node-1 card-1")
    for load in SPEC.loads:
        rows = light if light and load == LIGHT else served(load)
        step.write(LOAD_REQUESTS, rows).write(LOAD_WINDOWS, [window(load, rows)])
        names = [load.name, with_category(load.name, "coding"), with_category(load.name, "writing")]
        step.judge(*((name, load.mode, "ok", [], []) for name in names))
    step.commit()
    return consolidate(local, ["r1"])


def test_a_schedule_has_no_speed_and_tells_what_was_offered_and_answered_and_who_could_not_follow(
    built: Consolidated,
) -> None:
    assert len(built.results) == 6 and all(row.get("tok_s") is None for row in built.results)
    assert all(row.get("speedup") is None for row in built.results) and not built.pairs
    row = only(built.results, condition=LIGHT.name)
    assert (row["mode"], row["concurrency"], row["verdict"]) == ("open", None, "ok")
    light, heavy = (only(built.load, condition=load.name) for load in (LIGHT, HEAVY))
    assert (light["offered_s"], light["arrival"], light["overloaded"]) == (2, "poisson", False)
    assert light["requests_s"] == pytest.approx(2, rel=0.2) and light["in_flight"] == pytest.approx(2, rel=0.4)
    assert heavy["overloaded"] is True and heavy["requests_s"] == pytest.approx(SLOTS / ANSWER_S, rel=0.05)
    assert heavy["sent_late_ms"] == pytest.approx(1000 * LATE_S)
    row = only(built.results, condition=HEAVY.name)
    assert row["verdict"] == "ok" and row["reasons"] == [], "a fact, no fault"
    assert any(said.startswith("overloaded: ") and "of 8 offered" in said for said in row["details"])
    assert not only(built.results, condition=LIGHT.name)["details"]


def test_latencies_run_from_the_moment_a_request_was_due_and_goodput_is_of_all_limits(built: Consolidated) -> None:
    light = only(built.load, condition=LIGHT.name)
    assert light["ttft_p50_ms"] == pytest.approx(30 + 1000 * LATE_S, abs=1)
    assert light["e2e_p50_ms"] == pytest.approx(1000 * (ANSWER_S + LATE_S), abs=1)
    assert light["tpot_p50_ms"] == TOKEN_MS and light["chunk_p50_ms"] == 2 * TOKEN_MS
    assert light["itl_p95_ms"] == pytest.approx(TOKEN_MS, rel=0.01) and light["itl_p99_ms"] is None, "200 prompts"
    light, heavy = (only(built.load, condition=load.name) for load in (LIGHT, HEAVY))
    assert (light["ttft_limit_ms"], light["tpot_limit_ms"], light["e2e_limit_s"]) == (60, None, 2)
    assert light["goodput_share"] > 0.8
    assert light["goodput_s"] == pytest.approx(light["goodput_share"] * light["requests_s"])
    assert heavy["goodput_share"] < 0.1
    coding = only(built.load, condition=with_category(LIGHT.name, "coding"))
    assert coding["goodput_share"] > 0.8 and coding["goodput_s"] is None, "nobody offered a category by itself"


def test_acceptance_stands_on_the_whole_and_on_each_category(built: Consolidated) -> None:
    for row in built.results:
        assert row["acceptance_length"] == pytest.approx(2.5)
        assert row["acceptance_by_position"] == pytest.approx([0.75, 0.5, 0.25, 0])
        assert row["tokens_per_step"] == pytest.approx(TOKENS / (20 + 1)), "and a prefill, which drafts nothing"
        assert row["drafted_tokens"] == 4 * row["drafts"]


@pytest.mark.parametrize("seed", range(20))
def test_an_engine_that_follows_is_not_accused_whatever_the_draw(seed: int) -> None:
    found = followed(served(LIGHT, seed=seed))
    assert found is not None and not found.is_overloaded, found.sentence
    heavy = followed(served(HEAVY, number=88, seed=seed))
    assert heavy is not None and heavy.is_overloaded, heavy.sentence


def endless(rate_s: float, answer_s: float) -> list[Row]:
    """An engine with a slot for everybody: nothing queues, and every answer is written for as long."""
    known = {"ttft_ms": 30.0, "wall_s": answer_s, "rate_s": rate_s}
    return [row | known | {"due_s": at / rate_s, "sent_s": at / rate_s} for at, row in enumerate(served(LIGHT))]


def test_a_schedule_that_is_too_short_or_in_which_the_engine_is_still_filling_tells_nothing_of_what_it_can_follow() -> (
    None
):
    """Answers of 15 s on a schedule of 25 s: more and more are in flight, and none has waited."""
    found = followed(endless(8, 15.0))
    assert found is not None and found.is_overloaded is None and found.answered_s is None
    filled = followed(endless(8, 5.0))
    assert filled is not None and filled.is_overloaded is False and filled.answered_s == pytest.approx(8)
    assert followed([served(LIGHT)[0] | {"due_s": 0.0}]) is None
    assert followed([row | {"due_s": None} for row in served(LIGHT)]) is None


def test_what_is_answered_is_held_against_what_was_due_and_not_against_what_was_asked_for(local: Store) -> None:
    rows = served(LIGHT)
    found = followed(rows)
    assert found is not None and found.offered_s == 2 and found.answered_s is not None
    due = sorted(row["due_s"] for row in rows)[10:190]
    assert found.arrived_s == pytest.approx(179 / (due[-1] - due[0])) and found.arrived_s != pytest.approx(2, rel=0.01)
    assert found.answered_s == pytest.approx(found.arrived_s, rel=0.01), "of an engine that follows"
    light = only(consolidated(local, rows).load, condition=LIGHT.name)
    assert (light["offered_s"], light["arrived_s"]) == (2, found.arrived_s)


def test_a_row_that_is_too_short_to_tell_is_neither_followed_nor_overloaded_and_has_no_goodput(local: Store) -> None:
    built = consolidated(local, endless(8, 15.0))
    light = only(built.load, condition=LIGHT.name)
    assert light["overloaded"] is light["requests_s"] is light.get("goodput_s") is None
    assert not only(built.results, condition=LIGHT.name)["details"]
    page = sections(view_of(built))["load-rates"] or ""
    assert "no: overloaded" in page, "the other load's"
    assert ">yes<" not in page and ">\N{EN DASH}<" in page


def test_the_page_has_curves_against_the_rate_and_names_who_can_not_follow(built: Consolidated) -> None:
    view = view_of(built)
    shown = sections(view)
    page = shown["load-rates"]
    assert page is not None and shown["load"] is None
    assert page.count('class="line ') == 2, "latencies of a queue that grows are in the table only"
    assert "no: overloaded" in page and "that keep TTFT 60 ms, end to end 2 s." in page
    assert page.count("Dashed: all that is offered.") == 2


IN_FLIGHT, EACH, GAP_S = 64, 20, 0.03
"""Seconds that a busy client leaves a slot empty behind each answer: assumed, the same beside AR and its draft."""

AR_S, DRAFT_S = 2.0, 0.7


def asked(wall_s: float, gap_s: float) -> list[Row]:
    """A closed loop of staggered slots, each with its gap behind every answer; answers have 200 or 300 tokens."""
    return [
        {
            "condition": f"load c={IN_FLIGHT}", "mode": NATURAL, "concurrency": IN_FLIGHT, "category": "ab"[number % 2],
            "prompt_id": f"{slot}/{number}", "repeat": 0, "attempt": 1, "prompt_tokens": 10, "output_tokens": 999,
            "sent_s": slot * wall_s / IN_FLIGHT / 4 + number * (wall_s + gap_s), "wall_s": wall_s,
            "completion_tokens": 200 + number % 2 * 100, "finish_reason": "stop", "ttft_ms": 30.0, "tpot_ms": 5.0,
            "chunk_ms": 5.0, "first_chunk_tokens": 1, "itl_histogram": None, "due_s": None, "arrival": None,
        }
        for slot in range(IN_FLIGHT)
        for number in range(EACH)
    ]  # fmt: skip


def tok_s(rows: list[Row]) -> float:
    whole = next(row for row in windows_of(rows) if row["condition"] == f"load c={IN_FLIGHT}")
    return float(whole["completion_tokens"] / whole["wall_s"])


@pytest.mark.parametrize("wall_s", [AR_S, DRAFT_S])
def test_a_rate_is_tokens_over_wall_clock_although_slots_are_empty_between_requests(wall_s: float) -> None:
    rows = asked(wall_s, GAP_S)
    begin = min(row["sent_s"] + row["wall_s"] for row in rows)
    end = max(row["sent_s"] for row in rows)
    spent = [max(0.0, min(row["sent_s"] + wall_s, end) - max(row["sent_s"], begin)) / wall_s for row in rows]
    made = fsum(share * row["completion_tokens"] for share, row in zip(spent, rows, strict=True))
    assert tok_s(rows) == pytest.approx(made / (end - begin))


def test_a_client_that_takes_as_long_for_both_gives_a_draft_no_speedup_and_categories_add_up() -> None:
    without_gap = AR_S / DRAFT_S
    assert tok_s(asked(DRAFT_S, 0.0)) / tok_s(asked(AR_S, 0.0)) == pytest.approx(without_gap, rel=0.01)
    held = (AR_S + GAP_S) / (DRAFT_S + GAP_S)
    assert tok_s(asked(DRAFT_S, GAP_S)) / tok_s(asked(AR_S, GAP_S)) == pytest.approx(held, rel=0.005)
    whole, *categories = windows_of(asked(DRAFT_S, GAP_S))
    for name in ("completion_tokens", "wall_s", "requests"):
        assert fsum(row[name] for row in categories) == pytest.approx(whole[name])
    row: Row = dict.fromkeys(NAMED) | {"concurrency": IN_FLIGHT, "condition": f"load c={IN_FLIGHT}"}
    told = load_row(row, None, timed(asked(DRAFT_S, GAP_S)), None, [])
    assert told["requests_s"] == pytest.approx(IN_FLIGHT / (DRAFT_S + GAP_S), rel=0.005)


def test_the_tokens_of_a_chunk_share_the_gap_before_it_and_chunks_that_were_read_at_once_count() -> None:
    bursts = counted_gaps([(0.020, 4), (0.020, 4)])
    singles = counted_gaps([(0.005, 1)] * 8)
    assert bursts == singles and bursts[1] == 8
    assert percentile_ms([bursts], 50) == pytest.approx(5, rel=0.01)
    assert percentile_ms([counted_gaps([(0.0, 3)])], 50) == pytest.approx(0.001, rel=0.02)
    assert percentile_ms([], 50) is None and percentile_ms([[]], 50) is None


def test_percentiles_are_within_a_percent_of_the_true_ones_over_all_answers() -> None:
    draw = random.Random(7)
    gaps = [draw.lognormvariate(-4, 1) for _ in range(4000)]
    halves = [counted_gaps((gap, 1) for gap in half) for half in (gaps[:2000], gaps[2000:])]
    for percent in (50, 95, 99):
        true = sorted(gaps)[int(percent / 100 * len(gaps)) - 1]
        assert percentile_ms(halves, percent) == pytest.approx(1000 * true, rel=0.011)
