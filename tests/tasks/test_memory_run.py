"""The memory step and power through the whole node runner: a fake HTTP engine, a FAKE driver and a FAKE NVML."""

import os
from pathlib import Path

import pytest

from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_sweep
from configs.steps.memory import MemoryStep
from configs.visits import Measurement
from tasks.context import StepContext
from tasks.frameworks.process import Frameworks
from tasks.steps.memory import measure
from tests.fake_box import FakeBox
from tests.fake_run import FakeRun
from tests.tasks.fake_client import FakeClient
from tests.tasks.virtual_time import Clock, run
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store
from warehouse.ledger.tables import Row, decode

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
GAUGES = """# TYPE transformers:weights_bytes gauge
transformers:weights_bytes{of="target"} 6.2e+10
transformers:weights_bytes{of="assistant"} 1e+09
transformers:gpu_memory_peak_allocated_bytes 6.5e+10
transformers:gpu_memory_peak_reserved_bytes 6.7e+10
transformers:resident_memory_peak_bytes 3e+09
"""
"""As a FAKE of the transformers engine says them, once a request was answered."""

BEFORE = "".join(line + "\n" for line in GAUGES.splitlines() if "gpu_memory" not in line)


@pytest.fixture
def on_a_card(tmp_path: Path) -> dict[str, str]:
    box = FakeBox(tmp_path / "box")
    box.card()
    return box.env | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "tests" / "fake_nvml"), str(ROOT))),
        "FAKE_ENGINE_TOKEN_S": "0.006",
    }


def test_a_start_says_its_memory_at_full_context(tmp_path: Path, node_python: Path, on_a_card: dict[str, str]) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE, max_model_len=1024)
    run.measured(node_python, **on_a_card)
    [row] = run.rows("memory", "memory_starts")
    assert (row["weights_bytes"], row["kv_cache_bytes"]) == (round(1.5 * GIB), 4 * GIB)
    assert (row["kv_tokens"], row["graph_bytes"]) == (65_536, round(0.25 * GIB)), "tokens by the engine's own page"
    assert row["gpu_memory_peak_bytes"] == 70 * GIB, "of the card, by anybody"
    assert row["engine_memory_peak_bytes"] == 2 * GIB, "of the engine's own processes"
    assert 2**20 < row["host_peak_bytes"] < 2 * GIB
    assert (row["context_tokens"], row["output_tokens"], row["completion_tokens"]) == (1008, 16, 16)
    assert 0.98 * 1008 <= row["prompt_tokens"] <= 1008
    assert run.commit("memory").verdict == "ok", run.rows("memory", "verdicts")


def test_energy_is_told_and_a_power_cap_is_fine(tmp_path: Path, node_python: Path, on_a_card: dict[str, str]) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=1024)
    run.measured(node_python, **on_a_card, FAKE_NVML="at_the_limit")
    windows = run.rows("throughput", "windows")
    assert len(windows) == 3
    for row in windows:
        assert row["power_w"] == pytest.approx(100, rel=0.05) and row["energy_from"] == "counter"
        assert row["energy_j"] > 99 * row["wall_s"], "from before the first request to behind the last"
        assert row["throttle_reasons"] == ["sw_power_cap"]
    assert "throttled" not in run.commit("throughput").reasons


def test_a_hot_card_makes_its_windows_suspect(tmp_path: Path, node_python: Path, on_a_card: dict[str, str]) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=1024)
    run.measured(node_python, **on_a_card, FAKE_NVML="hot")
    assert "throttled" in run.commit("throughput").reasons and "throttled" in run.commit("memory").reasons
    [verdict] = run.rows("memory", "verdicts")
    assert "a card held its clock down in 1 of 1 windows: it was too hot (hw_thermal_slowdown)" in verdict["details"]


def test_without_a_driver_one_line_is_said_and_all_is_null(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=1024)
    said = run.measured(node_python, FAKE_ENGINE_TOKEN_S="0.006", PATH="/usr/bin:/bin")
    assert said.count("power and energy aren't measured: no card is used that a driver tells of") == 1
    [row], windows = run.rows("memory", "memory_starts"), run.rows("throughput", "windows")
    told = ("energy_j", "power_w", "gpu_memory_peak_bytes", "clock_mhz_min", "temperature_c_max", "throttle_reasons")
    assert {each[name] for each in (row, *windows) for name in told} == {None}
    assert row["engine_memory_peak_bytes"] is None and row["kv_tokens"] == 65_536


@pytest.mark.slow(4)
def test_other_words_in_a_log_are_null(tmp_path: Path, node_python: Path, on_a_card: dict[str, str]) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=1024)
    run.measured(node_python, lie="reworded_log", **on_a_card)
    [row] = run.rows("memory", "memory_starts")
    assert row["weights_bytes"] is None and row["kv_cache_bytes"] is None and row["kv_tokens"] == 65_536
    [verdict] = run.rows("memory", "verdicts")
    assert (verdict["verdict"], verdict["reasons"]) == ("suspect", ["log_unread"])
    assert "weights, KV cache memory" in verdict["details"][0]


def of_generate(folder: Path, before: str, after: str) -> tuple[Row, list[str]]:
    """The row and its findings, of an engine whose page changes as it answers."""
    planned = expand(load_sweep("transformers-tiny")).cells[2]
    spec = MemoryStep.model_validate({"step": "memory"})

    async def whole(clock: Clock) -> tuple[Row, list[str]]:
        ledger = Ledger(open_store(str(folder / "store")), "r1")
        async with FakeClient(planned, clock, [0.01]) as client, Frameworks(folder) as frameworks:
            counters = client.text

            async def text(path: str) -> str:
                said = await counters(path)
                return said + (after if client.asked["fixed"] else before) if path == "/metrics" else said

            client.text = text  # type: ignore[method-assign]
            ctx = StepContext(
                planned=planned, served=planned.cell, client=client, ledger=ledger, measurement=Measurement(spec),
                attempt=1, tell=lambda progress: None, frameworks=frameworks,
            )  # fmt: skip
            [judgement] = await measure(ctx, spec)
            [part] = [part for part in ctx.parts if part.table == "memory_starts"]
            [row] = decode(ledger.store.get(part.key) or b"", part.key)
            return row, [finding.reason.value for finding in judgement.findings]

    return run(whole)


def test_generate_says_its_memory_in_gauges_behind_the_request_and_is_unread_without_them(tmp_path: Path) -> None:
    row, found = of_generate(tmp_path, BEFORE, GAUGES)
    assert row["weights_bytes"] == 63_000_000_000, "the target's and the assistant's"
    assert row["engine_memory_peak_bytes"] == 67_000_000_000, "no driver tells, so what torch had reserved"
    assert row["host_peak_bytes"] == 3_000_000_000
    assert row["kv_tokens"] is None and row["kv_cache_bytes"] is None and row["graph_bytes"] is None
    assert found == [], "no line of vLLM's log is missed"
    row, found = of_generate(tmp_path / "without", "", "")
    assert row["weights_bytes"] is None and found == ["log_unread"]
