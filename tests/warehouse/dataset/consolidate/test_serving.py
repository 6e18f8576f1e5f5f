"""What may stand beside what: command lines without what differs by nature, and rows of what was not really run."""

import pytest

from configs.expand import expand
from configs.load import load_sweep
from configs.schema import PlannedCell
from flows.results import result_rows
from tests.warehouse.graded import GPQA, Graded, answers
from tests.warehouse.synthetic import celled, demo_plan, item, only, window
from tests.warehouse.visited import SHORT, VisitedRun
from warehouse.dataset.consolidate.comparable import arguments, differences
from warehouse.dataset.consolidate.inputs import baseline_among
from warehouse.dataset.snapshot import publish
from warehouse.ledger.steps.eval_tiny import EVAL_ITEMS
from warehouse.ledger.store import Store
from warehouse.ledger.timed_tables import WINDOWS
from warehouse.report.display.figures import marks, technique_name

TIMED = (
    "/opt/env/bin/vllm serve org/model --served-model-name m --host 127.0.0.1 --port 8001 --max-model-len 16384 "
    """--no-enable-prefix-caching --speculative-config '{"method": "mtp", "model": "/cache/a/draft", "k": 4}'"""
)


def test_ports_and_folders_are_no_difference_and_what_is_no_json_is_compared_as_it_is() -> None:
    elsewhere = TIMED.replace("8001", "9999").replace("/opt/env", "/root/.cache/env").replace("/cache/a", "/mnt/b")
    assert differences({"argv": TIMED}, {"argv": elsewhere}) == []
    assert arguments("vllm serve m --override {oops")["--override"] == "{oops"


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


def test_versions_count_where_both_are_known() -> None:
    one = {"argv": TIMED, "engine_version": "0.32.0", "model_revision": "a", "draft_revision": None}
    assert differences(one, one | {"engine_version": None, "draft_revision": "b"}) == []
    assert differences(one, one | {"model_revision": "b"}) == ["model_revision a (there b)"]
    assert differences({}, one) == [], "an old version recorded nothing"


def test_graded_on_another_server_than_timed_is_suspect_and_not_compared(local: Store) -> None:
    run = Graded(local, GPQA)
    run.answered("ar", None, answers(50, range(40)))
    run.answered("mtp", 4, answers(50, range(40)), argv=TIMED.replace("16384", "32768"))
    for name, table, row in (
        ("eval-tiny", EVAL_ITEMS, item(0, right=True)), ("throughput", WINDOWS, window(SHORT, 0, 100.0))
    ):  # fmt: skip
        run.step(name, "mtp", 4).write(table, [row]).provenance(argv=TIMED).commit()
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


def test_a_replay_is_never_held_against_a_real_ar() -> None:
    mtp, ar = shipped("31b-shape fp8 mtp K=4"), shipped("31b-shape fp8 ar")
    real = celled(ar, model=ar.cell.model.model_copy(update={"weights": "real"}))
    assert baseline_among(mtp, [mtp, real]) is None
    assert baseline_among(mtp, [mtp, real, ar]) == ar
