"""Workloads and depths in the dataset and on the page: seconds, rates, speedups over starts, programs, peaks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import fsum
from statistics import fmean, stdev

import pytest

from configs.steps.depth import DepthShape, DepthStep
from configs.steps.prompts import PromptsStep, condition_name
from tasks.steps.depth import MODE as DEPTH_MODE
from tasks.steps.prompts import MODE
from tests.warehouse.runs import mirrored_pair, view_of
from tests.warehouse.synthetic import StepWriter, only
from warehouse.dataset.build import Consolidated, consolidate
from warehouse.dataset.consolidate.rows import window_seconds
from warehouse.ledger.commits import Ledger
from warehouse.ledger.formulas import phases_of
from warehouse.ledger.store import Store
from warehouse.ledger.timed_tables import DEPTH_WINDOWS, PROMPT_REQUESTS, PROMPT_WINDOWS
from warehouse.report.answer import answers
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View
from warehouse.report.steps.depth import depth_section
from warehouse.report.steps.load import category_section, load_section
from warehouse.report.steps.memory import memory_section
from warehouse.report.steps.needle import needle_section
from warehouse.report.steps.prompts import workload_section
from warehouse.report.steps.throughput import acceptance_section, speed_section

CODE = {"name": "code", "language": "Python", "prompt": "p", "max_tokens": 60, "check": {"cases": [{"stdout": ""}]}}
KOREAN = {"name": "ko", "language": "Korean", "prompt": "p", "max_tokens": 50}
ASKED = {"step": "prompts", "concurrencies": [1, 2], "repeats": 3, "workloads": [CODE, KOREAN]}
SPEC = PromptsStep.model_validate(ASKED)
TOKENS = 50
CHARS = {"code": 200, "ko": 75}
NOISE = (0.99, 1.0, 1.01)

SLOW = {"code": 0.010, "ko": 0.010}
FAST = {"code": 0.004, "ko": 0.008}  # seconds of a token


def shape(workload: str, concurrency: int, repeat: int) -> Row:
    language = {"code": "Python", "ko": "Korean"}[workload]
    return {
        "condition": condition_name(workload, concurrency), "mode": MODE, "concurrency": concurrency,
        "output_tokens": 60, "workload": workload, "language": language, "repeat": repeat,
    }  # fmt: skip


def answer(workload: str, concurrency: int, repeat: int, number: int, wall_s: float, program: str | None) -> Row:
    reasons = {"wrong": "case 1: printed '1', right is '2'", "correct": "all of 1 cases", "not_run": "no sandbox here"}
    return shape(workload, concurrency, repeat) | {
        "number": number, "sent_s": 0.0, "wall_s": wall_s * (1 + number / 10), "prompt_tokens": 20,
        "text": f"a {program} program", "completion_tokens": TOKENS, "chars": CHARS[workload], "program": program,
        "finish_reason": "length" if workload == "ko" else "stop", "program_reason": reasons.get(program or ""),
    }  # fmt: skip


def window(answers: Sequence[Row], accepted: float) -> Row:
    first, number = answers[0], len(answers)
    tokens = number * TOKENS
    kept = round(tokens * accepted)
    positions = [tokens - kept, 2 * kept - tokens]
    counted = {"engine_drafts": tokens - kept, "engine_accepted_tokens": kept, "engine_accepted_by_position": positions}
    drafted = counted if accepted else {}
    return {name: first[name] for name in shape("ko", 1, 0)} | {
        "requests": number, "failed": 0, "tries": 1, "wall_s": max(each["wall_s"] for each in answers),
        "prompt_tokens": 20 * number, "completion_tokens": tokens, "chars": sum(each["chars"] for each in answers),
        "engine_generation_tokens": tokens, "engine_prefix_hits": 0, "engine_preemptions": 0, **drafted,
    }  # fmt: skip


def visit(ledger: Ledger, key: str, name: str, token_s: Row, accepted: float, programs: Sequence[str]) -> None:
    step = StepWriter(ledger, key, name).provenance(machine="node-1 card-1")
    for workload, concurrency in product(token_s, SPEC.concurrencies):
        for repeat, noise in enumerate(NOISE):
            wall_s = token_s[workload] * noise * TOKENS
            turns = [programs[(repeat + number) % len(programs)] for number in range(concurrency)]
            answers = [answer(workload, concurrency, repeat, number, wall_s, program if workload == "code" else None)
                       for number, program in enumerate(turns)]  # fmt: skip
            step.write(PROMPT_REQUESTS, answers).write(PROMPT_WINDOWS, [window(answers, accepted)])
        step.judge((condition_name(workload, concurrency), MODE, "ok", [], []))
    step.commit()


def build(local: Store, mtp_programs: Sequence[str] = ("correct", "wrong")) -> Consolidated:
    ledger, ar, mtp = mirrored_pair(local, SPEC)
    slower = {name: 1.01 * each for name, each in FAST.items()}
    visit(ledger, ar, "prompts", SLOW, 0.0, ["correct"])
    visit(ledger, mtp, "prompts", FAST, 0.6, mtp_programs)
    visit(ledger, mtp, "prompts@2", slower, 0.6, mtp_programs)
    visit(ledger, ar, "prompts@2", {name: 1.005 * each for name, each in SLOW.items()}, 0.0, ["correct"])
    return consolidate(local, ["r1"])


@pytest.fixture
def built(local: Store) -> Consolidated:
    return build(local)


def test_a_workload_has_a_row_at_each_concurrency_with_its_seconds_and_rates(built: Consolidated) -> None:
    assert len(built.results) == 2 * 4
    row = only(built.results, technique="ar", condition="code c=1")
    assert row["tok_s"] == pytest.approx(100, rel=0.01) and row["chars_s"] == pytest.approx(400, rel=0.01)
    assert row["answer_s"] == pytest.approx(0.5, rel=0.01)
    assert (row["mode"], row["concurrency"], row["visits"], row["repeats"]) == ("natural", 1, 2, 6)
    two = only(built.results, technique="ar", condition="code c=2")
    assert two["tok_s"] == pytest.approx(2 * 100 / 1.1, rel=0.01), "the clock stops with the last of both"
    assert two["answer_s"] == pytest.approx(0.525, rel=0.02), "the median of both, over all repeats"
    assert fsum(row["gpu_s"] for row in built.results if row["technique"] == "ar") == pytest.approx(72)


def test_languages_are_told_and_cut_off_answers_counted(built: Consolidated) -> None:
    korean = only(built.results, technique="mtp", condition="ko c=2")
    assert (korean["language"], korean["truncated"], korean["blank"]) == ("Korean", 12, 0)
    assert korean["answer_tokens"] == TOKENS, "not the cap"
    code = only(built.results, technique="mtp", condition="code c=2")
    assert (code["language"], code["truncated"]) == ("Python", 0)
    per_token = [row["chars_s"] / row["tok_s"] for row in (korean, code)]
    assert per_token == pytest.approx([1.5, 4], rel=0.001)


def test_speedups_are_by_workload_over_visits(built: Consolidated) -> None:
    code, korean = (only(built.results, technique="mtp", condition=name) for name in ("code c=1", "ko c=1"))
    assert code["speedup"] == pytest.approx(2.5, rel=0.02) and korean["speedup"] == pytest.approx(1.25, rel=0.02)
    assert code["speedup_lo"] < code["speedup"] < code["speedup_hi"]
    claims = {pair["condition"]: pair["conclusion"] for pair in built.pairs if pair["kind"] == "speed"}
    assert set(claims) == {"code c=1", "code c=2", "ko c=1", "ko c=2"} and claims["code c=1"] == "faster"
    assert code["acceptance_length"] == pytest.approx(1 + 0.6 / 0.4)
    assert code["acceptance_by_position"] == pytest.approx([1.0, 0.5])


def test_a_wrong_program_leaves_its_row_ok_and_is_told(built: Consolidated) -> None:
    row = only(built.results, technique="mtp", condition="code c=1")
    assert (row["programs"], row["programs_correct"]) == (6, pytest.approx(4 / 6))
    assert (row["verdict"], row["reasons"]) == ("ok", [])
    assert "program wrong: case 1: printed '1', right is '2'" in row["details"]
    right = only(built.results, technique="ar", condition="code c=2")
    assert (right["programs"], right["programs_correct"]) == (12, 1.0)
    assert (row["programs_distinct"], right["programs_distinct"]) == (2, 1), "twelve copies are one greedy answer"
    none = only(built.results, technique="ar", condition="ko c=1")
    assert (none["programs"], none["programs_correct"]) == (None, None)


def test_programs_that_nobody_could_run_are_no_share_of_anything(local: Store) -> None:
    row = only(build(local, ["not_run"]).results, technique="mtp", condition="code c=1")
    assert (row["programs"], row["programs_correct"], row["programs_distinct"]) == (0, None, None)
    assert row["details"] == ["program not_run: no sandbox here"]


def test_the_page_has_bars_per_load_and_fast_and_correct_in_one_row(built: Consolidated) -> None:
    page = workload_section(view_of(built)) or ""
    assert "Speedup by workload, 1 in flight" in page and "Speedup by workload, 2 in flight" in page
    assert "code: mtp K=4 2.49" in page
    assert ">4 of 6, 2 answers</span>" in page and ">12 of 12, one answer</span>" in page and "100% / 50%" in page
    assert "copies of one prompt are sent together" in page


def test_no_single_workload_is_the_headline_and_alone_the_rates_are_theirs(built: Consolidated) -> None:
    view = view_of(built)
    [said] = answers(view)
    assert said.verdict == "By workload: see Workloads." and "code" not in said.evidence
    assert "Speedup against tokens per step" not in acceptance_section(view)
    one = [row for row in view.rows if row["condition"].startswith("code ")]
    [said] = answers(replace(view, rows=one))
    assert "code c=1" in said.verdict, "where there is but one, it is the headline"
    assert {row["condition"] for row in view.rates} == {"code c=1", "code c=2", "ko c=1", "ko c=2"}
    timed = dict(view.rows[0]) | {"step": "throughput", "condition": "short c=1", "mode": "fixed"}
    assert [row["condition"] for row in View([*view.rows, timed], [], [], 0).rates] == ["short c=1"]
    load = dict(view.rows[0]) | {"step": "load", "condition": "load c=1"}
    assert [row["condition"] for row in View([*view.rows, load], [], [], 0).rates] == ["load c=1"]


DEPTHS = DepthStep.model_validate({"step": "depth", "prompts": "prose", "depths": [0, 4096]})
DEPTH_NOISE = (0.99, 1.0, 1.03)  # of three runs, in their seconds
TTFT_S = {0: 2.36, 4096: 7.36}
TOKEN_S = {0: 0.0875, 4096: 0.0885}


def run_of(shape: DepthShape, repeat: int, slower: float, accepted: int, has_peak: bool) -> Row:
    """A run as fast as mtp-spark's (docs/sources.md); a draft saves the steps of what it gave, at a tenth of each."""
    later = shape.tg_tokens - 1
    steps = later - accepted
    prefill_s = TTFT_S[shape.depth_tokens] * slower
    decode_s = steps * TOKEN_S[shape.depth_tokens] * slower * (1.1 if accepted else 1.0)
    counted = {
        "engine_drafts": steps, "engine_accepted_tokens": accepted, "engine_accepted_by_position": [accepted]
    }  # fmt: skip
    return {
        "condition": shape.name, "mode": DEPTH_MODE, "context_tokens": shape.context_tokens, "concurrency": 1,
        "output_tokens": shape.tg_tokens, "depth_tokens": shape.depth_tokens, "repeat": repeat, "tries": 1,
        "requests": 1, "wall_s": prefill_s + decode_s, "prompt_tokens": shape.context_tokens,
        "completion_tokens": shape.tg_tokens, "prefill_s": prefill_s, "decode_s": decode_s, "decode_tokens": later,
        "peak_tok_s": 1.2 * later / decode_s if has_peak else None, "peak_window_s": 1.0, "ttft_ms": 1000 * prefill_s,
        "first_chunk_tokens": 1.0, "tpot_ms": 1000 * decode_s / later, "door_ms": 3.0,
        "engine_generation_tokens": shape.tg_tokens, "engine_prefix_hits": 0, "engine_preemptions": 0,
        "energy_j": 400 * (prefill_s + decode_s), "power_w": 400.0, "energy_from": "counter",
        "throttle_reasons": ["sw_power_cap"], **(counted if accepted else {}),
    }  # fmt: skip


