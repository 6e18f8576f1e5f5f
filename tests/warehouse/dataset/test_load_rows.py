"""Load in the dataset and on the page: rates by category, speedups over visits, percentiles, goodput."""

from collections.abc import Sequence
from math import fsum, sqrt
from pathlib import Path

import pytest

from configs.steps.load import LoadStep, Offered, with_category
from configs.steps.throughput import NATURAL
from tests.warehouse.runs import mirrored_pair, view_of
from tests.warehouse.synthetic import StepWriter, only
from warehouse.dataset.build import Consolidated, consolidate, with_verdicts
from warehouse.dataset.steps.load import UNJUDGED
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import Store, open_store
from warehouse.ledger.timed_tables import LOAD_REQUESTS, LOAD_WINDOWS
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View
from warehouse.report.steps.load import category_section, load_section, over_loads

LIMITS = {"ttft_ms": 35, "tpot_ms": 20}
SPEC = LoadStep.model_validate({"step": "load", "dataset": "twin", "concurrencies": [1, 2], "limits": LIMITS})
PROMPTS = 40  # of each category: enough for p90, not for p95
TOKENS = 50


def asked(concurrency: int, category: str, number: int, sent_s: float, token_s: float) -> Row:
    """A request of 50 tokens whose first one takes 30 ms, or 40 every fourth time."""
    ttft_s = 0.04 if number % 4 == 3 else 0.03
    return {
        "condition": Offered(concurrency=concurrency).name, "mode": NATURAL, "concurrency": concurrency,
        "output_tokens": 96, "category": category, "prompt_id": f"{category}/{number}", "repeat": number % 4,
        "sent_s": sent_s, "wall_s": ttft_s + token_s * (TOKENS - 1), "prompt_tokens": 20, "completion_tokens": TOKENS,
        "finish_reason": "stop" if number else "length", "ttft_ms": 1000 * ttft_s, "tpot_ms": 1000 * token_s,
        "chunk_ms": 2000 * token_s, "chunks": 25, "first_chunk_tokens": 1, "text": "words",
    }  # fmt: skip


def loop(concurrency: int, token_s: dict[str, float], noise: Sequence[float]) -> list[Row]:
    """A closed loop without a gap: one at a time by category, else the categories in turn."""
    order = [(category, number) for category in token_s for number in range(PROMPTS)]
    if concurrency > 1:
        order.sort(key=lambda each: each[1])
    free, rows = [0.0] * concurrency, []
    for category, number in order:
        slot = free.index(min(free))
        row = asked(concurrency, category, number, free[slot], token_s[category] * noise[number % len(noise)])
        free[slot] += row["wall_s"]
        rows.append(row)
    return rows


def window(concurrency: int, category: str | None, rows: Sequence[Row], accepted: float) -> Row:
    tokens, wall_s = sum(row["completion_tokens"] for row in rows), fsum(row["wall_s"] for row in rows) / concurrency
    kept = round(tokens * accepted)
    return {
        "condition": Offered(concurrency=concurrency).name, "mode": NATURAL, "concurrency": concurrency,
        "output_tokens": 96, "category": category, "requests": len(rows),
        "wall_s": wall_s, "energy_j": 400 * wall_s, "power_w": 400.0, "prompt_tokens": 20 * len(rows),
        "completion_tokens": tokens, "engine_generation_tokens": tokens,
        "engine_drafts": (tokens - kept) if accepted else None, "engine_accepted_tokens": kept if accepted else None,
        "engine_accepted_by_position": [kept] if accepted else None, "engine_prefix_hits": 0, "engine_preemptions": 0,
    }  # fmt: skip


NOISE = (0.99, 1.0, 1.01, 1.0, 0.995)


def telling(row: Row, accepted: float) -> Row:
    """The request with what its engine says of its drafts: each step accepts K = 4 tokens or none."""
    kept = round(TOKENS * accepted)
    steps, full = TOKENS - kept, kept // 4
    histogram = [steps - full, 0, 0, 0, full]
    return row | {
        "engine_draft_steps": steps, "engine_accepted_tokens": 4 * full, "engine_accepted_histogram": histogram
    }  # fmt: skip


