"""The bar in Prefect's UI is told of cells that have ended, and whether it is there is no cell's matter."""

from __future__ import annotations

import logging
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from flows.cell import CellOutcome
from flows.sweep import measure_all
from tests.fake_run import FakeRun


def test_a_bar_that_prefect_does_not_take_stops_no_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(**_: object) -> None:
        raise httpx.ConnectError("All connection attempts failed")

    run = FakeRun(tmp_path, "ar ngram")
    monkeypatch.setattr("flows.sweep.create_progress_artifact", lambda **_: uuid4())
    monkeypatch.setattr("flows.sweep.update_progress_artifact", away)
    monkeypatch.setattr("flows.sweep.get_run_logger", lambda: logging.getLogger("flow"))
    monkeypatch.setattr(
        "flows.sweep._measured_or_failed",
        lambda ledger, planned, *_: CellOutcome(planned.cell.cell_key, planned.cell.label, "measured", "", 1),
    )
    with caplog.at_level(logging.INFO, "flow"):
        outcomes = measure_all(run.ledger, run.ledger.plan())
    assert [outcome.ended for outcome in outcomes] == ["measured", "measured"]
    assert "the progress bar is not told: ConnectError: All connection attempts failed" in caplog.text
