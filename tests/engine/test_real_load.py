"""The tiny `speed-bench`, whole: real vLLM, the real family, two cells there and back."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from configs.prompt_suites import CATEGORIES
from tests.engine.tiny_runs import SoundTwin, measure, results

pytestmark = [pytest.mark.engine, pytest.mark.slow(640)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measure("speed-bench-tiny", tmp_path_factory.mktemp("load"))


def test_rates_and_acceptance_are_there_for_every_load_and_category(store: Path) -> None:
    rows = results(store).filter(step="load", mode="natural")
    assert rows.height == 2 * 3 * (1 + len(CATEGORIES)), "two cells at three concurrencies"
    assert rows["tok_s"].null_count() == 0
    mtp = rows.filter(technique="mtp")
    lengths = mtp["acceptance_length"]  # of mixed categories, too: this engine says it of each request
    assert lengths.null_count() == 0 and 1.2 < lengths.min() <= lengths.max() <= 5  # type: ignore[operator]
    assert mtp.filter(~pl.col("condition").str.contains(","))["acceptance_by_position"].list.len().to_list() == [4] * 3


def test_latencies_are_told_as_far_as_the_prompts_certify_them(store: Path) -> None:
    load = pl.read_parquet(store / "load.parquet").filter(pl.col("offered_s").is_null())
    whole, categories = load.filter(pl.col("category").is_null()), load.filter(pl.col("category").is_not_null())
    assert whole.height == 6 and set(categories["category"]) == set(CATEGORIES)
    for name in ("ttft_p95_ms", "tpot_p95_ms", "itl_p95_ms", "chunk_p50_ms", "e2e_p95_ms", "requests_s", "goodput_s"):
        assert whole[name].null_count() == 0, name
    assert whole["ttft_p99_ms"].is_null().all(), "88 prompts can't bound it"
    assert categories["ttft_p90_ms"].is_null().all(), "8 prompts can't bound it"
    assert set(whole["first_chunk_tokens"]) == {1}, "the thinking begins with tokens that have no text"
    assert (whole["ttft_p50_ms"] <= whole["ttft_p95_ms"]).all()
    tokens = load.filter(technique="ar").select("condition", ar="answer_tokens").join(
        load.filter(technique="mtp").select("condition", mtp="answer_tokens"), on="condition"
    )  # fmt: skip
    assert (tokens["ar"] - tokens["mtp"]).abs().max() < 2  # type: ignore[operator]


def test_a_schedule_is_answered_at_its_rate_and_has_no_speed(store: Path) -> None:
    rows = results(store).filter(step="load", mode="open")
    assert rows.height == 2 * (1 + len(CATEGORIES)) and rows["tok_s"].is_null().all()
    assert rows.filter(technique="mtp")["acceptance_length"].null_count() == 0
    load = pl.read_parquet(store / "load.parquet").filter(offered_s=8.0)
    whole = load.filter(pl.col("category").is_null())
    for name in ("in_flight", "sent_late_ms"):
        assert whole[name].null_count() == 0, name
    assert (whole["in_flight"] > 0).all()
    # A start that was still filling has no rate. Beside one that saw its queue grow, overload is known all the same.
    assert whole.filter(pl.col("overloaded").is_null())["requests_s"].is_null().all()
    followed = whole.filter(~pl.col("overloaded"))
    for name in ("requests_s", "goodput_s", "ttft_p50_ms", "itl_p50_ms"):
        assert followed[name].null_count() == 0 and (followed[name] > 0).all(), name


class TestLoad(SoundTwin):
    pass


def test_the_page_shows_all_three_sections(store: Path) -> None:
    page = (store / "report.html").read_text(encoding="utf-8")
    assert 'id="load"' in page and 'id="load-rates"' in page and 'id="load-categories"' in page


def test_memory_is_what_this_engine_says_and_the_kernel_saw(store: Path) -> None:
    rows = results(store).filter(step="memory").sort("technique")
    assert rows["technique"].to_list() == ["ar", "mtp"] and rows["visits"].to_list() == [2, 2], "every start"
    assert rows["verdict"].to_list() == ["ok", "ok"], rows["details"].to_list()
    assert rows["kv_cache_bytes"].to_list() == [2**30] * 2, "VLLM_CPU_KVCACHE_SPACE is 1 GiB"
    assert rows["kv_tokens"].min() > 100_000 and rows["kv_bytes_per_token"].null_count() == 0  # type: ignore[operator]
    assert rows["baseline_kv_tokens"].to_list() == [None, rows["kv_tokens"][0]]
    assert (rows["prompt_tokens"] == 2048 - 16).all(), "the whole context, but for the answer"
    assert rows["host_peak_bytes"].min() > 2**29  # type: ignore[operator]
    for name in ("weights_bytes", "graph_bytes", "gpu_memory_peak_bytes", "engine_memory_peak_bytes"):
        assert rows[name].null_count() == 2, f"{name}: no card is used"
    everything = results(store)
    assert everything["energy_j_per_token"].null_count() == everything["power_w"].null_count() == everything.height
    page = (store / "report.html").read_text(encoding="utf-8")
    assert 'id="memory"' in page and "No card told its power here" in page
