"""`sweep run` with Prefect's ephemeral server: isolation of failures, continuation, clear errors."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from configs.checkout import ROOT
from tests.busy_machine import PATIENCE_S
from tests.fake_run import QUICK, write_user_configs
from tests.flows.conftest import Finish, Sweep
from tests.warehouse.report.pages import Page
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store

BROKEN_CELL = "  - {model: fake-model, precision: fp8, technique: ar, serving: {max_model_len: 1024}}\n"


@pytest.mark.core
@pytest.mark.slow(90)
def test_a_sweep_is_measured_published_and_not_measured_again(tmp_path: Path, finish_sweep: Finish) -> None:
    run = ("run", write_user_configs(tmp_path, "mtp"), "--run-id", "r1")
    said = finish_sweep(*run)
    assert "results_consolidated" in said and "report.html" in said
    frame = pl.read_parquet(tmp_path / "store" / "results_consolidated.parquet")
    assert set(frame["step"]) == {"smoke", "throughput", "parity", "eval-tiny"}
    assert frame.filter(pl.col("mode") == "fixed")["acceptance_length"].to_list() == [2.0, 2.0]
    sent = (tmp_path / "requests.jsonl").read_text()
    finish_sweep(*run)
    assert (tmp_path / "requests.jsonl").read_text() == sent
    assert '"measured": 4, "total": 4' in finish_sweep("status", "--json")
    said = finish_sweep("reproduce", frame["cell_key"][0][:6])
    assert "fake_engine.py serve" in said and "curl" in said
    curl = next(line for line in said.splitlines() if line.startswith("curl"))
    prompt = json.loads(shlex.split(curl)[-1])["messages"][0]["content"]
    assert prompt in map(json.loads, sent.splitlines()), "as it was sent, though no engine is there to count its tokens"


@pytest.mark.slow(68)
def test_a_sweep_of_the_users_folder_is_measured_forwards_and_then_back_on_one_machine_with_ar_between(
    tmp_path: Path, finish_sweep: Finish
) -> None:
    write_user_configs(tmp_path, "ar ngram", QUICK, visits="balanced")
    finish_sweep("run", "sweep.yaml", "--run-id", "r1", cwd=tmp_path, SPECSWEEP_STATE="state")
    kept = {path.name for path in (tmp_path / "state").iterdir()}
    assert {"prefect", "cells", "engine.lock"} <= kept, "its flow and its node work in the checkout, and keep all there"
    ledger = Ledger(open_store(str(tmp_path / "store")), "r1")
    ar, ngram = (planned.cell.cell_key for planned in ledger.plan().cells)
    order = [(ar, ""), (ngram, ""), (ar, "@2"), (ngram, "@2"), (ar, "@3")]
    moments = [commit.committed_at for key, visit in order if (commit := ledger.read_commit(key, f"throughput{visit}"))]
    assert len(moments) == 5 and moments == sorted(moments)
    assert "7 of 7 steps" in finish_sweep("status")


@pytest.mark.slow(62)
def test_one_cells_failure_does_not_stop_the_others(tmp_path: Path, finish_sweep: Finish) -> None:
    sweep = write_user_configs(tmp_path, "ar")
    sweep.write_text(sweep.read_text().replace("cells:\n", "max_attempts: 1\ncells:\n" + BROKEN_CELL))
    said = finish_sweep("run", sweep, "--run-id", "r1", FAKE_ENGINE_BROKEN="--max-model-len 1024", code=1)
    words = " ".join(said.split())
    assert words.count("1 of 2 cells failed") == words.count("the fake engine refuses these arguments") == 1, said
    frame = pl.read_parquet(tmp_path / "store" / "results_consolidated.parquet")
    assert set(frame["precision"]) == {"bf16"} and "eval-tiny" in frame["step"].to_list()


@pytest.mark.slow(4)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "no-such-sweep"), "no-such-sweep"),
        (("plan", "no-such-sweep"), "no-such-sweep"),
        (("status",), "sweep run demo"),
        (("reproduce", "0000"), "no snapshot yet"),
        (("doctor", "--store", "ftp://x/y"), "s3://bucket/prefix"),
        (("run", "demo", "--run-id", "a/b"), "a/b"),
    ],
)
def test_a_users_mistake_is_one_line_with_the_remedy(
    finish_sweep: Finish, arguments: tuple[str, ...], words: str
) -> None:
    said = finish_sweep(*arguments, code=1)
    assert words in said and "Traceback" not in said


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "SPECSWEEP_STATE"])
def test_a_folder_that_can_not_be_written_to_is_one_line(tmp_path: Path, finish_sweep: Finish, variable: str) -> None:
    (tmp_path / "file").touch()
    said = finish_sweep("run", write_user_configs(tmp_path, "ar"), code=1, **{variable: str(tmp_path / "file")})
    assert "Traceback" not in said
    [line] = [line for line in said.splitlines() if "can't be written to" in line]
    assert f"{tmp_path}/file" in line and f"set {variable} to" in line


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_output_that_takes_no_more_is_one_line(tmp_path: Path, more: tuple[str, ...]) -> None:
    argv = [sys.executable, "-P", "-m", "flows.terminal", "plan", "tiny-quick", "--store", str(tmp_path / "store")]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*argv, *more],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    [line] = done.stderr.splitlines()
    assert done.returncode == 1 and "No space left on device" in line and "free space" in line


@pytest.mark.parametrize("module", ["configs.errors", "typer", "flows.terminal.cli"])
def test_ctrl_c_before_the_command_has_begun_leaves_no_traceback(start_sweep: Sweep, module: str) -> None:
    process = start_sweep("plan", "full", PYTHONPROFILEIMPORTTIME="1")
    assert process.stdout is not None
    while not process.stdout.readline().rstrip().endswith(f" {module}"):
        pass
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert "Traceback" not in said


def test_one_cell_is_no_cells(tmp_path: Path, finish_sweep: Finish) -> None:
    assert "\n1 cell, 4 steps to measure" in finish_sweep("plan", write_user_configs(tmp_path, "ar"))


@pytest.mark.slow(12)
def test_help_shows_examples(finish_sweep: Finish) -> None:
    for command in ("plan", "run", "demo", "status", "report", "doctor", "reproduce"):
        assert "Example" in finish_sweep(command, "--help"), command


def test_plan_full_prints_the_matrix_without_a_store(finish_sweep: Finish, tmp_path: Path) -> None:
    said = finish_sweep("plan", "full")
    assert said.count(" fp8 ") >= 11
    assert "not built yet" not in said and "total" in said
    assert all(f"eval-{name}" in said for name in ("gpqa", "gpqa-inspect", "mmlu-pro", "ifeval", "haerae", "kmmlu"))
    assert not (tmp_path / "store").exists(), "planning writes nothing"


WHY = "the engine died: ValueError: the fake engine refuses these arguments"


@pytest.mark.slow(112)
def test_a_cell_that_does_not_start_is_a_row_with_its_reason_until_it_is_measured(
    tmp_path: Path, finish_sweep: Finish
) -> None:
    run = ("run", write_user_configs(tmp_path, "ar mtp", QUICK, more="max_attempts: 1\n"), "--run-id", "r1")
    store = tmp_path / "store"
    said = finish_sweep(*run, FAKE_ENGINE_BROKEN="--speculative-config", code=1)
    assert f"fake-model bf16 mtp K=4: {WHY}" in " ".join(said.split()), said

    [tried] = pl.read_parquet(store / "attempts.parquet").filter(outcome="failed").to_dicts()
    names = ("run_id", "model", "precision", "technique", "k", "engine", "gpu", "weights", "acceptance_source")
    assert [tried[name] for name in names] == [
        "r1", "fake-model", "bf16", "mtp", 4, "fake", "cpu", "real", "measured",
    ]  # fmt: skip
    assert (tried["reason"], tried["unmeasured"]) == (WHY, ["smoke", "throughput"])
    technique = pl.read_parquet(store / "results_consolidated.parquet")["technique"]
    assert set(technique) == {"ar"}, "no row without a measurement"
    page = Page((store / "report.html").read_text())
    assert ("section", {"id": "not-measured"}) in page.elements and ("a", {"href": "#not-measured"}) in page.elements
    assert f"mtp K=4 {WHY} everything failed 1" in page.text
    assert "Tried, and not measured or not whole: mtp K=4. See Not measured." in page.text.partition("Contents")[0]

    finish_sweep(*run)
    attempts = pl.read_parquet(store / "attempts.parquet").filter(technique="mtp")
    assert attempts.select("outcome", "unmeasured").rows() == [("failed", []), ("completed", [])]
    page = Page((store / "report.html").read_text())
    assert ("section", {"id": "not-measured"}) not in page.elements and "Tried, and not measured" not in page.text
    assert WHY in page.text, "the attempt is a row for ever"


SUITE = """
name: fake-suite
steps:
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 64, output_tokens: 32, repeats: 3, requests: 5, stream_requests: 0}
      - {name: once c=1, context_tokens: 64, output_tokens: 32, repeats: 1, requests: 1, stream_requests: 0}
