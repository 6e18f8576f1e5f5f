"""What looks like a claim and is none: no placebo, other engines, a cell that breaks its promise, a control alone."""

from __future__ import annotations

import pytest

from configs.cell import Serving
from tests.warehouse.graded import Graded, answers
from tests.warehouse.synthetic import StepWriter, demo_plan, window
from tests.warehouse.visited import SHORT, VisitedRun, only
from warehouse.dataset.consolidate.inputs import take_inventory
from warehouse.dataset.consolidate.raw import Raw
from warehouse.dataset.consolidate.rows import plain_row
from warehouse.ledger.steps.parity import PARITY_OUTPUTS
from warehouse.ledger.store import Store
from warehouse.ledger.timed_tables import WINDOWS


def test_a_speedup_without_a_placebo_is_no_claim_and_its_pair_keeps_what_was_seen(local: Store) -> None:
    run = VisitedRun(local)
    run.bracket("mtp", 2, 100.0, 300.0, 101.0)
    built = run.built()
    row, pair = only(built.results), only(built.pairs, kind="speed")
    assert (pair["conclusion"], pair["verdict"], pair["reasons"]) == ("inconclusive", "ok", ["no_placebo"])
    assert pair["ratio_lo"] > 1
    assert pair["wording"].endswith("; no claim: no placebo: AR was not started twice beside another arm")
    assert row["speedup"] == pytest.approx(pair["ratio"]) and row["speedup_lo"] is row["speedup_hi"] is None
    assert (row["verdict"], row["reasons"]) == ("ok", [])
    assert row["details"] == ["no_placebo: no placebo: AR was not started twice beside another arm"]


def test_a_placebo_under_one_condition_is_none_under_another(local: Store) -> None:
    run = VisitedRun(local)
    other = SHORT.model_copy(update={"name": "other"})
    run.bracket("mtp", 1, 100.0, 150.0, 101.0)
    run.bracket("mtp", 2, 100.0, 150.0, 101.0)
    run.bracket("ngram", 4, 100.0, 150.0, 101.0, condition=other)
    pairs = [pair for pair in run.built().pairs if pair["kind"] == "speed"]
    assert {pair["condition"]: pair["reasons"] for pair in pairs} == {SHORT.name: [], "other": ["no_placebo"]}


def test_visits_of_one_figure_that_were_served_by_other_engines_are_suspect(local: Store) -> None:
    run = VisitedRun(local, "mirrored")
    for visit, version in (("", "0.32.0"), ("@2", "0.33.0")):
        run.visit("ar", None, 100.0, visit, provenance={"argv": f"vllm serve /models/{len(visit)}/target --port 80"})
        run.visit("mtp", 2, 150.0, visit, provenance={"engine_version": version})
    built = run.built()
    row = only(built.results, technique="mtp")
    assert (row["verdict"], row["reasons"]) == ("suspect", ["serving_differs"])
    assert row["details"][0].endswith("engine_version 0.32.0 (there 0.33.0)")
    assert only(built.results, technique="ar")["verdict"] == "ok", "folders and ports are the machine's"
    assert not [pair for pair in built.pairs if pair["kind"] == "speed"]


@pytest.mark.parametrize("column", ["engine_version", "model_revision", "gpu_driver"])
def test_a_cell_and_its_control_are_of_one_engine(local: Store, column: str) -> None:
    run = VisitedRun(local)
    run.bracket("ngram", 4, 100.0, 150.0, 101.0)
    for visit, said in (("@control-1", "a"), ("", "b"), ("@control-2", "a")):
        place = {column: said, "argv": "vllm serve" if visit else "vllm serve --speculative-config {}"}
        run.visit("mtp", 2, 100.0 if visit else 150.0, visit, provenance=place)
    built = run.built()
    row = only(built.results, technique="mtp")
    assert row.get("speedup") is None and row["verdict"] == "ok"
    assert row["details"][0].startswith(f"serving_differs: AR was served by another engine: {column} b (there a)")
    assert {pair["technique"] for pair in built.pairs if pair["kind"] == "speed"} == {"ngram"}


QUEUED = "no_baseline: AR was held to 4 requests at a time, and 16 were asked of it, so there is no speedup"


