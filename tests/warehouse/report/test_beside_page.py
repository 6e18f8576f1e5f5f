"""The page of a store whose cells others published, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_sweep
from tests.warehouse.read_page import Page
from tests.warehouse.synthetic import DEMO, Behaviour, write_demo_run
from warehouse.dataset.snapshot import publish
from warehouse.ledger.store import Store
from warehouse.report.page import write_report

MEASURED = {
    ("bf16", "ar", None): Behaviour(41.5, noise=0.002),
    ("bf16", "mtp", 8): Behaviour(127, (0.84, 0.7, 0.57, 0.46, 0.36, 0.28, 0.2, 0.14), noise=0.01),
    ("fp8", "ar", None): Behaviour(66, noise=0.002),
    ("fp8", "mtp", 4): Behaviour(172, (0.8, 0.6, 0.46, 0.35), noise=0.01),
}
"""About what the published cells do."""


def test_published_twins_are_on_the_page_with_source_and_verdict(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for cell, behaviour in MEASURED.items():
        monkeypatch.setitem(DEMO, cell, behaviour)
    plan = expand(load_sweep(str(ROOT / "tests/warehouse/demo_like/published.yaml")))
    mirrored = tuple(each.model_copy(update={"visits": "mirrored"}) for each in plan.cells)
    write_demo_run(local, plan=plan.model_copy(update={"cells": mirrored}))
    publish(local)
    page = Page(Path(write_report(local)).read_text(encoding="utf-8"))
    assert ("a", {"href": "#beside"}) in page.elements
    for said in (
        "mtp-dflash-h100, h100, 2026-05-12",
        "one JarvisLabs H100 80GB",
        "40.3",
        "125.3",
        "178",
        "2.62",
        "3.11",
    ):
        assert said in page.text
    assert "2 published rows that our guards flag" in page.text
    assert "8.8 tok/s without prefill; this machine's memory gives 21 or more" in page.text
    assert "4.4 x AR with 3.18 tokens per decoding step: these two can't go together" in page.text
    assert "ours has K=4, theirs isn't published" in page.text


@pytest.mark.slow(5)
def test_a_page_of_cells_that_nobody_published_has_no_such_section(local: Store) -> None:
    write_demo_run(local)
    publish(local)
    page = Page(Path(write_report(local)).read_text(encoding="utf-8"))
    assert "Published beside measured" not in page.text