"""


@pytest.mark.slow(38)
def test_requests_that_failed_end_the_command_with_a_code_of_their_own(tmp_path: Path, finish_sweep: Finish) -> None:
    name = write_user_configs(tmp_path, "ar", SUITE)
    for command in (("run", name), ("run", name), ("demo", "--sweep", name)):  # measured, and twice found measured
        said = finish_sweep(*command, "--run-id", "r1", FAKE_ENGINE="some_errors", code=4)
        rows = pl.read_parquet(tmp_path / "store" / "results_consolidated.parquet")
        failed = rows.filter(pl.col("reasons").list.contains("request_failed"))["condition"].unique().to_list()
        assert failed == ["short c=1"], rows["condition", "reasons"]
        assert "report.html" in said, "the report is written as always"
        [line] = [each for each in said.splitlines() if each.startswith("requests failed or came back short:")]
        assert "fake-model bf16 ar, short c=1 (request_failed)" in line and "once" not in line


@pytest.mark.slow(30)
@pytest.mark.parametrize(("lie", "code"), [("honest", 0), ("short", 4), ("cache_hits", 0)])
def test_answers_that_are_too_short_count_and_other_faults_do_not(
    tmp_path: Path, finish_sweep: Finish, lie: str, code: int
) -> None:
    said = finish_sweep("run", write_user_configs(tmp_path, "ar", SUITE), FAKE_ENGINE=lie, code=code)
    assert ("requests failed" in said) is ("short_output)" in said.splitlines()[-1]) is (code == 4), said
