"""A store of an earlier version is read, reported and continued; `old_store/README.md` says what lies in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Plan
from flows.terminal.progress import ProgressReader
from warehouse.lease import Leases
from warehouse.ledger import Ledger, run_ids
from warehouse.placement import Placements
from warehouse.report.write import write_report
from warehouse.snapshot import current, publish, read_current
from warehouse.store import open_store
from warehouse.tables import PRODUCT_TABLES, SCHEMA_VERSION

AR, MTP = "a185d5bbd0076c03", "0d645a0bddeeb694"
"""Keys of the cells, which name them for ever."""

CONFIG_HASH = "55dca95a2308c62c"
"""Of the plan, as the old version made it."""

OLD_PLAN_HASH = "7a11f1b16fc8f786"
"""Of `old-plan`, as 0.1.0 made it, where evaluations and the needle test were planned and not built."""

HOUR_AGO_S = 3600.0


@pytest.fixture
def old_store(tmp_path: Path) -> Path:
    """A copy whose files are as old as a kept store's are: nobody works on it any more."""
    folder = tmp_path / "store"
    shutil.copytree(ROOT / "tests" / "warehouse" / "old_store", folder, ignore=shutil.ignore_patterns("*.md"))
    then = time.time() - HOUR_AGO_S
    for file in folder.rglob("*"):
        os.utime(file, (then, then))
    return folder


NEW_OF_OLD_SCORES = {"samples", "score_lo", "score_hi"}
"""Columns of schema 3 that the parts of schema 2 can fill; all its others are null in an old store."""

NEW_OF_OLD_SPEEDS = {"interval_scope", "visits", "repeat_sd", "prompt_tokens", "machine", "compared_as"}
"""Columns of schema 4, likewise; the machine is made of host and card, the AR of the model, which schema 2 knew."""

NEW_OF_OLD_TRIES = {"engine", "gpu", "weights", "acceptance_source", "unmeasured"}
"""Columns of schema 9, likewise: plans and commits always knew."""

RATIO_OF_SUMS = {"tok_s"}
"""What schema 4 computes otherwise: all tokens over all seconds, where a mean of the repeats' rates stood."""

SHARES = {"gpu_s", "cost_usd"}
"""Likewise: each row has its share of its step, where every row had the whole step's."""

STUDENT = {"tok_s_lo", "tok_s_hi"}
"""Likewise: Student's t, where a bootstrap over three repeats stood, which was too narrow."""


def test_an_old_store_is_read_to_the_same_figures(old_store: Path) -> None:
    store = open_store(str(old_store))
    assert run_ids(store) == ["old-night", "old-plan", "old-run"]
    old = current(store)
    assert old is not None and (old.number, old.schema_version) == (1, 2)
    newer = ("visits", "load", "k_curves", "recommendations")  # of schema 4, 5 and 6
    null = pl.col(pl.String).replace("", None)  # `attempts` said "" where nothing applies
    before = {table: read_current(store, table).with_columns(null) for table in PRODUCT_TABLES if table not in newer}
    manifest = publish(store)
    assert (manifest.number, manifest.schema_version) == (2, SCHEMA_VERSION), "new columns are a new snapshot"
    for table, was in before.items():
        now = read_current(store, table)
        new = {name for name in now.columns if was[name].is_null().all() and not now[name].is_null().all()}
        results = table == "results_consolidated"
        filled = {"results_consolidated": NEW_OF_OLD_SCORES | NEW_OF_OLD_SPEEDS, "attempts": NEW_OF_OLD_TRIES}
        assert new == filled.get(table, set())
        # nothing that the old version published has changed; p values that schema 3 corrects for the number of cells
        # (and with them `conclusion`) would differ, but this store's only accuracy is AR's own, so it has no such pair
        changed = RATIO_OF_SUMS | STUDENT | SHARES if results else set()
        assert_frame_equal(now.drop(new | changed), was.drop(new | changed), rel_tol=1e-9)
    speeds = [before["results_consolidated"], read_current(store)]
    was, now = (frame.filter(pl.col("tok_s").is_not_null()).to_dicts() for frame in speeds)
    assert [row["tok_s"] for row in now] == pytest.approx([row["tok_s"] for row in was], rel=1e-5)
    assert all(a["tok_s_lo"] < b["tok_s_lo"] and a["tok_s_hi"] > b["tok_s_hi"] for a, b in zip(now, was, strict=True))
    assert {row["interval_scope"] for row in now} == {"within one start"}
    ar = [frame.filter(cell_key=AR).group_by("step") for frame in (before["results_consolidated"], read_current(store))]
    whole, shares = (dict(ar[0].agg(pl.col("gpu_s").max()).rows()), dict(ar[1].agg(pl.col("gpu_s").sum()).rows()))
    assert shares == pytest.approx(whole), "and the shares add up to it"
    visits = read_current(store, "visits")
    assert visits["gpu_s"].sum() == pytest.approx(whole["throughput"])
    assert visits.height == 3 and visits["complete"].all() and visits["machine"].unique().len() == 1
    assert publish(store).number == 2, "the same content once more"
    assert read_current(store, "attempts")["ended"].drop_nulls().unique().sort().to_list() == [
        "autodowned",
        "done",
        "job_failed",
        "launch_failed",
        "preempted",
        "setup_failed",
        "silent",
        "stopped",
    ]


