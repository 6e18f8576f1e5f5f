"""A speed rests on engine starts of one machine: planted drifts, mixed machines and placebos make no claim."""

import pytest

from configs.cell import Model
from tests.warehouse.synthetic import StepWriter, celled, demo_plan, only, window
from tests.warehouse.visited import SHORT, VisitedRun, served
from warehouse.dataset import build
from warehouse.dataset.consolidate.inputs import baseline_among
from warehouse.ledger.commits import Part
from warehouse.ledger.steps.parity import PARITY_OUTPUTS
from warehouse.ledger.store import Store
from warehouse.ledger.tables import Row
from warehouse.ledger.timed_tables import WINDOWS

QUIET = (("mtp", 1), ("mtp", 2), ("mtp", 4), ("ngram", 4), ("draft_model", 4), ("dflash", 7), ("suffix", 8))


def test_an_ar_that_was_slow_at_first_makes_nothing_faster(local: Store) -> None:
    run = VisitedRun(local)
    run.bracket("mtp", 2, 90.0, 100.0, 100.0)
    run.bracket("ngram", 4, 100.0, 100.0, 103.0)
    pair = only(run.built().pairs, kind="speed", technique="mtp")
    assert pair["conclusion"] == "inconclusive" and pair["ratio_lo"] < 1 < pair["ratio_hi"]
    assert (pair["visits"], pair["baseline_visits"], pair["baseline_cell_key"]) == (1, 2, run.key("ar"))
    single = VisitedRun(local, "single", "quick")
    single.visit("ar", None, 90.0)
    single.visit("mtp", 2, 100.0)
    quick = single.built()
    assert only(quick.pairs)["conclusion"] == "inconclusive", "one start of each says nothing about another one"
    assert {row["interval_scope"] for row in quick.results} == {"within one start"}


def test_what_is_faster_in_every_bracket_is_faster(local: Store) -> None:
    run = VisitedRun(local)
    for at, (technique, k) in enumerate(QUIET):
        run.bracket(technique, k, 100.0 + 3 * at % 7 / 4, 150.0, 100.0 + 5 * at % 7 / 4)
    built = run.built()
    pair = only(built.pairs, kind="speed", technique="mtp", k=2)
    assert pair["conclusion"] == "faster" and 1.4 < pair["ratio_lo"] < 1.5 < pair["ratio_hi"] < 1.6
    assert pair["wording"].startswith("1.49 x [1.4") and pair["wording"].endswith("], 1 start against 2 on one machine")
    assert (pair["machine"], pair["verdict"], pair["reasons"]) == ("node-1 card-1", "ok", [])
    row = only(built.results, technique="mtp", k=2)
    assert (row["visits"], row["repeats"], row["interval_scope"]) == (1, 3, "between starts")
    assert row["start_sd"] is not None and row["step"] == "throughput"
    assert row["conclusion"] == "faster"
    placebos = [pair for pair in built.pairs if pair["kind"] == "placebo"]
    assert len(placebos) == len(QUIET) and {pair["conclusion"] for pair in placebos} == {"inconclusive"}
    assert {pair["technique"] for pair in placebos} == {"ar"}
    assert len(built.results) == len(QUIET), "controls make no rows of their own"
    places = [row["position"] for row in sorted(built.visits, key=lambda row: row["measured_at"])]
    assert places == [*range(1, 3 * len(QUIET) + 1)]
    control = only(built.visits, cell_key=run.key("mtp", 2), role="control", visit=2)
    assert (control["served_cell_key"], control["technique"]) == (run.key("ar"), "ar")
    assert control["tok_s"] == pytest.approx(101.25, rel=1e-3)


def test_two_starts_are_one_figure_and_two_visits(local: Store) -> None:
    run = VisitedRun(local, "mirrored")
    for visit, (ar, mtp) in (("", (100.0, 140.0)), ("@2", (102.0, 150.0))):
        run.visit("ar", None, ar, visit)
        run.visit("mtp", 2, mtp, visit)
    built = run.built()
    row = only(built.results, technique="mtp")
    assert row["tok_s"] == pytest.approx((140.0 * 150.0) ** 0.5, rel=1e-3), "geometric mean of two starts"
    assert (row["visits"], row["repeats"]) == (2, 6)
    assert row["cv"] == pytest.approx(0.01, rel=1e-3), "within a start, not across"
    starts = sorted(each["tok_s"] for each in built.visits if each["technique"] == "mtp")
    assert starts == pytest.approx([140.0, 150.0], rel=1e-3)
    assert only(built.pairs, kind="speed")["baseline_visits"] == 2


