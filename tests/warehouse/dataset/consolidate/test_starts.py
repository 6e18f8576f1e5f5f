"""Speeds rest on engine starts of one machine; what may stand beside what, and what drifts and mixed machines claim."""

import math

import pytest

from configs.cell import Model
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import PlannedCell
from flows.results import result_rows
from tests.warehouse.runs import GPQA, SHORT, Graded, VisitedRun, answers, served
from tests.warehouse.synthetic import FINE, celled, demo_plan, item, only, window
from warehouse.dataset import build
from warehouse.dataset.consolidate.comparable import arguments, differences
from warehouse.dataset.consolidate.inputs import baseline_among
from warehouse.dataset.snapshot import publish
from warehouse.ledger.steps import EVAL_ITEMS, PARITY_OUTPUTS
from warehouse.ledger.store import Store
from warehouse.ledger.tables import Row
from warehouse.ledger.timed_tables import WINDOWS
from warehouse.report.display.figures import marks, technique_name

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
    step = run.step("throughput", "ar")
    for number, (place, tok_s, repeats) in enumerate(attempts, 1):
        step.attempt = number
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


UNSTEADY = ("suspect", ["unsteady"], ["decoding steps/s of 20 repeats differ by 19.5%"])
STARVED_TOO = ("suspect", ["unsteady", "client_starved"], ["they differ", "its timer woke up late"])
THROTTLED = ("suspect", ["throttled"], ["a card held its clock down"])


@pytest.mark.parametrize(
    ("found", "used"),
    [
        ((UNSTEADY, FINE, FINE), (101.0, 102.0)),
        ((FINE, UNSTEADY, FINE), (90.0, 102.0)),
        ((FINE, FINE, FINE), (90.0, 101.0, 102.0)),
        ((UNSTEADY, UNSTEADY, FINE), None),
        ((UNSTEADY, THROTTLED, FINE), None),
        ((STARVED_TOO, FINE, FINE), None),
        ((THROTTLED, FINE, FINE), None),
    ],
)
def test_an_unsteady_start_is_left_out_where_two_others_are_ok(
    local: Store, found: tuple[tuple[str, list[str], list[str]], ...], used: tuple[float, ...] | None
) -> None:
    run = VisitedRun(local, "balanced")
    for visit, tok_s, verdict in zip(("", "@2", "@3"), (90.0, 101.0, 102.0), found, strict=True):
        run.visit("ar", None, tok_s, visit, verdict=verdict)
        if visit != "@3":
            run.visit("mtp", 2, 150.0, visit)
    built = run.built()
    row = only(built.results, technique="ar")
    details = [sentence for _, _, said in found for sentence in said]
    assert all(any(sentence in each for each in row["details"]) for sentence in details), "whatever is done is said"
    assert len([each for each in built.visits if each["technique"] == "ar"]) == 3
    if used is None:
        assert (row["verdict"], row["visits"], built.pairs) == ("suspect", 3, [])
        return
    assert (row["verdict"], row["reasons"], row["visits"], row["repeats"]) == ("ok", [], len(used), 3 * len(used))
    assert row["tok_s"] == pytest.approx(math.prod(used) ** (1 / len(used)), rel=1e-3)
    assert only(built.pairs, kind="speed")["baseline_visits"] == len(used)
    assert only(built.pairs, kind="placebo")["baseline_value"] == pytest.approx(used[0], rel=1e-3)


def test_one_of_two_starts_is_never_left_out(local: Store) -> None:
    run = VisitedRun(local, "mirrored")
    for visit, verdict in (("", UNSTEADY), ("@2", FINE)):
        run.visit("mtp", 2, 150.0, visit, verdict=verdict)
        run.visit("ar", None, 100.0, visit)
    row = only(run.built().results, technique="mtp")
    assert (row["verdict"], row["reasons"], row["visits"]) == ("suspect", ["unsteady"], 2)


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
        outputs = [{"prompt_id": "p", "pass": number, "token_ids": ids}]
        run.step(f"parity{visit}", technique, k).write(PARITY_OUTPUTS, outputs).commit()
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


def test_dummy_weights_and_replays_are_only_held_against_their_like() -> None:
    cells = demo_plan().cells
    dummy = cells[1].cell.model.model_copy(update={"weights": "dummy"})
    other, twin = celled(cells[1], model=dummy), celled(cells[0], model=dummy)
    assert baseline_among(other, cells) is None
    assert baseline_among(other, [*cells, twin]) == twin
    mtp, ar = shipped("31b-shape fp8 mtp K=4"), shipped("31b-shape fp8 ar")
    real = celled(ar, model=ar.cell.model.model_copy(update={"weights": "real"}))
    assert baseline_among(mtp, [mtp, real]) is None
    assert baseline_among(mtp, [mtp, real, ar]) == ar


