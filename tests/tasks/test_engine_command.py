"""What an engine is told beyond its file: that it shall say what it knows of each request's drafts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.engine.command import engine_command
from tests.fake_run import FakeRun

FLAG = "--per-request-spec-decode-metrics"


def argv(folder: Path, technique: str, args: tuple[str, ...] | None = None) -> tuple[str, ...]:
    cell = FakeRun(folder, technique).planned.cell
    if args is not None:
        cell = cell.model_copy(update={"engine": cell.engine.model_copy(update={"args": args})})
    return engine_command(cell, 1, folder).argv


@pytest.mark.parametrize(("technique", "asked"), [("mtp", True), ("ngram", True), ("ar", False)])
def test_drafts_by_request_are_asked_for_where_something_drafts(tmp_path: Path, technique: str, asked: bool) -> None:
    """vLLM refuses the argument without a speculative config, so an engine's file can't have it."""
    assert (FLAG in argv(tmp_path, technique)) is asked


def test_an_engine_whose_file_says_nothing_of_single_requests_is_not_asked(tmp_path: Path) -> None:
    assert FLAG not in argv(tmp_path, "mtp", ())


def test_what_an_engine_s_file_decides_stands(tmp_path: Path) -> None:
    told = argv(tmp_path, "mtp", ("--enable-per-request-metrics", f"{FLAG}=detailed"))
    assert [word for word in told if word.startswith(FLAG)] == [f"{FLAG}=detailed"]
