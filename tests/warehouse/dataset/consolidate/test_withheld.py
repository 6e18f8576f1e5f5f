"""What looks like a claim and is none: no or a blind placebo, other engines, one of many, outputs that leave AR's."""

from math import log, sqrt
from typing import Any

import pytest

from configs.cell import Serving
from tests.warehouse.report.pages import row, speed_pair
from tests.warehouse.runs import SHORT, Graded, VisitedRun, answers
from tests.warehouse.synthetic import DEMO, celled, demo_plan, only, window, write_demo_run
from warehouse.dataset.build import consolidate
from warehouse.dataset.consolidate.comparable import Output, agreement, barred, cells_that_fail_parity, lossless_cells
from warehouse.dataset.consolidate.inputs import Raw, take_inventory
from warehouse.dataset.consolidate.rows import Judged, Result, plain_row
from warehouse.dataset.consolidate.speed.settled import among_others, concluded
from warehouse.dataset.consolidate.speed.starts import MOST_SEEN
from warehouse.ledger.store import Store
from warehouse.ledger.tables import Row
from warehouse.ledger.timed_tables import WINDOWS


def test_a_speedup_without_a_placebo_is_no_claim_and_its_pair_keeps_what_was_seen(local: Store) -> None:
    run = VisitedRun(local)
    run.bracket("mtp", 2, 100.0, 300.0, 101.0)
    built = run.built()
    row, pair = only(built.results), only(built.pairs, kind="speed")
    assert (pair["conclusion"], pair["verdict"], pair["reasons"]) == ("inconclusive", "ok", ["no_placebo"])
    assert pair["ratio_lo"] > 1
    assert pair["wording"].endswith("; no claim: AR was not started twice beside another arm, so there is no A/A check")
    assert row["speedup"] == pytest.approx(pair["ratio"]) and row["speedup_lo"] is row["speedup_hi"] is None
    assert (row["verdict"], row["reasons"]) == ("ok", [])
    assert row["details"] == ["no_placebo: AR was not started twice beside another arm, so there is no A/A check"]


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
def test_no_speedup_is_over_an_ar_that_was_held_to_fewer_requests(local: Store, asked: int, said: list[str]) -> None:
    few: Serving = demo_plan().cells[0].cell.serving.model_copy(update={"max_num_seqs": 4})
    run = VisitedRun(local, cells=[celled(each, serving=few) for each in demo_plan().cells])
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
        run.outputs(technique, k, *[{"p": ids}] * (2 if k is None else 1))
        for visit, tok_s in (("", 100.0), ("@2", 100.0 if k != 2 else 200.0)):
            timed = run.step(f"throughput{visit}", technique, k).provenance(machine="m")
            timed.write(WINDOWS, [window(SHORT, at, tok_s + at / 10) for at in range(3)]).commit()
    built = run.built()
    broken, sound = (only(built.pairs, kind="accuracy", k=k) for k in (2, 1))
    said = ("inconclusive", "suspect", ["parity_failed"])
    assert (broken["conclusion"], broken["verdict"], broken["reasons"]) == said
    assert broken["wording"].startswith("no claim: none of 1 greedy outputs is AR's")
    assert broken["mcnemar_p"] is not None and broken.get("mcnemar_p_holm") is None
    assert (sound["verdict"], sound["reasons"]) == ("ok", [])
    assert sound["mcnemar_p_holm"] == sound["mcnemar_p"], "one comparison, not one of two"
    fast = only(built.results, step="throughput", k=2)
    assert (fast["verdict"], fast["reasons"], fast.get("speedup")) == ("suspect", ["parity_failed"], None)
    assert {pair["k"] for pair in built.pairs if pair["kind"] == "speed"} == {1}
    visits = {(row["k"], row["verdict"], *row["reasons"]) for row in built.visits}
    assert visits == {(None, "ok"), (1, "ok"), (2, "suspect", "parity_failed")}
    assert only(built.results, step="throughput", k=1)["start_sd"] < 0.01, "not the broken cell's 35 %"


def test_seconds_of_a_control_without_its_cell_are_in_a_row(local: Store) -> None:
    run = VisitedRun(local)
    step = run.step("throughput@control-1", "mtp", 2).provenance(price_usd_h=3600.0)
    step.write(WINDOWS, [window(SHORT, 0, 100.0)], spent_s=3.0).commit()
    row = only(run.built().results, step="throughput")
    assert (row["cell_key"], row["gpu_s"], row["cost_usd"]) == (run.key("mtp", 2), 3.0, pytest.approx(3.0))
    assert (row["verdict"], row["reasons"], row.get("tok_s")) == ("suspect", ["not_measured"], None)