def continued(run: VisitedRun, *attempts: tuple[Row | None, float, range]) -> None:
    """A start of AR in several attempts, by their provenance, rate and repeats; the last one commits all."""
    parts: list[Part] = []
    for number, (place, tok_s, repeats) in enumerate(attempts, 1):
        step = StepWriter(run.ledger, run.key("ar"), "throughput", attempt=number)
        step.parts = parts
        if place is not None:
            step.provenance(**place)
        step.write(WINDOWS, [window(SHORT, repeat, tok_s) for repeat in repeats])
    step.commit()


def test_windows_of_two_machines_are_never_one_figure(local: Store) -> None:
    run = VisitedRun(local, "single")
    continued(run, ({"machine": "h100-a"}, 70.0, range(5)), ({"machine": "h100-b"}, 48.0, range(4)))
    run.visit("mtp", 2, 70.0, machine="h100-a")
    built = run.built()
    ar = only(built.results, technique="ar")
    assert (ar["tok_s"], ar["repeats"], ar["machine"], ar["verdict"]) == (pytest.approx(48.0), 4, "h100-b", "ok")
    assert built.pairs == [], "70 on one machine over 48 on another is no speedup"
    assert "no_control: AR was measured on another machine" in only(built.results, technique="mtp")["details"][0]
    lost_row = only(built.visits, technique="ar", complete=False)
    assert (lost_row["machine"], lost_row["tok_s"], lost_row["attempt"]) == ("h100-a", pytest.approx(70.0), 1)
    assert (lost_row["verdict"], lost_row["reasons"]) == ("suspect", ["cut_short"]), "the node judged the other's"


def test_what_a_killed_start_left_of_a_condition_is_in_no_figure(local: Store) -> None:
    run = VisitedRun(local, "single")
    continued(run, ({"machine": "h100-a"}, 70.0, range(2)), ({"machine": "h100-a"}, 60.0, range(3)))
    ar = only(run.built().results, technique="ar")
    assert (ar["tok_s"], ar["repeats"], ar["verdict"]) == (pytest.approx(60.0), 3, "ok")


def test_windows_of_a_machine_that_nobody_recorded_are_suspect_beside_others(local: Store) -> None:
    run = VisitedRun(local, "single")
    continued(run, (None, 70.0, range(5)), ({}, 48.0, range(5, 9)))
    run.visit("mtp", 2, 70.0, machine=None)
    built = run.built()
    ar = only(built.results, technique="ar")
    assert (ar["verdict"], ar["reasons"], ar["machine"]) == ("suspect", ["mixed_machines"], "testhost Test CPU")
    assert built.pairs == []


def test_a_cell_on_two_machines_is_its_figure_where_its_baseline_is(local: Store) -> None:
    run = VisitedRun(local, "mirrored")
    run.visit("mtp", 2, 150.0, machine="a")
    run.visit("ar", None, 100.0, machine="b")
    run.visit("ar", None, 100.0, "@2", machine="b")
    run.visit("mtp", 2, 110.0, "@2", machine="b")
    built = run.built()
    row = only(built.results, technique="mtp")
    assert (row["machine"], row["visits"], row["tok_s"]) == ("b", 1, pytest.approx(110.0, rel=1e-3))
    assert "measured on a, too" in row["details"][0]
    assert only(built.pairs, kind="speed")["machine"] == "b"


def test_a_control_on_another_machine_is_no_control(local: Store) -> None:
    run = VisitedRun(local)
    run.visit("mtp", 2, 100.0, "@control-1", machine="a")
    run.visit("mtp", 2, 150.0, machine="b")
    built = run.built()
    row = only(built.results, technique="mtp")
    assert (row.get("speedup"), row["verdict"]) == (None, "ok") and "no_control" in row["details"][0]
    assert built.pairs == []


