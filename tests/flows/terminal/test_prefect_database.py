"""A new home of Prefect's has a database before a server starts; one that has its own keeps it."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from flows.terminal.prefect_session import DATABASE, CommandFailed, lay_database, our_environment


def laid(home: Path) -> Path:
    home.mkdir()
    lay_database(home, our_environment(home, None))
    return home / DATABASE


def test_each_new_home_has_an_empty_database_of_its_own(tmp_path: Path) -> None:
    with closing(sqlite3.connect(laid(tmp_path / "first"))) as first:
        assert first.execute("select count(*) from flow_run").fetchone() == (0,)
        first.execute("drop table flow_run")
    assert [each.name for each in (tmp_path / "first").iterdir()] == [DATABASE], "nothing half is left"
    with closing(sqlite3.connect(laid(tmp_path / "second"))) as second:
        assert second.execute("select count(*) from flow_run").fetchone() == (0,)


def test_a_home_that_has_a_database_keeps_it(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_text("a run's history")
    lay_database(tmp_path, {})
    assert (tmp_path / DATABASE).read_text() == "a run's history"


def test_a_prefect_that_makes_none_is_an_error_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no such revision' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(CommandFailed, match="no such revision"):
        laid(tmp_path / "home")
    assert not list((tmp_path / "cache").rglob("*.db"))
