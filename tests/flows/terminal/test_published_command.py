"""`sweep published`: others' figures with our verdicts, without a store."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from configs.errors import SpecsweepError
from flows.terminal.cli import app


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["published", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return " ".join(done.stdout.split())


def test_a_write_up_is_shown_with_its_source_its_figures_and_why_they_are_flagged() -> None:
    shown = said("mtp-transformers-h100")
    for word in ("2026-05-05", "tok_s 8.8", "suspect too_slow", "suspect no_baseline", "2 published rows, 2 of them"):
        assert word in shown
    assert "mtp-gb10" not in shown


def test_all_write_ups_make_one_document_with_units() -> None:
    document = json.loads(said("--json"))
    assert len(document["sources"]) == 5 and len(document["rows"]) == 180
    [burst] = [row for row in document["rows"] if row["reasons"] == ["stream_mismatch"]]
    assert (burst["source"], burst["speedup"], burst["verdict"]) == ("mtp-diffusion-h100", 0.44, "rejected")
    assert {"tok_s", "speedup", "score"} <= document["units"].keys()


def test_an_unknown_write_up_is_named_with_those_that_there_are() -> None:
    with pytest.raises(SpecsweepError, match="did you mean 'mtp-spark'"):
        said("mtp-spak")