def visit(
    ledger: Ledger, key: str, name: str, token_s: dict[str, float], accepted: dict[str, float],
    tells: bool, begun: bool, reasons: Sequence[str],
) -> None:  # fmt: skip
    step = StepWriter(ledger, key, name).provenance(machine="node-1 card-1")
    for concurrency in SPEC.concurrencies:
        rows = loop(concurrency, token_s, NOISE)
        for category in token_s if concurrency == 1 else (None,):
            of = [row for row in rows if category in (None, row["category"])]
            share = accepted.get(category or "", fsum(accepted.values()) / len(accepted) if accepted else 0.0)
            told = [telling(row, accepted[row["category"]]) for row in of] if tells and accepted else of
            step.write(LOAD_REQUESTS, told).write(LOAD_WINDOWS, [window(concurrency, category, of, share)])
        whole = Offered(concurrency=concurrency).name
        said = ("suspect" if reasons else "ok", [*reasons], [*reasons])
        step.judge(*((each, NATURAL, *said) for each in (whole, *(with_category(whole, each) for each in token_s))))
    if begun:  # what an earlier start measured of the first category, half as fast, without a draft
        [category, *_] = token_s
        rows = [row | {"attempt": 0} for row in loop(1, {category: 2 * token_s[category]}, NOISE)]
        step.provenance(machine="node-1 card-1", attempt=0).write(LOAD_REQUESTS, rows)
        step.write(LOAD_WINDOWS, [window(1, category, rows, 0.0) | {"attempt": 0}])
    step.commit()


SLOW = {"coding": 0.010, "writing": 0.012}
FAST = {"coding": 0.004, "writing": 0.010}
ACCEPTED = {"coding": 0.7, "writing": 0.4}


@pytest.fixture
def built(local: Store) -> Consolidated:
    return build(local)


def build(local: Store, tells: bool = False, begun: bool = False, reasons: Sequence[str] = ()) -> Consolidated:
    ledger, ar, mtp = mirrored_pair(local, SPEC)
    for key, name, token_s, accepted in (
        (ar, "load", SLOW, {}),
        (mtp, "load", FAST, ACCEPTED),
        (mtp, "load@2", {name: 1.01 * each for name, each in FAST.items()}, ACCEPTED),
        (ar, "load@2", {name: 1.005 * each for name, each in SLOW.items()}, {}),
    ):
        visit(ledger, key, name, token_s, accepted, tells, begun, reasons if key == mtp else ())
    return consolidate(local, ["r1"])


def test_what_an_earlier_start_left_of_a_load_is_in_none_of_its_figures(built: Consolidated, tmp_path: Path) -> None:
    beside = build(open_store(str(tmp_path / "aside")), begun=True)
    names = ("condition", "tok_s", "acceptance_length", "answer_tokens", "tokens_per_step", "ttft_p50_ms", "requests")
    rows, others = ([*each.results, *each.load] for each in (built, beside))
    assert [[row.get(name) for name in names] for row in rows] == [[row.get(name) for name in names] for row in others]


def test_a_category_alone_has_tokens_over_wall_clock_and_says_how_long_its_answers_were(built: Consolidated) -> None:
    row = only(built.results, technique="ar", condition="load c=1, coding")
    wall_s = 0.0325 + 0.010 * 0.999 * (TOKENS - 1)
    assert row["tok_s"] == pytest.approx(TOKENS / wall_s, rel=0.005)
    assert (row["mode"], row["concurrency"], row["visits"], row["repeats"]) == ("natural", 1, 2, 8)
    assert len(built.load) == len(built.results)
    assert {row["answer_tokens"] for row in (*built.results, *built.load)} == {TOKENS}


def test_latencies_say_whether_they_may_be_believed_and_have_the_last_word_on_their_row(local: Store) -> None:
    built = build(local, reasons=["unsteady"])
    assert judged(built.load) == {("ar", "ok"), ("mtp", "suspect", "unsteady")}
    barred = [{**row, "verdict": "suspect", "reasons": ["parity_failed"]} for row in built.results]
    assert judged(with_verdicts(built.load, barred)) == {(name, "suspect", "parity_failed") for name in ("ar", "mtp")}


def judged(rows: Sequence[Row]) -> set[tuple[str, ...]]:
    return {(row["technique"], row["verdict"], *row["reasons"]) for row in rows}


