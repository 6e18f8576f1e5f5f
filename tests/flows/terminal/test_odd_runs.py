"""What lies in a store and is no run of this version is named, and everything else works as without it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from flows.terminal.cli import app
from tests.graded_run import write_graded_run
from warehouse.dataset.snapshot import publish, read_current
from warehouse.ledger.commits import Ledger
from warehouse.ledger.runs import OddRun
from warehouse.ledger.store import StoreAway, open_store


def changed(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    said = json.loads(file.read_text())
    change(said)
    file.write_text(json.dumps(said))


def a_file(runs: Path) -> str:
    (runs / "notes" / "deep").mkdir(parents=True)
    (runs / "notes" / "deep" / "todo.txt").write_text("buy milk")
    return "notes"


def a_plan(text: str) -> Callable[[Path], str]:
    def plant(runs: Path) -> str:
        (runs / "made-by-hand").mkdir()
        (runs / "made-by-hand" / "plan.json").write_text(text)
        return "made-by-hand"

    return plant


def a_copy(name: str) -> Callable[[Path], str]:
    def plant(runs: Path) -> str:
        shutil.copytree(runs / "old", runs / name)
        return name

    return plant


def of_tomorrow(file: str) -> Callable[[Path], str]:
    """A run whose first record of a kind has a field that only a newer version knows."""

    def plant(runs: Path) -> str:
        write_graded_run(Ledger(open_store(str(runs.parent)), "tomorrow"))
        found = min((runs / "tomorrow").rglob(file))
        changed(found, lambda said: said.update(of_tomorrow=1))
        return "tomorrow"

    return plant


def rows_of_tomorrow(runs: Path) -> str:
    """A run whose rows have a column that only a newer version knows."""
    write_graded_run(Ledger(open_store(str(runs.parent)), "tomorrow"))
    commit = min((runs / "tomorrow").rglob("eval-gpqa/commit.json"))
    part = next(path for path in (runs / "tomorrow").rglob("eval-gpqa/parts/*") if "scores" in path.name)
    pl.read_parquet(part).with_columns(of_tomorrow=pl.lit(1)).write_parquet(part)
    digest = hashlib.sha256(part.read_bytes()).hexdigest()
    changed(commit, lambda said: [each.update(sha256=digest) for each in said["parts"] if part.name in each["key"]])
    return "tomorrow"


ODD: dict[str, Callable[[Path], str]] = {
    "somebody's notes": a_file,
    "an empty plan": a_plan("{}"),
    "a plan of another program": a_plan('["terraform"]'),
    "a copy": a_copy("a-copy"),
    "a copy under no name of a run": a_copy("old (copy)"),
    "a newer version's plan": of_tomorrow("plan.json"),
    "a newer version's commit": of_tomorrow("commit.json"),
    "a newer version's rows": rows_of_tomorrow,
}


def said_and_skipped(*arguments: str) -> tuple[str, list[str]]:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout, done.stderr.splitlines()


@pytest.mark.slow(1)
@pytest.mark.parametrize("kind", ODD)
def test_an_odd_run_is_named_and_the_rest_is_reported_as_without_it(tmp_path: Path, kind: str) -> None:
    store = str(tmp_path)
    write_graded_run(Ledger(open_store(store), "old"))
    commands = [("report", "--store", store), ("status", "--store", store)][: 1 if "rows" in kind else 2]
    before = [said_and_skipped(*command) for command in commands]
    rows = read_current(open_store(store))
    odd = ODD[kind](tmp_path / "runs")

    for command, (said, nothing) in zip(commands, before, strict=True):
        now, skipped = said_and_skipped(*command)
        assert (now, nothing) == (said, [])
        [line] = skipped
        assert repr(odd) in line and "move its folder out of runs/" in line
    assert read_current(open_store(store)).equals(rows)


def test_a_run_that_is_asked_for_by_name_is_not_skipped(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    write_graded_run(Ledger(store, "old"))
    odd = ODD["a copy"](tmp_path / "runs")
    for call in (
        lambda: CliRunner().invoke(app, ["status", "--store", store.url, "--run-id", odd], catch_exceptions=False),
        lambda: publish(store, [odd]),
    ):
        with pytest.raises(OddRun, match=r"'a-copy' is a copy of run 'old'.*give it its name again"):
            call()


def test_a_dataset_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    write_graded_run(Ledger(store, "old"))
    before = publish(store)
    changed(tmp_path / "runs" / "old" / "plan.json", lambda said: said.update(of_tomorrow=1))
    with pytest.raises(OddRun, match="'old' was written by another version"):
        publish(store)
    assert read_current(store).height == before.files[0].rows


def test_a_store_that_is_away_makes_no_run_odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    for name in ("one", "two"):
        write_graded_run(Ledger(store, name))
    before = publish(store)
    real = store.get

    def away(key: str) -> bytes | None:
        if key == "runs/two/plan.json":
            raise StoreAway("it does not answer")
        return real(key)

    monkeypatch.setattr(store, "get", away)
    with pytest.raises(StoreAway):
        publish(store)
    assert read_current(store)["run_id"].n_unique() == len(before.run_ids) == 2


@pytest.mark.parametrize("command", ["plan", "run", "status"])
def test_a_run_id_that_is_empty_is_none(tmp_path: Path, command: str) -> None:
    """As `--run-id "$UNSET"` in a script."""
    arguments = [command, *(["demo"] if command != "status" else []), "--run-id", "", "--store", str(tmp_path / "none")]
    with pytest.raises(OddRun, match="run id '': use up to 80 letters"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert not (tmp_path / "none" / "runs").exists()
