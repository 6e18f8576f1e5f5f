"""A step is a few small files: one that lies outside the checkout goes all the way, and nothing else knows of it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import polars as pl
import pytest

from configs.checkout import ROOT
from flows.forecast.estimates import CPU_TOK_S, STEP_SETUP_S
from tests.command_lines import run_python
from tests.fake_run import write_user_configs
from tests.flows.conftest import Finish

TOY = ROOT / "tests" / "toy_step"

SUITE = """
name: fake-suite
steps:
  - {step: smoke}
  - {step: toy, greetings: 4}
"""


@pytest.mark.slow(14)
def test_a_toy_step_is_planned_forecast_measured_consolidated_and_shown(tmp_path: Path, finish_sweep: Finish) -> None:
    sweep, more = write_user_configs(tmp_path, "ar", SUITE), {"SPECSWEEP_STEPS": str(TOY)}
    said = finish_sweep("plan", sweep, "--json", **more)
    planned = json.loads(said.splitlines()[-1])["cells"][0]["steps"][1]
    assert (planned["step"], planned["state"]) == ("toy", "to measure")
    assert planned["seconds"] == pytest.approx(STEP_SETUP_S + 4 * 32 / CPU_TOK_S), "by its own workload"

    assert "toy" in finish_sweep("run", sweep, **more)
    rows = pl.read_parquet(tmp_path / "store" / "results_consolidated.parquet").filter(pl.col("step") == "toy")
    assert rows.select("metric", "score", "n", "verdict").rows() == [("greeted", 1.0, 4, "ok")]
    assert rows["argv"][0] and rows["measured_at"][0], "it carries what every row carries"
    page = (tmp_path / "store" / "report.html").read_text()
    assert 'id="toy"' in page and 'href="#toy"' in page and "Who answers a greeting." in page
    assert "## greetings" in (tmp_path / "store" / "DATA_DICTIONARY.md").read_text()

    assert "'toy' isn't known" in finish_sweep("plan", sweep, code=1), "without the folder nobody has heard of it"
    said = finish_sweep("status").splitlines()
    assert len(said) == 1 and "other steps in SPECSWEEP_STEPS" in said[0], "named, and skipped"


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
    file.write_text(file.read_text().replace(*change)) if change else file.unlink()
    program = f"import configs.schema; from configs.step import step_module; step_module({broken!r}, 'toy')"
    env = os.environ | {"SPECSWEEP_STEPS": str(tmp_path / "steps"), "PYTHONPATH": str(ROOT)}
    done = run_python("-c", program, env=env)
    assert done.returncode != 0 and said in done.stderr


def test_what_is_wrong_with_own_steps_is_one_line(tmp_path: Path, finish_sweep: Finish) -> None:
    said = finish_sweep("plan", "demo", SPECSWEEP_STEPS=str(tmp_path / "nowhere"), code=1)
    assert said.startswith("sweep: SPECSWEEP_STEPS is ") and said.count("\n") == 1
    shutil.copytree(TOY, tmp_path / "steps")
    spec = tmp_path / "steps" / "configs" / "steps" / "toy.py"
    spec.write_text(spec.read_text().replace("def workload", "def work"))
    said = finish_sweep("plan", "demo", SPECSWEEP_STEPS=str(tmp_path / "steps"), code=1)
    assert "ToyStep has no workload" in said and said.count("\n") == 1