@pytest.mark.parametrize(
    ("tells", "reasons", "unjudged"),
    [(False, [], {"mtp"}), (True, [], set()), (False, ["unsteady"], set())],
    ids=["not told", "told", "judged by an older node"],
)
def test_a_row_nobody_could_judge_says_so(local: Store, tells: bool, reasons: list[str], unjudged: set[str]) -> None:
    rows = build(local, tells=tells, reasons=reasons).results
    assert {row["technique"] for row in rows if UNJUDGED in row["details"]} == unjudged
    of_mtp = [UNJUDGED in row["details"] for row in rows if row["technique"] == "mtp"]
    assert len(of_mtp) > 2 and len(set(of_mtp)) == 1, "of all loads and categories, or of none"


def test_the_whole_lies_between_its_categories_and_two_in_flight_make_twice_as_much(built: Consolidated) -> None:
    for number in (1, 2):
        whole = only(built.results, technique="mtp", condition=f"load c={number}")["tok_s"]
        parts = [only(built.results, technique="mtp", condition=f"load c={number}, {name}")["tok_s"] for name in FAST]
        assert min(parts) < whole < max(parts)
        # as many tokens of each: the harmonic mean, but for where the steady state cuts
        assert whole == pytest.approx(2 / fsum(1 / each for each in parts), rel=0.01)
    for name in ("", ", coding", ", writing"):
        one, two = (only(built.results, technique="mtp", condition=f"load c={n}{name}")["tok_s"] for n in (1, 2))
        assert two == pytest.approx(2 * one, rel=0.01)


def test_speedups_and_joules_are_by_category_over_visits_and_over_ars(built: Consolidated) -> None:
    coding = only(built.results, technique="mtp", condition="load c=1, coding")
    writing = only(built.results, technique="mtp", condition="load c=1, writing")
    assert coding["speedup_lo"] < coding["speedup"] < coding["speedup_hi"]
    assert coding["speedup"] == pytest.approx(0.5225 / 0.2285, rel=0.02)
    assert writing["speedup"] == pytest.approx(0.6205 / 0.5225, rel=0.02)
    claims = {pair["condition"]: pair["conclusion"] for pair in built.pairs if pair["kind"] == "speed"}
    assert claims["load c=1, coding"] == "faster" and len(claims) == 6
    for condition in ("load c=1, coding", "load c=1, writing", "load c=2"):
        ar, mtp = (only(built.results, technique=name, condition=condition) for name in ("ar", "mtp"))
        assert mtp["baseline_energy_j_per_token"] == pytest.approx(ar["energy_j_per_token"])
        assert mtp["energy_j_per_token"] == pytest.approx(ar["energy_j_per_token"] / mtp["speedup"], rel=0.02)
    mixed = only(built.results, technique="mtp", condition="load c=2, coding")
    assert mixed.get("energy_j_per_token") is mixed["baseline_energy_j_per_token"] is None, "the cards can't tell"


def test_acceptance_is_a_category_s_alone_and_the_whole_suite_s_when_they_are_mixed(built: Consolidated) -> None:
    lengths = {row["condition"]: row.get("acceptance_length") for row in built.results if row["technique"] == "mtp"}
    assert lengths["load c=1, coding"] == pytest.approx(1 + 0.7 / 0.3)
    assert lengths["load c=1, writing"] == pytest.approx(1 + 0.4 / 0.6)
    assert lengths["load c=2, coding"] is None and lengths["load c=2"] is not None
    row = only(built.results, technique="mtp", condition="load c=1, coding")
    assert row["tokens_per_step"] == pytest.approx(TOKENS / (0.3 * TOKENS + 1)), "and a prefill, which drafts nothing"


def test_requests_that_tell_of_their_drafts_give_mixed_categories_an_acceptance(local: Store) -> None:
    rows = {row["condition"]: row for row in build(local, tells=True).results if row["technique"] == "mtp"}
    for number in (1, 2):
        coding, writing = rows[f"load c={number}, coding"], rows[f"load c={number}, writing"]
        assert coding["acceptance_length"] == pytest.approx(1 + 32 / 15)
        assert coding["acceptance_by_position"] == pytest.approx([8 / 15] * 4)
        assert coding["tokens_per_step"] == pytest.approx(TOKENS / (TOKENS - 32))
        assert writing["acceptance_length"] == pytest.approx(1 + 20 / 30)
    assert rows["load c=2"]["acceptance_length"] == pytest.approx(1 + 0.55 / 0.45), "by the engine's counters"