def test_an_old_run_is_known_by_its_plan_and_keys(old_store: Path) -> None:
    ledger = Ledger(open_store(str(old_store)), "old-run")
    plan = ledger.plan()
    assert [planned.cell.cell_key for planned in plan.cells] == [AR, MTP]
    assert plan.config_hash == CONFIG_HASH
    ledger.write_plan(plan)  # another plan would be refused
    progress = ProgressReader(ledger, plan).read()
    assert (progress.measured, progress.total) == (5, 8)
    assert {cell.label: dict(cell.steps) for cell in progress.cells} == {
        "fake-model bf16 ar": dict.fromkeys(("smoke", "throughput", "parity", "eval-tiny"), "ok"),
        "fake-model bf16 mtp K=4": {
            "smoke": "ok",
            "throughput": "waiting",
            "parity": "waiting",
            "eval-tiny": "waiting",
        },
    }


def test_steps_that_an_old_plan_named_before_they_were_built_stay_not_built(old_store: Path) -> None:
    ledger = Ledger(open_store(str(old_store)), "old-plan")
    plan = ledger.plan()
    assert plan.config_hash == OLD_PLAN_HASH
    assert ledger.planned_cell(plan.cells[0].cell.cell_key) == plan.cells[0]
    cell = ProgressReader(ledger, plan).read().cells[0]
    built = ("smoke", "throughput", "parity")
    assert {name for name, state in cell.steps.items() if state == "waiting"} == set(built)
    unbuilt = {name for name, state in cell.steps.items() if state == "not built"}
    assert {"needle", "eval-gpqa", "eval-gpqa-inspect", "eval-mmlu-pro", "eval-ifeval"} <= unbuilt
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_step_of_todays_plans_is_built_and_read_back_as_such() -> None:
    plan = expand(load_sweep("nightly"))
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert "eval-gpqa" in [step.step for step in plan.cells[0].measured_steps]


def test_an_old_store_is_reported(old_store: Path) -> None:
    page = Path(write_report(open_store(str(old_store)))).read_text()
    assert "old-run" in page and "old-night" in page
    for anchor in ("ar", "speed", "acceptance", "accuracy", "parity", "latency", "flagged", "cost", "attempts"):
        assert f'id="{anchor}"' in page


def test_an_old_night_keeps_its_words(old_store: Path) -> None:
    ledger = Ledger(open_store(str(old_store)), "old-night")
    ends = [story.end for story in Placements(ledger, MTP).stories() if story.end is not None]
    told = {end.attempt: str(end.outcome) for end in ends}
    assert [(told[each.attempt], each.outcome) for each in Leases(ledger, MTP).attempts()] == [
        ("silent", "lost"),
        ("autodowned", "lost"),
        ("job_failed", "lost"),
        ("launch_failed", "lost"),
        ("job_failed", "failed"),
        ("stopped", "stopped"),
        ("preempted", "lost"),
    ]


@pytest.mark.slow(12)
def test_an_old_run_is_continued_at_the_condition_that_its_killed_runner_began(
    old_store: Path, tmp_path: Path, node_python: Path
) -> None:
    engine = tmp_path / "bin" / "fake-vllm"
    engine.parent.mkdir()
    engine.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT}/tests/fake_engine.py "$@"\n')
    engine.chmod(0o755)
    asked = tmp_path / "requests.jsonl"
    done = subprocess.run(
        [str(node_python), "-m", "tasks.cell", "--store", str(old_store), "--run", "old-run", "--cell", MTP],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
        env=os.environ
        | {
            "PATH": f"{engine.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SPECSWEEP_STATE": str(tmp_path / "state"),
            "FAKE_ENGINE_COUNT": str(asked),
            "FAKE_ENGINE_TOKEN_S": "0.0106",  # as slow as the old windows: at another speed the row is unsteady
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ledger = Ledger(open_store(str(old_store)), "old-run")
    assert [attempt.outcome for attempt in Leases(ledger, MTP).attempts()] == ["lost", "completed"]
    commit = ledger.read_commit(MTP, "throughput")
    assert commit is not None and commit.attempt == 2
    windows = [part.key.rsplit("/", 1)[1].split("-")[1] for part in commit.parts if part.table == "windows"]
    assert windows.count("0001") == 2, "what the killed runner stored is part of the commit"
    assert windows.count("0002") == 6, "and the condition that it had begun is measured by one start"
    publish(ledger.store)
    rows = read_current(ledger.store).to_dicts()
    mtp = [row for row in rows if row["cell_key"] == MTP and row["step"] == "throughput" and row["mode"] == "fixed"]
    assert [row["repeats"] for row in mtp] == [3, 2]
    assert not any(row["speedup"] for row in mtp), "AR's old rows are another machine's"
    assert not any("mixed_machines" in row["reasons"] for row in mtp), "windows of the killed runner are in no figure"
    whole = mtp[-1]
    assert any(said.startswith("no_control: AR was measured on another machine") for said in whole["details"])