def depth_visit(ledger: Ledger, key: str, name: str, accepted: int, slower: float) -> None:
    step = StepWriter(ledger, key, name).provenance(machine="node-1 card-1")
    for shape in DEPTHS.shapes():
        step.write(DEPTH_WINDOWS, [run_of(shape, repeat, slower * each, accepted, has_peak=shape.depth_tokens > 0)
                                   for repeat, each in enumerate(DEPTH_NOISE)])  # fmt: skip
        step.judge((shape.prefill_name, "prefill", "ok", [], []), (shape.decode_name, "decode", "ok", [], []))
    step.commit()


@pytest.fixture
def depths(local: Store) -> Consolidated:
    ledger, ar, mtp = mirrored_pair(local, DEPTHS)
    depth_visit(ledger, ar, "depth", 0, 1.0)
    depth_visit(ledger, mtp, "depth", 66, 1.05)
    depth_visit(ledger, mtp, "depth@2", 66, 1.06)
    depth_visit(ledger, ar, "depth@2", 0, 1.004)
    return consolidate(local, ["r1"])


def test_a_depth_is_a_row_of_prefill_and_one_of_decode_with_rates_of_their_own_tokens(depths: Consolidated) -> None:
    rows = [row for row in depths.results if row["technique"] == "ar"]
    assert {(row["condition"], row["mode"], row["depth_tokens"], row["context_tokens"]) for row in rows} == {
        ("pp2048", "prefill", 0, 2048), ("tg128", "decode", 0, 2048),
        ("pp2048 @ d4096", "prefill", 4096, 6144), ("tg128 @ d4096", "decode", 4096, 6144),
    }  # fmt: skip
    assert all((row["repeats"], row["visits"]) == (6, 2) for row in rows)
    prefill = only(depths.results, technique="ar", condition="pp2048 @ d4096")
    decode = only(depths.results, technique="ar", condition="tg128 @ d4096")
    assert prefill["tok_s"] == pytest.approx(6144 / 7.36, rel=0.02)
    assert decode["tok_s"] == pytest.approx(1 / 0.0885, rel=0.02)
    assert prefill["tok_s_lo"] < prefill["tok_s"] < prefill["tok_s_hi"]
    assert prefill["ttft_ms"] == pytest.approx(7360, rel=0.02) and prefill.get("tpot_ms") is None
    assert prefill["first_chunk_tokens"] == 1 and decode.get("first_chunk_tokens") is None
    assert decode["tpot_ms"] == pytest.approx(88.5, rel=0.02) and decode.get("ttft_ms") is None


