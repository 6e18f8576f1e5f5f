"""The memory step and power through the whole node runner: a fake HTTP engine, a FAKE driver and a FAKE NVML."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from configs.checkout import ROOT
from tests.fake_box import FakeBox
from tests.fake_run import FakeRun

GIB = 1024**3

SUITE = """
name: fake-suite
steps:
  - {step: memory, output_tokens: 16}
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 64, output_tokens: 128, repeats: 3, requests: 2, stream_requests: 0}
"""


@pytest.fixture
def on_a_card(tmp_path: Path) -> dict[str, str]:
    """Environment of a runner on a machine with one card."""
    box = FakeBox(tmp_path / "box")
    box.card()
    return box.env | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "tests" / "fake_nvml"), str(ROOT))),
        "FAKE_ENGINE_TOKEN_S": "0.006",
    }


def test_a_start_says_its_memory_and_one_request_fills_the_context(
    tmp_path: Path, node_python: Path, on_a_card: dict[str, str]
) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE, max_model_len=1024)
    code, said = run.finish(node_python, **on_a_card)
    assert code == 0, said
    [row] = run.rows("memory", "memory_starts")
    assert (row["weights_bytes"], row["kv_cache_bytes"]) == (round(1.5 * GIB), 4 * GIB)
    assert (row["kv_tokens"], row["graph_bytes"]) == (65_536, round(0.25 * GIB)), "tokens by the engine's own page"
    assert row["gpu_memory_peak_bytes"] == 70 * GIB, "of the card, by anybody"
    assert row["engine_memory_peak_bytes"] == 2 * GIB, "of the engine's own processes"
    assert 2**20 < row["host_peak_bytes"] < 2 * GIB
    assert (row["context_tokens"], row["output_tokens"], row["completion_tokens"]) == (1008, 16, 16)
    assert 0.98 * 1008 <= row["prompt_tokens"] <= 1008
    assert run.commit("memory").verdict == "ok", run.rows("memory", "verdicts")


def test_every_timed_window_has_energy_and_a_capped_card_is_told_and_not_accused(
    tmp_path: Path, node_python: Path, on_a_card: dict[str, str]
) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=1024)
    code, said = run.finish(node_python, **on_a_card, FAKE_NVML="at_the_limit")
    assert code == 0, said
    windows = run.rows("throughput", "windows")
    assert len(windows) == 3
    for row in windows:
        assert row["power_w"] == pytest.approx(100, rel=0.05) and row["energy_from"] == "counter"
        assert row["energy_j"] > 99 * row["wall_s"], "from before the first request to behind the last"
        assert row["throttle_reasons"] == ["sw_power_cap"]
    assert "throttled" not in run.commit("throughput").reasons


def test_a_card_that_protects_itself_makes_its_windows_suspect(
    tmp_path: Path, node_python: Path, on_a_card: dict[str, str]
) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=1024)
    code, said = run.finish(node_python, **on_a_card, FAKE_NVML="hot")
    assert code == 0, said
    assert "throttled" in run.commit("throughput").reasons and "throttled" in run.commit("memory").reasons
    [verdict] = run.rows("memory", "verdicts")
    assert "a card held its clock down in 1 of 1 windows: it was too hot (hw_thermal_slowdown)" in verdict["details"]


def test_without_a_driver_one_line_is_said_and_all_is_null(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=1024)
    code, said = run.finish(node_python, FAKE_ENGINE_TOKEN_S="0.006", PATH="/usr/bin:/bin")
    assert code == 0, said
    assert said.count("power and energy aren't measured: no card is used that a driver tells of") == 1
    [row], windows = run.rows("memory", "memory_starts"), run.rows("throughput", "windows")
    told = ("energy_j", "power_w", "gpu_memory_peak_bytes", "clock_mhz_min", "temperature_c_max", "throttle_reasons")
    assert {each[name] for each in (row, *windows) for name in told} == {None}
    assert row["engine_memory_peak_bytes"] is None and row["kv_tokens"] == 65_536


def test_a_log_in_other_words_gives_null_and_is_said(
    tmp_path: Path, node_python: Path, on_a_card: dict[str, str]
) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=1024)
    code, said = run.finish(node_python, lie="reworded_log", **on_a_card)
    assert code == 0, said
    [row] = run.rows("memory", "memory_starts")
    assert row["weights_bytes"] is None and row["kv_cache_bytes"] is None and row["kv_tokens"] == 65_536
    [verdict] = run.rows("memory", "verdicts")
    assert (verdict["verdict"], verdict["reasons"]) == ("suspect", ["log_unread"])
    assert "weights, KV cache memory" in verdict["details"][0]
