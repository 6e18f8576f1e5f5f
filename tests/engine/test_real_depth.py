"""The tiny twin of `depth`, whole: real vLLM on the CPU, the real family, AR and MTP at three depths, each twice."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.engine.tiny_runs import SoundTwin, measure, results

pytestmark = [pytest.mark.engine, pytest.mark.slow(390)]

DEPTHS = (0, 256, 512)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measure("depth-tiny", tmp_path_factory.mktemp("depth"))


@pytest.fixture(scope="module")
def rows(store: Path) -> pl.DataFrame:
    return results(store).filter(step="depth")


def test_every_depth_has_both_rows_with_all_their_columns(rows: pl.DataFrame) -> None:
    assert rows.height == 2 * 2 * len(DEPTHS), "two cells, two parts"
    assert set(rows["condition"]) == {
        "pp256", "tg128", "pp256 @ d256", "tg128 @ d256", "pp256 @ d512", "tg128 @ d512"
    }  # fmt: skip
    of_both = (
        "tok_s", "tok_s_mean", "tok_s_sd", "depth_tokens", "context_tokens", "output_tokens",
        "concurrency", "repeats", "visits", "cv", "repeat_sd", "prompt_tokens", "gpu_s",
    )  # fmt: skip
    parts = {
        "prefill": (*of_both, "ttft_ms"),
        "decode": (*of_both, "tpot_ms", "peak_tok_s", "peak_tok_s_sd", "peak_window_s"),
    }
    for mode, names in parts.items():
        part = rows.filter(mode=mode)
        assert {name: part[name].null_count() for name in names if part[name].null_count()} == {}
    first = rows.filter(mode="prefill")["first_chunk_tokens"]
    assert first.null_count() == 0 and first.median() == 1, "a prefill makes one token, and it is seen"
    drafted = rows.filter(mode="decode", technique="mtp")
    for name in ("acceptance_length", "acceptance_by_position", "tokens_per_step"):
        assert drafted[name].null_count() == 0, name


def test_what_was_sent_and_made_is_what_was_asked_for(rows: pl.DataFrame) -> None:
    assert (rows["prompt_tokens"] == rows["context_tokens"]).all(), "listings have exactly the length"
    assert (rows["context_tokens"] - rows["depth_tokens"] == 256).all()


class TestDepth(SoundTwin):
    pass


def test_figures_are_of_one_run_s_two_parts(rows: pl.DataFrame) -> None:
    decode, prefill = rows.filter(mode="decode"), rows.filter(mode="prefill")
    assert (decode["peak_tok_s"] >= decode["tok_s_mean"] * 0.99).all(), "a peak is at least the mean"
    for row in prefill.filter(verdict="ok").iter_rows(named=True):  # one run that waited for a processor parts the two
        assert row["tok_s"] == pytest.approx(1000 * row["context_tokens"] / row["ttft_ms"], rel=0.5)
    assert decode.filter(technique="mtp")["acceptance_length"].is_between(1.2, 2.0).all(), "K = 1"


def test_the_page_has_the_section(store: Path) -> None:
    page = (store / "report.html").read_text(encoding="utf-8")
    assert 'id="depth"' in page and "Token generation at depth" in page