def test_mean_deviation_and_peaks_are_over_the_runs_of_all_visits_or_null(depths: Consolidated) -> None:
    row = only(depths.results, technique="ar", condition="tg128")
    rates = [1 / (TOKEN_S[0] * slower * each) for slower in (1.0, 1.004) for each in DEPTH_NOISE]
    assert row["tok_s_mean"] == pytest.approx(fmean(rates)) and row["tok_s_sd"] == pytest.approx(stdev(rates))
    deep, shallow = (only(depths.results, technique="ar", condition=name) for name in ("tg128 @ d4096", "tg128"))
    assert deep["peak_tok_s"] == pytest.approx(1.2 * deep["tok_s_mean"])
    assert deep["peak_tok_s_sd"] == pytest.approx(1.2 * deep["tok_s_sd"]) and deep["peak_window_s"] == 1
    assert shallow["peak_tok_s"] is None and shallow["peak_tok_s_sd"] is None


def test_speedups_over_ar_are_by_part_and_depth(depths: Consolidated) -> None:
    decode = only(depths.results, technique="mtp", condition="tg128 @ d4096")
    assert decode["speedup"] == pytest.approx(127 / 61 / 1.1 / 1.05, rel=0.02)
    assert decode["speedup_lo"] < decode["speedup"] < decode["speedup_hi"]
    prefill = only(depths.results, technique="mtp", condition="pp2048")
    assert prefill["speedup"] == pytest.approx(1 / 1.053, rel=0.01)
    claims = {pair["condition"]: pair["conclusion"] for pair in depths.pairs if pair["kind"] == "speed"}
    assert claims["tg128 @ d4096"] == "faster"
    assert set(claims) == {"pp2048", "tg128", "pp2048 @ d4096", "tg128 @ d4096"}


