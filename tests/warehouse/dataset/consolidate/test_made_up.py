"""Rows of what was not really run say so in every product table, and only stand beside their like."""

from __future__ import annotations

from configs.expand import expand
from configs.load import load_sweep
from configs.schema import PlannedCell
from flows.results import result_rows
from tests.warehouse.synthetic import only
from tests.warehouse.visited import VisitedRun
from warehouse.dataset.consolidate.inputs import baseline_among
from warehouse.dataset.snapshot import publish
from warehouse.ledger.store import Store
from warehouse.report.display.figures import marks, technique_name


def shipped(label: str) -> PlannedCell:
    return next(each for each in expand(load_sweep("shapes")).cells if label in each.cell.label)


def test_rows_visits_and_pairs_of_a_replay_say_what_was_made_up(local: Store) -> None:
    labels = ("31b-shape fp8 ar", "31b-shape fp8 mtp K=4", "31b-shape fp8 mtp K=2")
    run = VisitedRun(local, cells=[shipped(label) for label in labels])
    run.bracket("mtp", 4, 100.0, 240.0, 101.0)
    run.bracket("mtp", 2, 100.5, 200.0, 100.0)
    built = run.built()
    row, pair = only(built.results, k=4), only(built.pairs, kind="speed", k=4)
    said = "weights=dummy, acceptance=replayed:mtp-gb10-31b"
    assert (row["made_up"], row["acceptance_source"]) == (said, "replayed:mtp-gb10-31b")
    assert pair["made_up"] == said
    placebos = [each["made_up"] for each in built.pairs if each["kind"] == "placebo"]
    assert placebos == ["weights=dummy"] * 2, "AR drafts nothing"
    assert {(each["role"], each["made_up"]) for each in built.visits} == {("cell", said), ("control", "weights=dummy")}


def test_cells_of_one_technique_are_told_apart_by_their_denoising_steps(local: Store) -> None:
    found = [shipped(f"denoising_steps={steps} ") for steps in (8, 16)]
    names = []
    for number, planned in enumerate(found):
        run = VisitedRun(local, "single", f"run-{number}", cells=[planned])
        run.visit("diffusion", None, 800.0, provenance={"weights": "dummy"})
        row = only(run.built().results, run_id=f"run-{number}")
        assert row["made_up"] == f"weights=dummy, routing=random, denoising_steps={row['denoising_steps']} (replayed)"
        assert [mark.words for mark in marks(row)] == ["dummy weights", "denoising steps replayed", "experts drawn"]
        names.append(technique_name(row))
    assert names == ["diffusion 8 steps", "diffusion 16 steps"]


def test_steps_and_canvas_of_real_weights_are_a_name_and_nothing_made_up(local: Store) -> None:
    asked = {"denoising_steps": 8, "canvas_length": 256}
    diffusion = next(each for each in expand(load_sweep("full")).cells if each.cell.technique.denoises)
    planned = diffusion.model_copy(update={"cell": diffusion.cell.model_copy(update=asked)})
    run = VisitedRun(local, "single", cells=[planned])
    run.visit("diffusion", None, 800.0)
    row = only(run.built().results)
    assert (row["made_up"], marks(row)) == (None, [])
    assert {name: row[name] for name in asked} == asked
    assert technique_name(row) == "diffusion 8 steps canvas 256"
    publish(local)
    said = [each["cell"] for each in result_rows(local, "run")]
    assert said == ["fp8 diffusion denoising_steps=8 canvas_length=256"]


def test_what_was_really_run_has_nothing_made_up(local: Store) -> None:
    run = VisitedRun(local, "single")
    run.visit("ar", None, 100.0)
    row = only(run.built().results)
    assert (row["made_up"], row["denoising_steps"], marks(row)) == (None, None, [])


def test_a_replay_is_never_held_against_a_real_ar() -> None:
    mtp, ar = shipped("31b-shape fp8 mtp K=4"), shipped("31b-shape fp8 ar")
    real = ar.model_copy(
        update={"cell": ar.cell.model_copy(update={"model": ar.cell.model.model_copy(update={"weights": "real"})})}
    )
    assert baseline_among(mtp, [mtp, real]) is None
    assert baseline_among(mtp, [mtp, real, ar]) == ar