def test_a_row_per_visit_charges_the_seconds_once(local: Store) -> None:
    run = VisitedRun(local)
    for visit, spent_s in (("@control-1", 3.0), ("", 5.0), ("@2", 4.0)):
        run.step(f"throughput{visit}", "mtp", 2).write(WINDOWS, [window(SHORT, 0, 100.0)], spent_s=spent_s).commit()
    steps = take_inventory(local, ["run"]).steps
    rows = [plain_row(step, Raw(local, steps)) for step in steps]
    assert [result.columns["gpu_s"] for result in rows] == [12.0, None, None]


BRACKETS = (("mtp", 2, 101.0), ("ngram", 4, 99.5), ("dflash", 7, 100.7), ("suffix", 8, 99.0), ("mtp", 4, 100.4))


def placebos(run: VisitedRun, *, last: float, brackets: int = len(BRACKETS)) -> dict[str, Row]:
    """By the cell they stand under; the last bracket's second AR has this rate."""
    chosen = [*BRACKETS[: brackets - 1], (*BRACKETS[brackets - 1][:2], last)]
    for technique, k, after in chosen:
        run.bracket(technique, k, 100.0, 150.0, after)
    return {pair["cell_key"]: pair for pair in run.built().pairs if pair["kind"] == "placebo"}


@pytest.mark.slow(5)
def test_a_placebo_could_have_seen_what_its_corrected_p_begins_to_call_a_difference(local: Store) -> None:
    """Its own difference is no part of what it is held against, so that only the conclusion changes with it."""
    first = VisitedRun(local, run_id="first")
    pair = placebos(first, last=100.0)[first.key("mtp", 4)]
    reach, drifted = pair["ratio_detectable"], pair["ratio"]
    assert reach > sqrt(pair["ratio_hi"] / pair["ratio_lo"]), "one of five has to be farther out than its interval"
    for run_id, beyond, said in (("below", 0.999, "inconclusive"), ("above", 1.001, "differs")):
        run = VisitedRun(local, run_id=run_id)
        found = placebos(run, last=100.0 * reach**beyond / drifted)[run.key("mtp", 4)]
        assert log(found["ratio"]) == pytest.approx(beyond * log(reach), rel=1e-6)
        assert found["ratio_detectable"] == pytest.approx(reach) and found["conclusion"] == said


def test_what_no_factor_could_have_shown_is_told_as_a_bound(local: Store) -> None:
    run = VisitedRun(local)
    for technique, k, after in (("mtp", 2, 10.0), ("ngram", 4, 1000.0)):
        run.bracket(technique, k, 100.0, 150.0, after)
    found = [pair for pair in run.built().pairs if pair["kind"] == "placebo"]
    assert [pair["ratio_detectable"] for pair in found] == [MOST_SEEN] * 2


def test_a_drift_is_null_where_too_few_starts_tell_one(local: Store) -> None:
    few, more = VisitedRun(local, run_id="few"), VisitedRun(local, run_id="more")
    assert {pair["drift"] for pair in placebos(few, last=99.0, brackets=2).values()} == {None}
    assert {pair["drift"] for pair in few.built().pairs} == {None}
    assert None not in {pair["drift"] for pair in placebos(more, last=99.0).values()}


def pairs(*verdicts: str) -> list[Row]:
    """One that is significant as one of two comparisons and not as one of three, and others that show nothing."""
    rows = [row("mtp", 100.0 + k, k=k, cell_key=f"mtp {k}", speedup=1.5, verdict=verdict)
            for k, verdict in enumerate(verdicts)]  # fmt: skip
    words = "1.50 x [1.47, 1.53]"
    return among_others([speed_pair(each, ratio_p=0.6 if each["k"] else 0.02, wording=words) for each in rows])


@pytest.mark.parametrize("verdict", ["suspect", "rejected", "ok"])
def test_rows_that_are_ok_all_count_and_one_that_is_not_neither_claims_nor_counts(verdict: str) -> None:
    claim, _, third = pairs("ok", "ok", verdict)
    if verdict == "ok":
        assert (claim["conclusion"], claim["ratio_p_holm"]) == ("inconclusive", pytest.approx(0.06))
        assert claim["wording"].endswith("inconclusive as one of 3 comparisons (p = 0.06)")
    else:
        assert (claim["conclusion"], claim["ratio_p_holm"]) == ("faster", pytest.approx(0.04))
        assert (third["conclusion"], third["ratio_p_holm"]) == ("inconclusive", None)


