"""When tokens arrive: of cells, and of the AR that each of them brought along, start by start."""

from __future__ import annotations

from tests.warehouse.report.rows import MTP, seen, visit
from tests.warehouse.synthetic import StepWriter, only, streamed, window
from tests.warehouse.visited import SHORT, VisitedRun
from warehouse.ledger.store import Store
from warehouse.ledger.timed_tables import REQUESTS, WINDOWS
from warehouse.report.steps.throughput import latency_section

STREAM = MTP | {"mode": "stream", "tok_s": None, "ttft_ms": 52.0, "tpot_ms": 5.0}


def streams(run: VisitedRun, visit: str, ttft_ms: float, tpot_ms: float) -> None:
    """A committed visit of mtp's: a window, and three streamed requests around these."""
    step = StepWriter(run.ledger, run.key("mtp", 4), f"throughput{visit}")
    step.provenance(machine="node-1 card-1")
    step.write(WINDOWS, [window(SHORT, 0, 80.0)])
    step.write(REQUESTS, [streamed(SHORT, at, ttft_ms + off, tpot_ms) for at, off in enumerate((0.0, 1.0, 90.0))])
    step.judge(*((SHORT.name, mode, "ok", [], []) for mode in ("fixed", "stream")))
    step.commit("ok", [])


def test_a_start_of_the_control_says_when_its_tokens_came(local: Store) -> None:
    run = VisitedRun(local, "bracketed")
    streams(run, "@control-1", 40.0, 12.0)
    streams(run, "", 51.0, 5.0)
    built = run.built()
    control, cell = (only(built.visits, role=role, mode="stream") for role in ("control", "cell"))
    assert (control["ttft_ms"], control["tpot_ms"], control["technique"]) == (41.0, 12.0, "ar"), "medians"
    assert (cell["ttft_ms"], cell["tok_s"]) == (52.0, None)
    assert only(built.results, technique="mtp", mode="stream")["ttft_ms"] == 52.0


def test_the_page_has_them_below_the_cells() -> None:
    named = {"role": "control", "cell_key": "mtp", "model": "m", "precision": "bf16", "mode": "stream"}
    starts = visit(1, ttft_ms=41.0, tpot_ms=12.0, **named), visit(2, ttft_ms=43.0, tpot_ms=12.5, **named)
    shown = latency_section(seen(STREAM, visits=starts)) or ""
    cells, _, controls = shown.partition("As the control of other cells")
    assert "52.0" in cells and "41.0" not in cells
    assert "41.0, 43.0" in controls and "12.00, 12.50" in controls and "mtp K=4" in controls
    assert "As the control" not in (latency_section(seen(STREAM)) or "")


def test_controls_of_several_cards_say_of_which_each_is() -> None:
    named = {"role": "control", "model": "m", "precision": "bf16", "mode": "stream"}
    here = visit(1, ttft_ms=41.0, gpu="h100", run_id="r1", cell_key="mtp", **named)
    there = visit(1, ttft_ms=30.0, gpu="h200", run_id="r2", cell_key="mtp", **named)
    shown = latency_section(seen(STREAM, visits=(here, there))) or ""
    assert "m bf16 on h100" in shown and "m bf16 on h200" in shown
    assert "m bf16 on" not in (latency_section(seen(STREAM, visits=(here,))) or ""), "the head says it"


def test_the_page_says_where_the_requests_of_ar_wait_for_one_another() -> None:
    assert "TTFT is the one to compare" in (latency_section(seen(STREAM | {"concurrency": 8})) or "")
    assert "to compare" not in (latency_section(seen(STREAM | {"concurrency": 1})) or "")