def test_acceptance_belongs_to_the_decoding_and_a_price_or_joules_to_neither(depths: Consolidated) -> None:
    decode, prefill = (only(depths.results, technique="mtp", condition=name) for name in ("tg128", "pp2048"))
    assert decode["acceptance_length"] == pytest.approx(1 + 66 / 61)
    assert decode["tokens_per_step"] == pytest.approx(127 / 61)
    assert prefill.get("acceptance_length") is None and prefill["mbu"] is None
    assert decode["usd_per_mtok"] is None and prefill["usd_per_mtok"] is None
    assert {row.get(name) for row in depths.results for name in ("energy_j_per_token", "power_w")} == {None}
    assert all(row["throttle_reasons"] == ["sw_power_cap"] for row in depths.results), "the clock was both parts'"


def test_a_step_s_seconds_are_shared_by_its_parts_and_a_long_prefill_is_charged_once(depths: Consolidated) -> None:
    spent = {row["condition"]: row["gpu_s"] for row in depths.results if row["technique"] == "ar"}
    visits = [row["gpu_s"] for row in depths.visits if row["technique"] == "ar"]
    assert fsum(spent.values()) == pytest.approx(fsum(visits))
    assert spent["tg128"] / spent["pp2048"] == pytest.approx(127 * TOKEN_S[0] / TTFT_S[0])
    run = run_of(next(DEPTHS.shapes()), 0, 1.0, 0, True) | {"prefill_s": 7.4, "decode_s": 1.0}
    prefill_s, decode_s = (window_seconds([part]) for part in phases_of(run))
    assert (prefill_s, decode_s) == (7.4, 1.0)
    assert decode_s / (prefill_s + decode_s) == pytest.approx(0.12, abs=0.005)


