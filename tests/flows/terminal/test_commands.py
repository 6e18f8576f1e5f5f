"""`sweep --version`, `sweep report` and `sweep published`, and what `sweep run` makes on this machine first."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.expand import expand
from configs.load import load_sweep
from flows.plans import make_plan
from flows.terminal import run as preparing
from flows.terminal.cli import app
from flows.terminal.run import prepare
from tasks.host import environments
from tests.graded_run import write_graded_run
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import StoreError, open_store

PUBLISHED = ROOT / "bench" / "h200" / "snapshot"
"""A dataset and its page, without the runs that they are of."""


def invoked(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def report(store: Path) -> str:
    return invoked("report", "--store", str(store))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dataset_without_its_runs_is_left_alone(tmp_path: Path) -> None:
    store = tmp_path / "snapshot"
    shutil.copytree(PUBLISHED, store)
    before = contents(store)
    with pytest.raises(StoreError, match=r"no run in .*/snapshot yet: `sweep run demo`"):
        report(store)
    assert contents(store) == before


def test_a_mistyped_store_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no run in .*/resluts yet"):
        report(tmp_path / "resluts")
    assert not (tmp_path / "resluts").exists()


def test_a_run_is_published_with_its_page(tmp_path: Path) -> None:
    write_graded_run(Ledger(open_store(str(tmp_path)), "old"))
    assert "report.html" in report(tmp_path)
    assert pl.read_parquet(tmp_path / "results_consolidated.parquet").height


@pytest.mark.parametrize(
    "left", [".DS_Store", "000002 (copy).json", "000009.json~", "9.json", "notes.txt", "notes.json"]
)
def test_a_folder_that_people_looked_at_is_published_again(tmp_path: Path, left: str) -> None:
    write_graded_run(Ledger(open_store(str(tmp_path)), "old"))
    first = report(tmp_path)
    for folder in [path for path in tmp_path.rglob("*") if path.is_dir()]:
        (folder / left).write_bytes(b"Bud1")
    assert report(tmp_path) == first


def test_a_write_up_is_shown_with_its_source_its_figures_and_why_they_are_flagged() -> None:
    shown = " ".join(invoked("published", "mtp-transformers-h100").split())
    for word in ("2026-05-05", "tok_s 8.8", "suspect too_slow", "suspect no_baseline", "2 published rows, 2 of them"):
        assert word in shown
    assert "mtp-gb10" not in shown


def test_all_write_ups_make_one_document_with_units() -> None:
    document = json.loads(invoked("published", "--json"))
    assert len(document["sources"]) == 5 and len(document["rows"]) == 180
    [burst] = [row for row in document["rows"] if row["reasons"] == ["stream_mismatch"]]
    assert (burst["source"], burst["speedup"], burst["verdict"]) == ("mtp-diffusion-h100", 0.44, "rejected")
    assert {"tok_s", "speedup", "score"} <= document["units"].keys()


def test_an_unknown_write_up_is_named_with_those_that_there_are() -> None:
    with pytest.raises(SpecsweepError, match="did you mean 'mtp-spark'"):
        invoked("published", "mtp-spak")


def test_the_command_says_the_version_of_its_checkout() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] in invoked("--version")


@pytest.mark.parametrize(("rented", "frameworks"), [(False, ["hret", "inspect", "lm-eval"]), (True, [])])
def test_frameworks_are_made_where_the_evaluations_run(
    monkeypatch: pytest.MonkeyPatch, rented: bool, frameworks: list[str]
) -> None:
    made: list[str] = []

    def fake_ensure(name: environments.Name, tell: object = None) -> Path:
        made.append(name)
        return Path("python")

    monkeypatch.setattr(environments, "ensure", fake_ensure)
    full = expand(load_sweep("full"))
    prepare(full if rented else full.model_copy(update={"cloud": None}), Console(quiet=True))
    assert made == ["node", *frameworks]


@pytest.mark.parametrize(("sweep", "trained"), [("tiny-quick", []), ("demo-diffusion", ["diffusion"])])
def test_only_a_model_that_is_not_shipped_is_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sweep: str, trained: list[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environments, "ensure", lambda name, tell=None: Path("python"))
    monkeypatch.setattr(preparing, "train", lambda members, console: asked.extend(members))
    prepare(make_plan(sweep), Console(quiet=True))
    assert asked == trained
