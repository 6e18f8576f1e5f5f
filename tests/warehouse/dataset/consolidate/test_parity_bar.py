"""Outputs that part from AR's: ties, cells that leave AR's though they promise it, and what that takes away."""

from __future__ import annotations

from typing import Any

import pytest

from tests.warehouse.synthetic import DEMO, write_demo_run
from warehouse.dataset.build import consolidate
from warehouse.dataset.consolidate.comparable import Output, agreement, barred, cells_that_fail_parity, lossless_cells
from warehouse.dataset.consolidate.inputs import take_inventory
from warehouse.dataset.consolidate.rows import Judged, Result
from warehouse.ledger.store import Store

AR = {"p": Output([1, 2, 3], [9.0, 0.125, 9.0]), "q": Output([1, 2], [9.0, 9.0]), "r": Output([7, 8], [0.25, 3.5])}


def test_outputs_that_part_at_a_near_tie_are_told_from_those_that_part_where_the_model_was_sure() -> None:
    others = {"p": Output([1, 5, 5], [9.0, 0.0, 1.0]), "q": Output([1, 2], [9.0, 9.0]), "r": Output([7, 9], [0.3, 3.1])}
    found = agreement(AR, others)
    assert (found.equal, found.compared, found.first_divergence) == (1, 3, 1)
    assert (found.near_ties, found.margin) == (1, 3.5)


def test_one_witness_that_was_sure_is_enough() -> None:
    found = agreement(AR, {"p": Output([1, 5], [9.0, 2.0])})
    assert (found.near_ties, found.margin) == (0, 2.0)


def test_two_steps_of_bf16_are_still_a_tie() -> None:
    assert agreement({"p": Output([1], [0.2500009])}, {"p": Output([2], [0.125])}).near_ties == 1
    assert agreement({"p": Output([1], [0.375])}, {"p": Output([2], [0.125])}).near_ties == 0


def test_an_output_that_ended_first_is_no_witness() -> None:
    found = agreement({"p": Output([1, 2, 3], [1.0, 1.0, 0.1])}, {"p": Output([1, 2], [1.0, 1.0])})
    assert (found.first_divergence, found.near_ties, found.margin) == (2, 1, 0.1)


def test_without_gaps_nothing_is_said_about_ties() -> None:
    for others in ({"p": Output([1, 5, 5])}, {"p": Output([1, 2, 3])}):
        found = agreement(AR, others)
        assert (found.near_ties, found.margin) == (None, None)


LOSSLESS = frozenset({("r", "mtp"), ("r", "draft_model")})


def row(technique: str, step: str = "parity", **columns: Any) -> Result:
    identity = {
        "run_id": "r", "cell_key": technique, "model": "m", "precision": "bf16", "engine": "e", "gpu": "h100",
        "technique": technique, "step": step,
    }  # fmt: skip
    return Result(identity | columns, Judged("ok"))


def parity(
    technique: str, equal: int, *, near: int | None = None, margin: float | None = None, first: int | None = 0
) -> Result:
    figures = {"parity_near_ties": near, "divergence_margin": margin}
    return row(technique, parity_equal=equal, parity_n=12, first_divergence=first, **figures)


def test_a_lossless_cell_whose_outputs_leave_ars_is_suspect_in_every_row() -> None:
    fast = row("mtp", "throughput", tok_s=360.0)
    others = [row("ar", "throughput", tok_s=80.0), row("mtp", "eval-gpqa", score=0.7)]
    rows = [parity("ar", 12), parity("mtp", 0, near=1, margin=7.5), fast, *others]
    found = [each.row for each in barred(rows, cells_that_fail_parity(rows, LOSSLESS))]
    assert [each["verdict"] for each in found] == ["ok", "suspect", "suspect", "ok", "suspect"]
    for each in found:
        assert each["reasons"] == (["parity_failed"] if each["technique"] == "mtp" else [])
    assert found[2]["tok_s"] == 360.0, "what was measured stays readable"
    assert found[2]["details"] == [
        "11 of 12 greedy outputs leave AR's where it was sure (by up to 7.5 nats); AR repeats itself in 12 of 12"
    ]
    assert fast.is_ok, "rows are not changed in place"


def test_a_finding_of_the_parity_step_itself_is_kept_beside_it() -> None:
    odd = parity("mtp", 0, near=1, margin=7.5)._replace(judged=Judged("suspect", ("parity_not_a_tie",)))
    rows = [parity("ar", 12), odd]
    [_, found] = barred(rows, cells_that_fail_parity(rows, LOSSLESS))
    assert found.row["reasons"] == ["parity_not_a_tie", "parity_failed"]


@pytest.mark.parametrize(
    ("control", "technique"),
    [
        (parity("ar", 12), parity("draft_model", 1, near=11, margin=0.24)),
        (parity("ar", 12), parity("mtp", 12, first=None)),
        (parity("ar", 9), parity("mtp", 0)),
        (parity("ar", 9, near=0, margin=4.0), parity("mtp", 0, near=0, margin=7.0)),
        (parity("ar", 12)._replace(judged=Judged("rejected")), parity("mtp", 0, near=0, margin=7.0)),
        (parity("ar", 12), parity("mtp", 1)),
        (parity("ar", 12), parity("mtp", 0, first=212)),
        (parity("ar", 12), parity("diffusion", 0, near=0, margin=7.0)),
        (parity("ar", 12).plus({"gpu": "h200"}), parity("mtp", 0, near=0, margin=7.0)),
    ],
    ids=[
        "near ties only, as the demo's draft model on one machine", "all equal", "AR doesn't repeat itself",
        "AR itself leaves where it was sure", "no control that counts", "unknown margin, one is equal",
        "unknown margin, but late", "promises nothing", "the control is of another machine",
    ],
)  # fmt: skip
def test_what_rounding_or_nobody_can_explain_stays_ok(control: Result, technique: Result) -> None:
    assert cells_that_fail_parity([control, technique], LOSSLESS) == {}


@pytest.mark.parametrize("control", [parity("ar", 12), parity("ar", 10, near=2, margin=0.1)])
def test_a_control_that_parts_at_near_ties_only_still_holds(control: Result) -> None:
    assert list(cells_that_fail_parity([control, parity("mtp", 9, near=0, margin=3.0)], LOSSLESS)) == [("r", "mtp")]


def test_without_margins_no_equal_output_and_an_early_parting_is_a_failure() -> None:
    found = cells_that_fail_parity([parity("ar", 12), parity("mtp", 0, first=3)], LOSSLESS)
    assert found == {
        ("r", "mtp"): "none of 12 greedy outputs is AR's, the first one parts at token 3; AR repeats itself in 12 of 12"
    }


@pytest.mark.slow(14)
def test_of_a_run_only_the_broken_cell_fails_and_ar_promises_nothing(
    local: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = DEMO["bf16", "mtp", 4]._replace(parity_breaks=tuple(range(12)))
    monkeypatch.setitem(DEMO, ("bf16", "mtp", 4), broken)
    write_demo_run(local)
    steps = take_inventory(local, ["demo-1"]).steps
    promised = lossless_cells(steps)
    assert {each.is_baseline for each in steps if (each.run_id, each.cell_key) in promised} == {False}
    failed = [row for row in consolidate(local, ["demo-1"]).results if "parity_failed" in row["reasons"]]
    assert {(row["precision"], row["technique"], row["k"]) for row in failed} == {("bf16", "mtp", 4)}
    assert {row.get("speedup") for row in failed} == {None}
