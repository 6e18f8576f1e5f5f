"""`sweep run` and `sweep demo` after requests that failed: all is measured and published, and its exit code says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.fake_run import write_user_configs

Finish = Callable[..., tuple[int, str]]

SUITE = """
name: fake-suite
steps:
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 64, output_tokens: 32, repeats: 3, requests: 5, stream_requests: 0}
      - {name: once c=1, context_tokens: 64, output_tokens: 32, repeats: 1, requests: 1, stream_requests: 0}
"""


@pytest.mark.slow(19)
def test_requests_that_failed_end_the_command_with_a_code_of_their_own(tmp_path: Path, finish_sweep: Finish) -> None:
    write_user_configs(tmp_path, "ar", SUITE)
    name = str(tmp_path / "sweep.yaml")
    for command in (("run", name), ("run", name), ("demo", "--sweep", name)):  # measured, and twice found measured
        code, said = finish_sweep(*command, "--run-id", "r1", FAKE_ENGINE="some_errors")
        rows = pl.read_parquet(tmp_path / "store" / "results_consolidated.parquet")
        failed = rows.filter(pl.col("reasons").list.contains("request_failed"))["condition"].unique().to_list()
        assert failed == ["short c=1"], rows["condition", "reasons"]
        assert code == 4, said
        assert "report.html" in said, "the report is written as always"
        [line] = [each for each in said.splitlines() if each.startswith("requests failed or came back short:")]
        assert "fake-model bf16 ar, short c=1 (request_failed)" in line and "once" not in line


@pytest.mark.slow(14)
def test_a_run_whose_requests_were_all_answered_ends_well(tmp_path: Path, finish_sweep: Finish) -> None:
    write_user_configs(tmp_path, "ar", SUITE)
    code, said = finish_sweep("run", str(tmp_path / "sweep.yaml"), "--run-id", "r1")
    assert code == 0 and "requests failed" not in said, said


@pytest.mark.slow(29)
def test_answers_that_are_too_short_count_and_other_faults_do_not(tmp_path: Path, finish_sweep: Finish) -> None:
    for lie, wanted in (("short", 4), ("cache_hits", 0)):
        (tmp_path / lie).mkdir()
        write_user_configs(tmp_path / lie, "ar", SUITE)
        asked = ("run", str(tmp_path / lie / "sweep.yaml"), "--store", str(tmp_path / lie / "store"))
        code, said = finish_sweep(*asked, FAKE_ENGINE=lie)
        assert code == wanted, (lie, said)
        assert ("short_output)" in said.splitlines()[-1]) is (wanted == 4), said
