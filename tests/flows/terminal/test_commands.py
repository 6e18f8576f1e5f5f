"""`sweep --version`, `report`, `published` and `regrade`, and what `sweep run` makes on this machine first."""

from __future__ import annotations

import io
import json
import shutil
import tomllib
from collections.abc import Callable
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
from flows.terminal.regrade import regrade
from flows.terminal.run import prepare
from tasks.evals.extractors import VERSION
from tasks.host import environments
from tests.flows.conftest import Finish
from tests.graded_run import write_graded_run
from warehouse.ledger.commits import Commit, Ledger, in_force, read_regrade, rows_in_force
from warehouse.ledger.steps import EVAL_SAMPLES, EVAL_SCORES, EXCHANGES
from warehouse.ledger.store import StoreError, open_store
from warehouse.ledger.tables import PROVENANCE, VERDICTS, Table

PUBLISHED = ROOT / "bench" / "h200" / "snapshot"  # a dataset and its page, without the runs that they are of


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


def test_what_is_made_first_is_told_in_a_log_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake_ensure(name: environments.Name, tell: Callable[[str], None]) -> Path:
        tell(f"{name}: Installing [all]")
        return Path("python")

    monkeypatch.setattr(environments, "ensure", fake_ensure)
    monkeypatch.setattr(preparing, "LINE_EVERY_S", 0.0)
    log = io.StringIO()
    prepare(make_plan("tiny-quick"), Console(file=log, force_terminal=False))
    assert "node: Installing [all]\n" in log.getvalue()


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


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(open_store(str(tmp_path / "store")), "old")


@pytest.mark.slow(6)
def test_the_command_shows_before_and_after_and_records_it_once(
    tmp_path: Path, ledger: Ledger, finish_sweep: Finish
) -> None:
    write_graded_run(ledger)
    said = finish_sweep("regrade", "old", "--dry-run")
    assert "last-in-body" in said and "0.250" in said and "0.750" in said
    assert "1 step changed, 1 read the same by another version, would be recorded (--dry-run), 0 unchanged" in said
    assert "eval-ifeval: what the framework's own checkers said when it was measured stands" in said
    assert "eval-tiny: has no response log, left as it is" in said
    assert not list(tmp_path.rglob("regrades"))

    gpqa, ifeval, tiny = json.loads(finish_sweep("regrade", "old", "--json"))["steps"]
    assert gpqa["readers"] == [{"reader": "last-in-body", "before": 0.25, "after": 0.75, "items": 6}]
    assert (gpqa["state"], gpqa["regrade"]) == ("changed", 1)
    assert gpqa["verdict"] == {"before": "rejected", "after": "suspect"}
    assert gpqa["reasons"] == {"before": ["at_chance", "engine_preemption"], "after": ["engine_preemption"]}
    assert (ifeval["state"], ifeval["framework_stands"], tiny["state"]) == ("confirmed", True, "no response log")
    assert ifeval["regrade"] == 1, "arms are only compared where readers of one version graded both"

    before = contents(Path(ledger.store.url) / "runs")
    assert "0 steps changed, 2 unchanged" in finish_sweep("regrade", "old")
    assert contents(Path(ledger.store.url) / "runs") == before, "nothing changed, so nothing is written"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("regrade", "none"), "no run 'none'"), (("regrade", "old", "--cell", "zz"), "no cell 'zz': use one of")],
)
def test_a_run_or_cell_that_is_not_there_is_one_line(
    ledger: Ledger, finish_sweep: Finish, arguments: tuple[str, ...], words: str
) -> None:
    write_graded_run(ledger)
    said = finish_sweep(*arguments, code=1)
    assert words in said and len(said.splitlines()) == 1


def test_what_was_measured_stays_byte_for_byte(ledger: Ledger) -> None:
    write_graded_run(ledger)
    before = contents(Path(ledger.store.url) / "runs")
    regrade(ledger, None, dry_run=False)
    after = contents(Path(ledger.store.url) / "runs")
    assert {key: after[key] for key in before} == before
    assert {key.split("/steps/")[1].split("/")[0] for key in set(after) - set(before)} == {"eval-gpqa", "eval-ifeval"}


def test_only_the_reading_and_what_follows_from_it_changes(ledger: Ledger) -> None:
    key = write_graded_run(ledger).cell.cell_key
    regrade(ledger, None, dry_run=False)
    measured = ledger.read_commit(key, "eval-gpqa")
    assert measured is not None
    now = in_force(measured, read_regrade(ledger, key, "eval-gpqa", 1))

    def rows(commit: Commit, table: Table) -> list[dict[str, object]]:
        return list(rows_in_force(ledger, commit, table))

    for table in (EXCHANGES, PROVENANCE):
        assert rows(now, table) == rows(measured, table)
    differing = set()
    for old, new in zip(rows(measured, EVAL_SAMPLES), rows(now, EVAL_SAMPLES), strict=True):
        differing |= {name for name in new if new[name] != old[name]}
    assert differing == {"last_in_body", "correct", "extractor_version"}
    old_scores, new_scores = (
        {(row["source"], row["extractor"]): row["value"] for row in rows(commit, EVAL_SCORES)}
        for commit in (measured, now)
    )
    assert old_scores[("ours", "last-in-body")] == 0.25 and new_scores[("ours", "last-in-body")] == 0.75
    del old_scores[("ours", "last-in-body")], new_scores[("ours", "last-in-body")]
    assert new_scores == old_scores, "the framework's scores and the other readers'"
    (verdict,) = rows(now, VERDICTS)
    assert (verdict["verdict"], verdict["details"]) == ("suspect", ["the engine preempted 3 requests"])
    assert (now.verdict, now.reasons, now.wall_s) == ("suspect", ("engine_preemption",), measured.wall_s)


def test_answers_that_todays_readers_graded_are_left_alone(ledger: Ledger) -> None:
    write_graded_run(ledger, version=VERSION)
    before = contents(Path(ledger.store.url) / "runs")
    states = [graded.state for graded in regrade(ledger, None, dry_run=False)]
    assert states == ["unchanged", "unchanged", "no response log"]
    assert contents(Path(ledger.store.url) / "runs") == before


def test_a_step_that_is_not_committed_is_not_graded(ledger: Ledger) -> None:
    key = write_graded_run(ledger).cell.cell_key
    (Path(ledger.store.url) / f"runs/old/cells/{key}/steps/eval-gpqa/commit.json").unlink()
    assert [graded.step for graded in regrade(ledger, None, dry_run=False)] == ["eval-ifeval", "eval-tiny"]


def test_a_response_log_that_was_tampered_with_is_refused(ledger: Ledger) -> None:
    key = write_graded_run(ledger).cell.cell_key
    (part, *_) = (Path(ledger.store.url) / f"runs/old/cells/{key}/steps/eval-gpqa/parts").glob("exchanges-*")
    part.write_bytes(b"other")
    with pytest.raises(StoreError, match="not the file its commit names"):
        regrade(ledger, key[:4], dry_run=False)
