"""A step is a few small files: one that lies outside the checkout goes all the way, and nothing else knows of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from configs.checkout import ROOT
from flows.forecast.estimates import CPU_TOK_S, STEP_SETUP_S
from tests.fake_run import write_user_configs
from tests.flows.conftest import Finish

TOY = ROOT / "tests" / "toy_step"

SUITE = """
name: toy-suite
steps:
  - {step: smoke}
  - {step: toy, greetings: 4}
"""


def toy_sweep(folder: Path) -> str:
    write_user_configs(folder, "ar")
    sweep = folder / "sweep.yaml"
    sweep.write_text(sweep.read_text().replace("fake-suite", "toy-suite"))
    (folder / "suites" / "toy-suite.yaml").write_text(SUITE)
    return str(sweep)


@pytest.mark.slow(14)
def test_a_toy_step_is_planned_forecast_measured_consolidated_and_shown(tmp_path: Path, finish_sweep: Finish) -> None:
    sweep, more = toy_sweep(tmp_path), {"SPECSWEEP_STEPS": str(TOY)}
    code, said = finish_sweep("plan", sweep, "--json", **more)
    assert code == 0, said
    planned = json.loads(said.splitlines()[-1])["cells"][0]["steps"][1]
    assert (planned["step"], planned["state"]) == ("toy", "to measure")
    assert planned["seconds"] == pytest.approx(STEP_SETUP_S + 4 * 32 / CPU_TOK_S), "by its own workload"

    code, said = finish_sweep("run", sweep, **more)
    assert code == 0, said
    assert "toy" in said
    rows = pl.read_parquet(tmp_path / "store" / "results_consolidated.parquet").filter(pl.col("step") == "toy")
    assert rows.select("metric", "score", "n", "verdict").rows() == [("greeted", 1.0, 4, "ok")]
    assert rows["argv"][0] and rows["measured_at"][0], "it carries what every row carries"
    page = (tmp_path / "store" / "report.html").read_text()
    assert 'id="toy"' in page and 'href="#toy"' in page and "Who answers a greeting." in page
    assert "## greetings" in (tmp_path / "store" / "DATA_DICTIONARY.md").read_text()

    code, said = finish_sweep("plan", sweep)
    assert code == 1 and "'toy' isn't known" in said, "without the folder nobody has heard of it"
    code, said = finish_sweep("status")
    assert code == 1 and said.count("\n") == 1 and "other steps in SPECSWEEP_STEPS" in said


@pytest.mark.parametrize(
    ("broken", "change", "said"),
    [
        ("configs", ("def workload", "def work"), "ToyStep has no workload; without one it would look free"),
        ("configs", ("(MeasuredStep)", "(Work)"), "has 0 classes derived from MeasuredStep"),
        ("tasks", None, "step 'toy' has no tasks/steps/toy.py"),
        ("warehouse.dataset", None, "step 'toy' has no warehouse/dataset/steps/toy.py"),
    ],
)
def test_a_step_that_lacks_something_says_what(
    tmp_path: Path, broken: str, change: tuple[str, str] | None, said: str
) -> None:
    shutil.copytree(TOY, tmp_path / "steps")
    file = tmp_path.joinpath("steps", *broken.split("."), "steps", "toy.py")
    if change is None:
        file.unlink()
    else:
        file.write_text(file.read_text().replace(*change))
    program = f"import configs.schema; from configs.step import step_module; step_module({broken!r}, 'toy')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
        env=os.environ | {"SPECSWEEP_STEPS": str(tmp_path / "steps"), "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode != 0
    assert said in done.stderr


def test_what_is_wrong_with_own_steps_is_one_line(tmp_path: Path, finish_sweep: Finish) -> None:
    code, said = finish_sweep("plan", "demo", SPECSWEEP_STEPS=str(tmp_path / "nowhere"))
    assert code == 1 and said.startswith("sweep: SPECSWEEP_STEPS is ") and said.count("\n") == 1
    shutil.copytree(TOY, tmp_path / "steps")
    spec = tmp_path / "steps" / "configs" / "steps" / "toy.py"
    spec.write_text(spec.read_text().replace("def workload", "def work"))
    code, said = finish_sweep("plan", "demo", SPECSWEEP_STEPS=str(tmp_path / "steps"))
    assert code == 1 and "ToyStep has no workload" in said and said.count("\n") == 1