@pytest.mark.parametrize(("asked", "said"), [(4, []), (16, [QUEUED])])
def test_no_speedup_is_over_an_ar_that_was_held_to_fewer_requests_than_asked(
    local: Store, asked: int, said: list[str]
) -> None:
    few: Serving = demo_plan().cells[0].cell.serving.model_copy(update={"max_num_seqs": 4})
    cells = [
        each.model_copy(update={"cell": each.cell.model_copy(update={"serving": few})}) for each in demo_plan().cells
    ]
    run = VisitedRun(local, cells=cells)
    load = SHORT.model_copy(update={"concurrency": asked})
    run.bracket("mtp", 1, 100.0, 150.0, 101.0, condition=load)
    run.bracket("mtp", 2, 100.0, 150.0, 101.0, condition=load)
    row = only(run.built().results, k=1)
    assert row["tok_s"] == pytest.approx(150.0, rel=0.01) and row["verdict"] == "ok"
    assert (row.get("speedup") is not None, row["details"]) == (asked == 4, said)


def test_a_cell_that_fails_parity_is_in_no_family_and_its_starts_say_nothing_of_others(local: Store) -> None:
    run = Graded(local)
    run.answered("ar", None, answers(198, range(150)))
    for k in (1, 2):
        run.answered("mtp", k, answers(198, range(7, 150)))
    for technique, k, ids in (("ar", None, [1, 2]), ("mtp", 1, [1, 2]), ("mtp", 2, [9, 9])):
        step = run.step("parity", technique, k)
        passes = range(2 if k is None else 1)
        step.write(PARITY_OUTPUTS, [{"prompt_id": "p", "pass": number, "token_ids": ids} for number in passes])
        step.judge((None, None, "ok", [], []))
        step.commit()
        for visit, tok_s in (("", 100.0), ("@2", 100.0 if k != 2 else 200.0)):
            timed = run.step(f"throughput{visit}", technique, k)
            timed.provenance(machine="m")
            timed.write(WINDOWS, [window(SHORT, at, tok_s + at / 10) for at in range(3)])
            timed.judge((SHORT.name, "fixed", "ok", [], []))
            timed.commit()
    built = run.built()
    broken, sound = (only(built.pairs, kind="accuracy", k=k) for k in (2, 1))
    assert (broken["conclusion"], broken["verdict"], broken["reasons"]) == (
        "inconclusive",
        "suspect",
        ["parity_failed"],
    )
    assert broken["wording"].startswith("no claim: none of 1 greedy outputs is AR's")
    assert broken["mcnemar_p"] is not None and broken.get("mcnemar_p_holm") is None
    assert (sound["verdict"], sound["reasons"]) == ("ok", [])
    assert sound["mcnemar_p_holm"] == sound["mcnemar_p"], "one comparison, not one of two"
    visits = {(row["k"], row["verdict"], *row["reasons"]) for row in built.visits}
    assert visits == {(None, "ok"), (1, "ok"), (2, "suspect", "parity_failed")}
    assert only(built.results, step="throughput", k=1)["start_sd"] < 0.01, "not the broken cell's 35 %"


def test_seconds_of_a_control_without_its_cell_are_in_a_row(local: Store) -> None:
    run = VisitedRun(local)
    control = StepWriter(run.ledger, run.key("mtp", 2), "throughput@control-1")
    control.provenance(price_usd_h=3600.0)
    control.write(WINDOWS, [window(SHORT, 0, 100.0)], spent_s=3.0)
    control.commit()
    row = only(run.built().results, step="throughput")
    assert (row["cell_key"], row["gpu_s"], row["cost_usd"]) == (run.key("mtp", 2), 3.0, pytest.approx(3.0))
    assert (row["verdict"], row["reasons"], row.get("tok_s")) == ("suspect", ["not_measured"], None)


def test_a_row_per_visit_charges_the_seconds_once(local: Store) -> None:
    run = VisitedRun(local)
    for name, spent_s in (("throughput@control-1", 3.0), ("throughput", 5.0), ("throughput@2", 4.0)):
        step = StepWriter(run.ledger, run.key("mtp", 2), name)
        step.write(WINDOWS, [window(SHORT, 0, 100.0)], spent_s=spent_s)
        step.commit()
    steps = take_inventory(local, ["run"]).steps
    rows = [plain_row(step, Raw(local, steps)) for step in steps]
    assert [result.columns["gpu_s"] for result in rows] == [12.0, None, None]
