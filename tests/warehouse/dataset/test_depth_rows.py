"""Depths in the dataset and on the page: two rows each, mean and sd over runs, peaks, speedups over visits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum
from statistics import fmean, stdev

import pytest

from configs.steps.depth import DepthShape, DepthStep
from tasks.steps.depth import MODE
from tests.warehouse.synthetic import StepWriter, only
from tests.warehouse.visited import mirrored_pair, view_of
from warehouse.dataset.build import Consolidated, consolidate
from warehouse.dataset.consolidate.rows import window_seconds
from warehouse.ledger.commits import Ledger
from warehouse.ledger.formulas import phases_of
from warehouse.ledger.store import Store
from warehouse.ledger.timed_tables import DEPTH_WINDOWS
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View
from warehouse.report.steps.depth import depth_section
from warehouse.report.steps.load import category_section, load_section
from warehouse.report.steps.memory import memory_section
from warehouse.report.steps.needle import needle_section
from warehouse.report.steps.prompts import workload_section
from warehouse.report.steps.throughput import acceptance_section, speed_section

SPEC = DepthStep.model_validate({"step": "depth", "prompts": "prose", "depths": [0, 4096]})
NOISE = (0.99, 1.0, 1.03)
"""Of three runs, in their seconds."""

TTFT_S = {0: 2.36, 4096: 7.36}
TOKEN_S = {0: 0.0875, 4096: 0.0885}


def run_of(shape: DepthShape, repeat: int, slower: float, accepted: int, has_peak: bool) -> Row:
    """A run as fast as mtp-spark's (docs/sources.md); a draft saves the steps of what it gave, at a tenth of each."""
    later = shape.tg_tokens - 1
    steps = later - accepted
    prefill_s = TTFT_S[shape.depth_tokens] * slower
    decode_s = steps * TOKEN_S[shape.depth_tokens] * slower * (1.1 if accepted else 1.0)
    return {
        "condition": shape.name, "mode": MODE, "context_tokens": shape.context_tokens, "concurrency": 1,
        "output_tokens": shape.tg_tokens, "depth_tokens": shape.depth_tokens, "repeat": repeat, "tries": 1,
        "requests": 1, "wall_s": prefill_s + decode_s, "prompt_tokens": shape.context_tokens,
        "completion_tokens": shape.tg_tokens, "prefill_s": prefill_s, "decode_s": decode_s, "decode_tokens": later,
        "peak_tok_s": 1.2 * later / decode_s if has_peak else None, "peak_window_s": 1.0, "ttft_ms": 1000 * prefill_s,
        "first_chunk_tokens": 1.0,
        "tpot_ms": 1000 * decode_s / later, "door_ms": 3.0, "engine_generation_tokens": shape.tg_tokens,
        "engine_drafts": steps if accepted else None, "engine_accepted_tokens": accepted if accepted else None,
        "engine_accepted_by_position": [accepted] if accepted else None, "engine_prefix_hits": 0,
        "engine_preemptions": 0, "energy_j": 400 * (prefill_s + decode_s), "power_w": 400.0,
        "energy_from": "counter", "throttle_reasons": ["sw_power_cap"],
    }  # fmt: skip


def visit(ledger: Ledger, key: str, name: str, accepted: int, slower: float, noise: Sequence[float]) -> None:
    step = StepWriter(ledger, key, name)
    step.provenance(machine="node-1 card-1")
    for shape in SPEC.shapes():
        step.write(DEPTH_WINDOWS, [run_of(shape, repeat, slower * each, accepted, has_peak=shape.depth_tokens > 0)
                                   for repeat, each in enumerate(noise)])  # fmt: skip
        step.judge((shape.prefill_name, "prefill", "ok", [], []), (shape.decode_name, "decode", "ok", [], []))
    step.commit()


@pytest.fixture
def built(local: Store) -> Consolidated:
    ledger, ar, mtp = mirrored_pair(local, SPEC)
    for key, name, accepted, slower in (
        (ar, "depth", 0, 1.0), (mtp, "depth", 66, 1.05), (mtp, "depth@2", 66, 1.06), (ar, "depth@2", 0, 1.004),
    ):  # fmt: skip
        visit(ledger, key, name, accepted, slower, NOISE)
    return consolidate(local, ["r1"])


def test_a_depth_is_a_row_of_prefill_and_one_of_decode(built: Consolidated) -> None:
    rows = [row for row in built.results if row["technique"] == "ar"]
    assert {(row["condition"], row["mode"], row["depth_tokens"], row["context_tokens"]) for row in rows} == {
        ("pp2048", "prefill", 0, 2048), ("tg128", "decode", 0, 2048),
        ("pp2048 @ d4096", "prefill", 4096, 6144), ("tg128 @ d4096", "decode", 4096, 6144),
    }  # fmt: skip
    assert all((row["repeats"], row["visits"]) == (6, 2) for row in rows)


def test_rates_are_those_of_all_the_prompt_and_of_the_tokens_behind_the_first(built: Consolidated) -> None:
    prefill = only(built.results, technique="ar", condition="pp2048 @ d4096")
    decode = only(built.results, technique="ar", condition="tg128 @ d4096")
    assert prefill["tok_s"] == pytest.approx(6144 / 7.36, rel=0.02)
    assert decode["tok_s"] == pytest.approx(1 / 0.0885, rel=0.02)
    assert prefill["tok_s_lo"] < prefill["tok_s"] < prefill["tok_s_hi"]
    assert prefill["ttft_ms"] == pytest.approx(7360, rel=0.02) and prefill.get("tpot_ms") is None
    assert prefill["first_chunk_tokens"] == 1 and decode.get("first_chunk_tokens") is None
    assert decode["tpot_ms"] == pytest.approx(88.5, rel=0.02) and decode.get("ttft_ms") is None


