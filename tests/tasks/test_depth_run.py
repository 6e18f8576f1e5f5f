"""The depth step through the whole node runner, against a fake HTTP engine: measured, killed, continued, lied to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.busy_machine import KEPT_WAITING
from tests.fake_run import FakeRun
from tests.tasks.test_cell import kill, wait_until

SUITE = """
name: fake-suite
steps:
  - {step: smoke, items: 5}
  - {step: depth, prompts: prose, depths: [0, 256], pp_tokens: 128, tg_tokens: 64, repeats: 2, peak_window_s: 0.1}
"""

LONG_RUNS = """
name: fake-suite
steps:
  - {step: depth, prompts: prose, depths: [0, 128, 256, 384], pp_tokens: 128, tg_tokens: 256, repeats: 1, warmup: 0,
     concurrencies: [2]}
"""
"""Each of a depth's verdicts is of one run of seconds, so that a neighbour who takes the processor can't spoil all."""


def test_depths_are_measured_through_the_runner_and_committed(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE)
    code, said = run.finish(node_python, FAKE_ENGINE_TOKEN_S="0.004")
    assert code == 0, said
    assert set(run.commit("depth").reasons) <= KEPT_WAITING, run.rows("depth", "verdicts")
    requests, windows = run.rows("depth", "depth_requests"), run.rows("depth", "depth_windows")
    assert Counter(row["depth_tokens"] for row in windows) == Counter(row["depth_tokens"] for row in requests)
    assert Counter(row["depth_tokens"] for row in windows) == {0: 2, 256: 2}
    for row in windows:
        assert row["completion_tokens"] == row["engine_generation_tokens"] == 64
        assert row["prompt_tokens"] == pytest.approx(row["depth_tokens"] + 128, abs=1)
        assert row["prefill_s"] and row["decode_s"] and row["peak_tok_s"] and row["door_ms"]
    modes = [(row["condition"], row["mode"]) for row in run.rows("depth", "verdicts")]
    assert modes == [("pp128", "prefill"), ("tg64", "decode"), ("pp128 @ d256", "prefill"), ("tg64 @ d256", "decode")]


@pytest.mark.slow(6)
def test_a_killed_runner_keeps_the_depth_that_was_finished(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE)
    parts = tmp_path / f"store/runs/r1/cells/{run.key}/steps/depth/parts"
    first = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.01")
    wait_until(lambda: len(list(parts.glob("depth_windows-*"))) >= 3, "a finished depth and a run of the next")
    kill(first)
    code, said = run.finish(node_python, FAKE_ENGINE_TOKEN_S="0.004")
    assert code == 0, said
    runs = {(row["condition"], row["attempt"]) for row in run.rows("depth", "depth_windows")}
    assert ("pp128+tg64", 1) in runs and ("pp128+tg64", 2) not in runs, "what was finished is not measured again"
    assert ("pp128+tg64 @ d256", 2) in runs


@pytest.mark.slow(5)
@pytest.mark.parametrize(
    ("lie", "reason"),
    [("bursts", "stream_burst"), ("short", "short_output"), ("miscount", "token_mismatch"), ("cuts", "request_failed")],
)
def test_an_engine_that_lies_is_rejected_in_both_parts(
    tmp_path: Path, node_python: Path, lie: str, reason: str
) -> None:
    run = FakeRun(tmp_path, suite=LONG_RUNS)
    assert run.finish(node_python, lie, FAKE_ENGINE_TOKEN_S="0.01" if lie == "bursts" else "0.004")[0] == 0
    verdicts = run.rows("depth", "verdicts")
    assert len(verdicts) == 2 * 4
    # beside a busy neighbour a client may have waited even so: then it accuses nobody of bursts
    told = [row for row in verdicts if lie != "bursts" or "client_starved" not in row["reasons"]]
    assert told and {row["verdict"] for row in told} == {"rejected"}
    assert all(reason in row["reasons"] for row in told)