def test_the_page_has_a_table_of_cells_by_depth_and_curves_of_both_parts(depths: Consolidated) -> None:
    page = depth_section(view_of(depths)) or ""
    assert page.count("<polyline") == 4, "generation and prompt processing, of two cells"
    assert page.count('scope="row"') == 4, "two cells at two depths"
    assert "tg128 tok/s" in page and "pp2048 tok/s" in page and "any second of a run" in page
    assert "11.2 ± 0.2" in page


def test_where_nothing_else_was_timed_generation_is_the_headline(depths: Consolidated) -> None:
    view = view_of(depths)
    assert {row["condition"] for row in view.rates} == {"tg128", "tg128 @ d4096"}
    assert speed_section(view) is None and "Speedup against tokens per step" in acceptance_section(view)
    timed = dict(view.rows[0]) | {"step": "throughput", "condition": "short c=1", "mode": "fixed"}
    assert {row["condition"] for row in View([*view.rows, timed], [], [], 0).rates} == {"short c=1"}


@pytest.mark.parametrize(
    "section", [depth_section, load_section, category_section, workload_section, needle_section, memory_section]
)
def test_a_page_without_a_step_has_no_section_of_it(section: Callable[[View], str | None]) -> None:
    assert section(View([], [], [], 0)) is None