def test_a_placebo_that_differs_withholds_every_claim_of_its_run(local: Store) -> None:
    run = VisitedRun(local, "mirrored")
    for at, (technique, k) in enumerate(QUIET):
        run.visit(technique, k, 400.0 + at % 3)
    run.visit("ar", None, 100.0)
    run.visit("ar", None, 130.0, "@2")
    for technique, k in reversed(QUIET):
        run.visit(technique, k, 400.0, "@2")
    built = run.built()
    placebo = only(built.pairs, kind="placebo")
    assert placebo["conclusion"] == "differs" and placebo["ratio_p_holm"] < 0.05
    assert "a difference where there is none" in placebo["wording"]
    pair = only(built.pairs, kind="speed", technique="mtp", k=2)
    assert pair["ratio_lo"] > 1 and pair["conclusion"] == "inconclusive"
    assert pair["reasons"] == ["placebo_failed"] and "no claim: AR against AR" in pair["wording"]
    row = only(built.results, technique="mtp", k=2)
    assert (row["verdict"], row["speedup_lo"], row["speedup_hi"]) == ("ok", None, None)
    assert row["details"] == ["placebo_failed: AR against AR reads as a difference in this run"]


def test_a_technique_is_not_blamed_for_what_a_start_of_ar_does_too(local: Store) -> None:
    run = VisitedRun(local, "mirrored")
    answers = [("ar", None, "", 0, [1, 2]), ("mtp", 2, "", 0, [9, 9]), ("ar", None, "@2", 1, [1, 3])]
    for technique, k, visit, number, ids in answers:
        run.visit(technique, k, 100.0, visit)
        step = StepWriter(run.ledger, run.key(technique, k), f"parity{visit}")
        step.write(PARITY_OUTPUTS, [{"prompt_id": "p", "pass": number, "token_ids": ids}]).commit()
    built = run.built()
    control = only(built.results, step="parity", technique="ar")
    assert (control["parity_equal"], control["parity_n"], control["first_divergence"]) == (0, 1, 1)
    assert only(built.results, step="throughput", technique="mtp")["reasons"] == []


def test_a_baseline_with_other_serving_arguments_is_named(local: Store) -> None:
    cells = demo_plan().cells
    run = VisitedRun(local, "mirrored", cells=[served(cells[0], 8192), *cells[1:]])
    for visit in ("", "@2"):
        run.visit("ar", None, 100.0, visit)
        run.visit("mtp", 2, 150.0, visit)
    built = run.built()
    pair, row = only(built.pairs, kind="speed"), only(built.results, technique="mtp")
    assert (pair["served_differently"], pair["reasons"]) == (["max_model_len"], ["serving_differs"])
    assert (row["verdict"], row["reasons"]) == ("ok", []) and "serving_differs" in row["details"][0]
    assert pair["wording"].endswith("AR was served with another max_model_len")


def test_a_model_may_be_held_against_another_ones_ar(local: Store) -> None:
    cells = demo_plan().cells
    named: Model = cells[1].cell.model.model_copy(update={"name": "diffuser", "held_against": "tiny-gemma4"})
    other = celled(cells[1], model=named)
    assert baseline_among(other, cells) == cells[0]
    unnamed = celled(other, model=named.model_copy(update={"held_against": None}))
    assert other.cell.cell_key == unnamed.cell.cell_key
    run = VisitedRun(local, "mirrored", cells=[cells[0], other])
    for visit in ("", "@2"):
        run.visit("ar", None, 100.0, visit, provenance={"model_revision": "of tiny-gemma4"})
        run.visit("mtp", 1, 150.0, visit, provenance={"model_revision": "of diffuser"})
    built = run.built()
    pair = only(built.pairs, kind="speed")
    assert (pair["model"], pair["baseline_cell_key"]) == ("diffuser", run.key("ar"))
    rows = [*built.results, *built.pairs]
    assert {each["compared_as"] for each in rows} == {"tiny-gemma4"}, "whose AR it is that they are compared with"
    assert {each["model"] for each in built.results} == {"tiny-gemma4", "diffuser"}


def test_dummy_weights_are_only_held_against_dummy_weights() -> None:
    cells = demo_plan().cells
    dummy = cells[1].cell.model.model_copy(update={"weights": "dummy"})
    other, twin = celled(cells[1], model=dummy), celled(cells[0], model=dummy)
    assert baseline_among(other, cells) is None
    assert baseline_among(other, [*cells, twin]) == twin


def test_starts_are_pooled_over_the_run_whatever_a_batch_holds(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = VisitedRun(local)
    for technique, k in QUIET[:3]:
        run.bracket(technique, k, 100.0, 150.0, 101.0)
    whole = run.built()
    monkeypatch.setattr(build, "BATCH_ROWS", 1)
    assert run.built() == whole