def test_requests_sent_together_and_the_last_ones_are_no_part_of_latencies_or_cut_off(built: Consolidated) -> None:
    whole = only(built.load, technique="ar", condition="load c=2")
    assert whole["requests"] == 2 * (2 * PROMPTS - 2 - 2), "two of each visit begin together, two run on alone"
    # the cap ends the first answer of each category, which two at a time are those that were sent together
    assert whole["cut_off"] == 0 and whole["requests"] > 0
    assert only(built.results, technique="ar", condition="load c=2")["truncated"] == 4
    assert only(built.results, technique="ar", condition="load c=2, coding")["truncated"] == 2


def test_goodput_keeps_every_limit_and_percentiles_that_few_prompts_cannot_bound_are_untold(
    built: Consolidated,
) -> None:
    row = only(built.load, technique="mtp", condition="load c=1, coding")
    assert row["goodput_share"] == pytest.approx(0.75), "every fourth first token takes 40 ms, the limit is 35"
    assert row["goodput_s"] == pytest.approx(0.75 * row["requests_s"])
    assert row["requests_s"] == pytest.approx(1 / (0.0325 + 0.004 * 49), rel=0.01)
    assert (row["ttft_limit_ms"], row["tpot_limit_ms"], row["cut_off"]) == (35, 20, 2)
    coding = only(built.load, technique="ar", condition="load c=1, coding")
    assert (coding["prompts"], coding["requests"]) == (40, 80), "asked twice, in two visits"
    assert coding["first_chunk_tokens"] == 1
    assert coding["ttft_p50_ms"] == 30 and coding["ttft_p90_ms"] == 40
    assert coding["ttft_p95_ms"] is None and coding["ttft_p99_ms"] is None
    whole = only(built.load, technique="ar", condition="load c=1")
    assert whole["ttft_p95_ms"] == 40 and whole["ttft_p99_ms"] is None
    assert whole["chunk_p50_ms"] == pytest.approx(2 * whole["tpot_p50_ms"], rel=1e-6)


def test_seconds_stand_with_the_whole_suite_and_still_sum(built: Consolidated) -> None:
    rows = [row for row in built.results if row["technique"] == "ar"]
    assert fsum(row["gpu_s"] for row in rows if row["condition"] in ("load c=1", "load c=2")) == pytest.approx(72)
    assert all(row["gpu_s"] is None for row in rows if "," in row["condition"])
    visits = [row for row in built.visits if row["technique"] == "ar" and row["visit"] == 1]
    assert fsum(row["gpu_s"] or 0.0 for row in visits) == pytest.approx(36)


def test_a_category_has_a_mean_speedup_over_all_loads_only_where_it_has_one_at_each(built: Consolidated) -> None:
    rows = [row for row in built.results if row["technique"] == "mtp" and "," in row["condition"]]
    light, heavy = (only(rows, condition=f"load c={load}, coding") for load in (1, 2))
    coding = next(row for row in over_loads(rows) if row["condition"].endswith("coding"))
    assert coding["loads"] == 2
    for column in ("speedup", "speedup_lo", "speedup_hi"):
        assert coding[column] == pytest.approx(sqrt(light[column] * heavy[column]))
    others = over_loads([row for row in rows if row is not heavy])
    assert others and not [row for row in others if row["condition"].endswith("coding")]
    assert over_loads([row for row in rows if row["concurrency"] == 1]) == [], "one load is no mean"


def test_the_page_has_curves_and_bars_and_where_nothing_else_was_timed_the_whole_suite_is_its_headline(
    built: Consolidated,
) -> None:
    page = load_section(view_of(built)) or ""
    assert page.count("<polyline") == 6, "rate, first token and time per token, of two cells"
    assert "Good are requests that keep TTFT 35 ms, TPOT 20 ms." in page
    bars = category_section(view_of(built)) or ""
    assert "Speedup by category, 1 in flight" in bars and "Speedup by category, 2 in flight" in bars
    assert "coding: mtp K=4 2.2" in bars
    view = view_of(built)
    assert {row["condition"] for row in view.rates} == {"load c=1", "load c=2"}
    [first, *_] = [row for row in view.rows if row["condition"] == "load c=1"]
    timed = dict(first) | {"step": "throughput", "condition": "short c=1", "mode": "fixed"}
    with_shape = View([*view.rows, timed], [], [], 0)
    assert [row["condition"] for row in with_shape.rates] == ["short c=1"]