def test_mean_and_deviation_are_over_the_runs_of_all_visits(built: Consolidated) -> None:
    row = only(built.results, technique="ar", condition="tg128")
    rates = [1 / (TOKEN_S[0] * slower * each) for slower in (1.0, 1.004) for each in NOISE]
    assert row["tok_s_mean"] == pytest.approx(fmean(rates)) and row["tok_s_sd"] == pytest.approx(stdev(rates))


def test_a_peak_is_the_mean_of_the_runs_peaks_and_null_where_they_have_none(built: Consolidated) -> None:
    deep, shallow = (only(built.results, technique="ar", condition=name) for name in ("tg128 @ d4096", "tg128"))
    assert deep["peak_tok_s"] == pytest.approx(1.2 * deep["tok_s_mean"])
    assert deep["peak_tok_s_sd"] == pytest.approx(1.2 * deep["tok_s_sd"]) and deep["peak_window_s"] == 1
    assert shallow["peak_tok_s"] is None and shallow["peak_tok_s_sd"] is None


def test_speedups_over_ar_are_by_part_and_depth(built: Consolidated) -> None:
    decode = only(built.results, technique="mtp", condition="tg128 @ d4096")
    assert decode["speedup"] == pytest.approx(127 / 61 / 1.1 / 1.05, rel=0.02)
    assert decode["speedup_lo"] < decode["speedup"] < decode["speedup_hi"]
    prefill = only(built.results, technique="mtp", condition="pp2048")
    assert prefill["speedup"] == pytest.approx(1 / 1.053, rel=0.01)
    claims = {pair["condition"]: pair["conclusion"] for pair in built.pairs if pair["kind"] == "speed"}
    assert claims["tg128 @ d4096"] == "faster" and set(claims) == {
        "pp2048", "tg128", "pp2048 @ d4096", "tg128 @ d4096"
    }  # fmt: skip


def test_acceptance_belongs_to_the_decoding_and_a_price_to_neither(built: Consolidated) -> None:
    decode, prefill = (only(built.results, technique="mtp", condition=name) for name in ("tg128", "pp2048"))
    assert decode["acceptance_length"] == pytest.approx(1 + 66 / 61)
    assert decode["tokens_per_step"] == pytest.approx(127 / 61)
    assert prefill.get("acceptance_length") is None and prefill["mbu"] is None
    assert decode["usd_per_mtok"] is None and prefill["usd_per_mtok"] is None


def test_a_step_s_seconds_are_shared_by_its_parts(built: Consolidated) -> None:
    spent = {row["condition"]: row["gpu_s"] for row in built.results if row["technique"] == "ar"}
    visits = [row["gpu_s"] for row in built.visits if row["technique"] == "ar"]
    assert fsum(spent.values()) == pytest.approx(fsum(visits))
    assert spent["tg128"] / spent["pp2048"] == pytest.approx(127 * TOKEN_S[0] / TTFT_S[0])


def test_a_long_prefill_is_charged_once_and_a_short_decoding_its_own_share() -> None:
    run = run_of(next(SPEC.shapes()), 0, 1.0, 0, True) | {"prefill_s": 7.4, "decode_s": 1.0}
    prefill_s, decode_s = (window_seconds([part]) for part in phases_of(run))
    assert (prefill_s, decode_s) == (7.4, 1.0)
    assert decode_s / (prefill_s + decode_s) == pytest.approx(0.12, abs=0.005)


def test_the_joules_of_a_run_are_no_energy_of_either_part(built: Consolidated) -> None:
    assert {row.get(name) for row in built.results for name in ("energy_j_per_token", "power_w")} == {None}
    assert all(row["throttle_reasons"] == ["sw_power_cap"] for row in built.results), "the clock was both parts'"


def test_the_page_has_a_table_of_cells_by_depth_and_curves_of_both_parts(built: Consolidated) -> None:
    page = depth_section(view_of(built))
    assert page is not None
    assert page.count("<polyline") == 4, "generation and prompt processing, of two cells"
    assert page.count('scope="row"') == 4, "two cells at two depths"
    assert "tg128 tok/s" in page and "pp2048 tok/s" in page and "any second of a run" in page
    assert "11.2 ± 0.2" in page


def test_where_nothing_else_was_timed_generation_is_the_headline(built: Consolidated) -> None:
    view = view_of(built)
    assert {row["condition"] for row in view.rates} == {"tg128", "tg128 @ d4096"}
    assert speed_section(view) is None and "Speedup against tokens per step" in acceptance_section(view)
    timed = dict(view.rows[0]) | {"step": "throughput", "condition": "short c=1", "mode": "fixed"}
    assert {row["condition"] for row in View([*view.rows, timed], [], [], 0).rates} == {"short c=1"}


@pytest.mark.parametrize(
    "section", [depth_section, load_section, category_section, workload_section, needle_section, memory_section]
)
def test_a_page_without_a_step_has_no_section_of_it(section: Callable[[View], str | None]) -> None:
    assert section(View([], [], [], 0)) is None