def test_starts_are_pooled_over_the_run_whatever_a_batch_holds(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = VisitedRun(local)
    for technique, k in QUIET[:3]:
        run.bracket(technique, k, 100.0, 150.0, 101.0)
    whole = run.built()
    monkeypatch.setattr(build, "BATCH_ROWS", 1)
    assert run.built() == whole


TIMED = (
    "/opt/env/bin/vllm serve org/model --served-model-name m --host 127.0.0.1 --port 8001 --max-model-len 16384 "
    """--no-enable-prefix-caching --speculative-config '{"method": "mtp", "model": "/cache/a/draft", "k": 4}'"""
)


def test_ports_and_folders_are_no_difference_and_versions_count_where_both_are_known() -> None:
    elsewhere = TIMED.replace("8001", "9999").replace("/opt/env", "/root/.cache/env").replace("/cache/a", "/mnt/b")
    assert differences({"argv": TIMED}, {"argv": elsewhere}) == []
    assert arguments("vllm serve m --override {oops")["--override"] == "{oops"
    one = {"argv": TIMED, "engine_version": "0.32.0", "model_revision": "a", "draft_revision": None}
    assert differences(one, one | {"engine_version": None, "draft_revision": "b"}) == []
    assert differences(one, one | {"model_revision": "b"}) == ["model_revision a (there b)"]
    assert differences({}, one) == [], "an old version recorded nothing"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("16384", "32768", "--max-model-len 32768 (there 16384)"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching", "--enable-prefix-caching given (there not given)"),
        ("/cache/a/draft", "/cache/a/other", "--speculative-config"),
        ('"k": 4', '"k": 2', "--speculative-config"),
        ("org/model", "org/quantized", "command vllm serve org/quantized (there vllm serve org/model)"),
        ("--port 8001", "--port 8001 --max-num-seqs=8", "--max-num-seqs 8 (there not given)"),
    ],
)
def test_what_changes_answers_is_a_difference(old: str, new: str, said: str) -> None:
    found = differences({"argv": TIMED.replace(old, new)}, {"argv": TIMED})
    assert any(sentence.startswith(said) for sentence in found), found


def test_graded_on_another_server_than_timed_is_suspect_and_not_compared(local: Store) -> None:
    run = Graded(local, GPQA)
    run.answered("ar", None, answers(50, range(40)))
    run.answered("mtp", 4, answers(50, range(40)), argv=TIMED.replace("16384", "32768"))
    run.step("eval-tiny", "mtp", 4).write(EVAL_ITEMS, [item(0, right=True)]).provenance(argv=TIMED).commit()
    run.step("throughput", "mtp", 4).write(WINDOWS, [window(SHORT, 0, 100.0)]).provenance(argv=TIMED).commit()
    built = run.built()
    row = only(built.results, step="eval-gpqa", technique="mtp", extractor="last-in-body")
    assert (row["verdict"], row["reasons"]) == ("suspect", ["argv_differs"])
    said = "served unlike step 'throughput', which measured the speed: --max-model-len 32768 (there 16384)"
    assert row["details"] == [said]
    assert only(built.results, step="eval-tiny", extractor="last-letter")["verdict"] == "ok"
    assert built.pairs == []


def test_cells_that_were_served_differently_are_compared_and_it_is_said(local: Store) -> None:
    cells = demo_plan().cells
    longer = cells[0].cell.serving.model_copy(update={"max_model_len": 4096, "max_num_seqs": 2})
    cells = [each if each.cell.technique.is_baseline else celled(each, serving=longer) for each in cells]
    run = Graded(local, GPQA, cells=cells)
    run.answered("ar", None, answers(50, range(40)))
    run.answered("mtp", 4, answers(50, range(40)))
    assert only(run.built().pairs)["served_differently"] == ["max_model_len", "max_num_seqs"]


def test_the_engine_of_a_control_is_not_held_against_the_cells_own(local: Store) -> None:
    run = Graded(local, GPQA)
    for name, argv in (("throughput", TIMED), ("throughput@control-1", "vllm serve org/model --max-model-len 16384")):
        run.step(name, "mtp", 4).write(WINDOWS, [window(SHORT, 0, 100.0)]).provenance(argv=argv).commit()
    run.answered("mtp", 4, answers(50, range(40)), argv=TIMED)
    assert only(run.built().results, step="eval-gpqa", extractor="last-in-body")["reasons"] == []


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
    run = VisitedRun(local, "single", cells=[celled(diffusion, **asked)])
    run.visit("diffusion", None, 800.0)
    row = only(run.built().results)
    assert (row["made_up"], marks(row)) == (None, [])
    assert {name: row[name] for name in asked} == asked
    assert technique_name(row) == "diffusion 8 steps canvas 256"
    publish(local)
    said = [each["cell"] for each in result_rows(local, "run")]
    assert said == ["fp8 diffusion denoising_steps=8 canvas_length=256"]
    real = VisitedRun(local, "single", "real")
    real.visit("ar", None, 100.0)
    row = only(real.built().results)
    assert (row["made_up"], row["denoising_steps"], marks(row)) == (None, None, [])