def test_a_row_of_the_dataset_says_what_its_comparison_concludes() -> None:
    rows = [row("ar", 100.0), row("mtp", 150.0, cell_key="mtp 0"), row("mtp", None, cell_key="mtp 0", mode="stream")]
    said = [[each["conclusion"] for each in concluded(rows, found)] for found in (pairs("ok"), pairs("ok", "ok", "ok"))]
    assert said == [[None, "faster", None], [None, "inconclusive", None]], "corrected, as its interval isn't"


AR = {"p": Output([1, 2, 3], [9.0, 0.125, 9.0]), "q": Output([1, 2], [9.0, 9.0]), "r": Output([7, 8], [0.25, 3.5])}


def test_outputs_that_part_at_a_near_tie_are_told_from_those_that_part_where_the_model_was_sure() -> None:
    others = {"p": Output([1, 5, 5], [9.0, 0.0, 1.0]), "q": Output([1, 2], [9.0, 9.0]), "r": Output([7, 9], [0.3, 3.1])}
    found = agreement(AR, others)
    assert (found.equal, found.compared, found.first_divergence) == (1, 3, 1)
    assert (found.near_ties, found.margin) == (1, 3.5)
    found = agreement(AR, {"p": Output([1, 5], [9.0, 2.0])})
    assert (found.near_ties, found.margin) == (0, 2.0)
    assert agreement({"p": Output([1], [0.2500009])}, {"p": Output([2], [0.125])}).near_ties == 1
    assert agreement({"p": Output([1], [0.375])}, {"p": Output([2], [0.125])}).near_ties == 0


def test_without_gaps_or_behind_the_end_of_an_output_there_is_no_witness() -> None:
    found = agreement({"p": Output([1, 2, 3], [1.0, 1.0, 0.1])}, {"p": Output([1, 2], [1.0, 1.0])})
    assert (found.first_divergence, found.near_ties, found.margin) == (2, 1, 0.1)
    for others in ({"p": Output([1, 5, 5])}, {"p": Output([1, 2, 3])}):
        found = agreement(AR, others)
        assert (found.near_ties, found.margin) == (None, None)


LOSSLESS = frozenset({("r", "mtp"), ("r", "draft_model")})


def result(technique: str, step: str = "parity", **columns: Any) -> Result:
    identity = {
        "run_id": "r", "cell_key": technique, "model": "m", "precision": "bf16", "engine": "e", "gpu": "h100",
        "technique": technique, "step": step,
    }  # fmt: skip
    return Result(identity | columns, Judged("ok"))


def parity(
    technique: str, equal: int, *, near: int | None = None, margin: float | None = None, first: int | None = 0
) -> Result:
    figures = {"parity_near_ties": near, "divergence_margin": margin}
    return result(technique, parity_equal=equal, parity_n=12, first_divergence=first, **figures)


def test_a_lossless_cell_whose_outputs_leave_ars_is_suspect_in_every_row() -> None:
    fast = result("mtp", "throughput", tok_s=360.0)
    others = [result("ar", "throughput", tok_s=80.0), result("mtp", "eval-gpqa", score=0.7)]
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


def test_a_finding_of_the_parity_step_itself_is_kept_and_without_margins_an_early_parting_is_a_failure() -> None:
    odd = parity("mtp", 0, near=1, margin=7.5)._replace(judged=Judged("suspect", ("parity_not_a_tie",)))
    rows = [parity("ar", 12), odd]
    [_, found] = barred(rows, cells_that_fail_parity(rows, LOSSLESS))
    assert found.row["reasons"] == ["parity_not_a_tie", "parity_failed"]
    found = cells_that_fail_parity([parity("ar", 12), parity("mtp", 0, first=3)], LOSSLESS)
    assert found == {
        ("r", "mtp"): "none of 12 greedy outputs is AR's, the first one parts at token 3; AR repeats itself in 12 of 12"
    }


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


@pytest.mark.slow(14)
def test_the_broken_cell_of_a_run_fails_and_ar_promises_nothing(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = DEMO["bf16", "mtp", 4]._replace(parity_breaks=tuple(range(12)))
    monkeypatch.setitem(DEMO, ("bf16", "mtp", 4), broken)
    write_demo_run(local)
    steps = take_inventory(local, ["demo-1"]).steps
    promised = lossless_cells(steps)
    assert {each.is_baseline for each in steps if (each.run_id, each.cell_key) in promised} == {False}
    failed = [result for result in consolidate(local, ["demo-1"]).results if "parity_failed" in result["reasons"]]
    assert {(result["precision"], result["technique"], result["k"]) for result in failed} == {("bf16", "mtp", 4)}
    assert {result.get("speedup") for result in failed} == {None}
