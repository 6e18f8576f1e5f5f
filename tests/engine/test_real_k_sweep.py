"""`k-sweep-tiny` without its K = 2: real vLLM on the CPU, the real family, K = 1 and 4 beside AR, there and back."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from configs.checkout import ROOT
from tests.engine.tiny_runs import SoundTwin, measure, results

pytestmark = [pytest.mark.engine, pytest.mark.quiet, pytest.mark.slow(480)]

LEFT_OUT = "k: 2"  # each K costs two starts of the engine, and three points are as many as a step can be fitted to
KS = [0, 1, 4]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("k-sweep")
    lines = (ROOT / "configs/sweeps/k-sweep-tiny.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
    sweep = folder / "k-sweep-tiny.yaml"
    sweep.write_text("".join(line for line in lines if LEFT_OUT not in line), encoding="utf-8")
    return measure(str(sweep), folder)


def test_every_condition_has_a_recommendation_or_the_reason_why_not(store: Path) -> None:
    rows = pl.read_parquet(store / "recommendations.parquet")
    assert {"short c=1", "load c=1", "load c=1, coding"} <= set(rows["condition"])
    for row in rows.iter_rows(named=True):
        assert (row["k"] is None) == (row["refusal"] is not None) and row["wording"], row
        assert row["k"] in (None, *KS) and row["k_candidates"] == KS


def test_only_noise_and_rates_that_are_not_ok_stand_in_the_way_of_a_recommendation(store: Path) -> None:
    curves = pl.read_parquet(store / "k_curves.parquet")
    for row in pl.read_parquet(store / "recommendations.parquet").iter_rows(named=True):
        points = curves.filter(**{name: row[name] for name in ("step", "condition", "mode")})
        said = row["refusal"] or ""
        if said.startswith("incomplete:"):
            assert set(points["verdict"]) != {"ok"}, said
        elif not said.startswith("placebo_failed:"):
            assert not said or said.startswith("too noisy:"), said
            assert row["fastest_k"] in KS
            assert points.select("of_best", "of_best_lo", "of_best_hi").null_count().sum_horizontal().item() == 0, row


def test_the_cost_of_a_draft_is_estimated_and_theory_stands_beside_every_k(store: Path) -> None:
    curves = pl.read_parquet(store / "k_curves.parquet").filter(condition="short c=1", mode="fixed")
    assert curves["k"].to_list() == KS
    drafting = curves.filter(pl.col("k") > 0)
    for name in ("tokens_per_step", "tokens_expected", "acceptance_rate", "tokens_geometric"):
        assert drafting[name].null_count() == 0, name
    assert (drafting["tokens_per_step"] - drafting["tokens_expected"]).abs().max() < 0.2  # type: ignore[operator]
    if set(curves["verdict"]) != {"ok"}:
        pytest.skip("a busy machine spoiled a rate, and a step is only fitted to those that are ok")
    assert curves["step_ms"].null_count() == 0
    for name in ("step_ms_fitted", "tok_s_expected", "speedup_expected", "residual", "theory_share", "speedup"):
        assert drafting[name].null_count() == 0, name
    told = pl.read_parquet(store / "recommendations.parquet").filter(condition="short c=1", mode="fixed")
    [row] = told.iter_rows(named=True)
    assert row["points"] == len(KS) and row["target_step_ms"] > 0
    assert row["draft_cost_lo"] <= row["draft_cost"] <= row["draft_cost_hi"]


def test_memory_and_workloads_are_measured_of_every_k(store: Path) -> None:
    rows = results(store)
    for step, column in (("memory", "kv_tokens"), ("prompts", "chars_s"), ("prompts", "answer_s")):
        found = rows.filter(step=step)
        assert found["cell_key"].n_unique() == len(KS) and found[column].null_count() == 0, (step, column)


def test_answers_of_a_fixed_length_and_those_that_may_end_have_rows_of_their_own(store: Path) -> None:
    rows = results(store).filter(step="throughput", condition="short c=1")
    assert sorted(set(rows["mode"])) == ["fixed", "natural", "stream"]
    fixed, natural = rows.filter(mode="fixed"), rows.filter(mode="natural")
    assert fixed.height == natural.height == len(KS) and natural["tok_s"].null_count() == 0
    assert fixed["answer_tokens"].null_count() == fixed["truncated"].null_count() == len(KS), "all are as long as asked"
    assert natural["answer_tokens"].is_between(1, natural["output_tokens"]).all()
    assert natural["truncated"].null_count() == 0, "the family was never taught to end a list: the cap does"


class TestKSweep(SoundTwin):
    pass


def test_the_page_has_the_curves(store: Path) -> None:
    page = (store / "report.html").read_text(encoding="utf-8")
    assert 'id="which-k"' in page
    for name in ("short c=1", "short c=1 (natural)"):
        assert f"Speed over K, {name}<" in page, name
