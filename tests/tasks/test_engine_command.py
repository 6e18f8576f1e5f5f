"""What an engine is told beyond its own arguments: only of cells that draft, that it shall account for each draft."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.engine.command import engine_command
from tests.fake_run import FakeRun

FLAG = "--per-request-spec-decode-metrics"


@pytest.mark.parametrize(("technique", "asked"), [("mtp", True), ("ngram", True), ("ar", False)])
def test_drafts_by_request_are_asked_for_where_something_drafts(tmp_path: Path, technique: str, asked: bool) -> None:
    """vLLM refuses the argument without a speculative config, so it can't be one of the engine's own."""
    argv = engine_command(FakeRun(tmp_path, technique).planned.cell, 1, tmp_path).argv
    assert (FLAG in argv) is asked
