"""The load step through the whole node runner, against a fake HTTP engine: measured, killed, continued, lied to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tasks.client import CLIENT_VERSION
from tests.busy_machine import KEPT_WAITING
from tests.fake_run import FakeRun
from tests.tasks.test_cell import kill, wait_until

SUITE = """
name: fake-suite
steps:
  - {step: smoke, items: 5}
  - {step: load, dataset: twin, requests_per_category: 2, concurrencies: [1, 2], max_tokens: 32}
"""


def test_a_load_step_is_measured_through_the_runner_and_committed(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE)
    code, said = run.finish(node_python, FAKE_ENGINE_TOKEN_S="0.004")
    assert code == 0, said
    # windows of a tenth of a second, beside whatever else this machine does: the client may say that it waited
    assert set(run.commit("load").reasons) <= KEPT_WAITING, run.rows("load", "verdicts")
    requests, windows = run.rows("load", "load_requests"), run.rows("load", "load_windows")
    assert Counter(row["concurrency"] for row in requests) == {1: 22, 2: 22}
    assert {row["finish_reason"] for row in requests} == {"stop"}
    assert all(row["ttft_ms"] for row in requests)
    timed = [row for row in requests if row["tpot_ms"] and row["chunk_ms"]]  # what a waiting client read at once isn't
    assert len(timed) > len(requests) / 2
    assert sum(row["completion_tokens"] for row in windows) == sum(row["engine_generation_tokens"] for row in windows)
    assert run.rows("load", "provenance")[-1]["dataset_revision"] == "twin-1"


@pytest.mark.slow(8)
def test_a_killed_runner_measures_the_load_that_it_had_begun_whole(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE)
    parts = tmp_path / f"store/runs/r1/cells/{run.key}/steps/load/parts"
    first = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.01")
    wait_until(lambda: len(list(parts.glob("load_windows-*"))) >= 3, "three finished categories")
    kill(first)
    code, said = run.finish(node_python)
    assert code == 0, said
    requests = run.rows("load", "load_requests")
    asked = Counter((row["concurrency"], row["prompt_id"]) for row in requests)
    assert len(asked) == 44, "nothing is left out"
    of_second = Counter(row["concurrency"] for row in requests if row["attempt"] == 2)
    assert of_second == {1: 22, 2: 22}, "one start of the engine is in a figure"


def test_an_engine_that_sends_bursts_is_rejected_in_every_category(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE.replace("  - {step: smoke, items: 5}\n", ""))
    assert run.finish(node_python, "bursts", FAKE_ENGINE_TOKEN_S="0.01")[0] == 0
    verdicts = run.rows("load", "verdicts")
    assert len(verdicts) == 2 * 12
    # beside a busy neighbour a client may have waited in a short window: then it accuses nobody
    told = [row for row in verdicts if "client_starved" not in row["reasons"]]
    assert told and {row["verdict"] for row in told} == {"rejected"}
    assert all("stream_burst" in row["reasons"] for row in told)


SCHEDULED = """
name: fake-suite
steps:
  - step: throughput
    prompts: prose
    conditions:
      - {name: short, context_tokens: 64, output_tokens: 96, repeats: 2, stream_requests: 0, natural: true}
  - {step: load, dataset: twin, requests_per_category: 2, rates: [20], max_tokens: 32}
"""


@pytest.mark.slow(5)
def test_a_schedule_and_natural_answers_are_measured_through_the_runner(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SCHEDULED)
    code, said = run.finish(node_python, FAKE_ENGINE_TOKEN_S="0.004")
    assert code == 0, said
    requests, [window] = run.rows("load", "load_requests"), run.rows("load", "load_windows")
    assert len(requests) == 22 and {row["mode"] for row in requests} == {"open"}
    assert all(row["sent_s"] >= row["due_s"] for row in requests), "nothing is sent before it is due"
    assert (window["condition"], window["rate_s"], window["arrival"]) == ("load 20/s", 20.0, "poisson")
    assert window["completion_tokens"] == window["engine_generation_tokens"]
    assert set(run.commit("load").reasons) <= KEPT_WAITING, run.rows("load", "verdicts")
    windows = run.rows("throughput", "windows")
    assert [(row["mode"], row["completion_tokens"]) for row in windows] == [
        ("fixed", 96), ("fixed", 96), ("natural", 12), ("natural", 12),
    ]  # fmt: skip
    assert not {"short_output", "token_mismatch", "blank_output"} & set(run.commit("throughput").reasons)
    assert run.rows("throughput", "provenance")[-1]["client_version"] == CLIENT_VERSION
