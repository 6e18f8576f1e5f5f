"""Figures of a speed row: rates, tokens per step, bandwidth, drafts, answers that end by themselves, clients."""

from typing import Any

import pytest

from configs.load import load_gpu, load_technique
from configs.schema import PlannedCell
from configs.steps.throughput import NATURAL, Condition
from tests.warehouse.runs import SHORT, VisitedRun
from tests.warehouse.synthetic import StepWriter, celled, demo_plan, only, window
from warehouse.dataset.build import Consolidated
from warehouse.dataset.tables import RESULTS_CONSOLIDATED
from warehouse.ledger.steps import EVAL_ITEMS, PARITY_OUTPUTS
from warehouse.ledger.store import Store
from warehouse.ledger.tables import ENGINE_COUNTED, Row
from warehouse.ledger.timed_tables import REQUESTS, WINDOWS
from warehouse.report.display.tables import condition_cell

LONG = Condition(name="long", context_tokens=64, output_tokens=512)


@pytest.fixture
def run(local: Store) -> VisitedRun:
    return VisitedRun(local, "single")


def test_a_rate_is_all_tokens_over_all_seconds_or_over_those_in_which_all_slots_are_busy(run: VisitedRun) -> None:
    run.visit("ar", None, 1.0, rates=(100.0, 100.0, 100.0, 100.0, 50.0))
    run.visit("ngram", 4, 50.0, steady_s=1.0, steady_tokens=88.0)
    found = run.built().results
    row = only(found, technique="ar")
    assert row["tok_s"] == pytest.approx(500 / 6), "not the mean of ratios, 90"
    assert row["chars_s"] / row["tok_s"] == pytest.approx(4.0)
    assert only(found, technique="ngram")["tok_s"] == pytest.approx(88.0)


def test_an_impossible_speedup_claims_nothing_in_its_pair_either(local: Store) -> None:
    run = VisitedRun(local)
    counts = {"engine_drafts": 87, "engine_accepted_tokens": 13, "engine_accepted_by_position": [13]}
    run.bracket("mtp", 1, 100.0, 400.0, 101.0, **counts)
    run.bracket("mtp", 2, 100.0, 110.0, 100.5, **counts)
    built = run.built()
    row, pair = only(built.results, k=1), only(built.pairs, kind="speed", k=1)
    assert (row["verdict"], row["reasons"]) == ("suspect", ["speedup_above_acceptance"])
    assert {row.get(name) for name in ("speedup", "speedup_lo", "speedup_hi")} == {None} and pair["ratio_lo"] > 1.13
    assert (pair["conclusion"], pair["verdict"], pair["reasons"]) == ("inconclusive", row["verdict"], row["reasons"])
    assert "no claim: the row is suspect (speedup_above_acceptance)" in pair["wording"]


def test_steps_without_a_draft_bound_the_speedup_too(local: Store) -> None:
    run = VisitedRun(local)
    counts = {"engine_drafts": 10, "engine_accepted_tokens": 25, "engine_accepted_by_position": [9, 7, 5, 4]}
    run.bracket("ngram", 4, 100.0, 350.0, 100.0, condition=LONG, **counts)
    row = only(run.built().results)
    assert row["acceptance_length"] == pytest.approx(3.5)
    assert row["tokens_per_step"] == pytest.approx(512 / (512 - 25))
    assert (row["verdict"], row["reasons"]) == ("suspect", ["speedup_above_acceptance"])


def test_tokens_per_step_do_not_exceed_the_acceptance_length_of_short_answers(run: VisitedRun) -> None:
    """What K = 7 accepted behind the ends of two answers is counted, too: 28 of 32 tokens, and 4 drafts."""
    counts = {"engine_drafts": 4, "engine_draft_tokens": 28, "engine_accepted_tokens": 28, "requests": 2}
    run.visit("mtp", 2, 100.0, rates=(100.0,), completion_tokens=32, engine_accepted_by_position=None, **counts)
    row = only(run.built().results, technique="mtp")
    assert row["acceptance_length"] == 8 and row["tokens_per_step"] == pytest.approx(32 / 6)


def test_the_first_step_of_generate_has_a_draft_and_is_no_further_one(local: Store) -> None:
    """64 tokens in 13 steps, the first of which drafted, too."""
    planned = next(each for each in demo_plan().cells if each.cell.technique.name == "mtp" and each.cell.k == 4)
    engine = planned.cell.engine.model_copy(update={"kind": "transformers"})
    run = VisitedRun(local, "single", cells=[celled(planned, engine=engine, technique=load_technique("draft_model"))])
    counts = {"engine_drafts": 13, "engine_draft_tokens": 52, "engine_accepted_tokens": 51, "requests": 1}
    run.visit("draft_model", 4, 100.0, rates=(100.0,), completion_tokens=64, engine_accepted_by_position=None, **counts)
    assert only(run.built().results)["tokens_per_step"] == pytest.approx(64 / 13)


H100 = load_gpu("h100")
READ_S = 3350e9  # bytes that it reads in a second


def weights_of(planned: PlannedCell) -> float:
    return planned.cell.model.active_params_b * 1e9 * planned.cell.precision.bytes_per_param


def test_two_cards_read_twice_as_much_and_the_cache_is_read_too(local: Store) -> None:
    planned = demo_plan().cells[0].model_copy(update={"gpu": H100})
    model = planned.cell.model.model_copy(update={"active_params_b": 30.7})
    precision = planned.cell.precision.model_copy(update={"name": "fp8", "bytes_per_param": 1.0})
    engine = planned.cell.engine.model_copy(update={"args": ("--tensor-parallel-size=2",)})
    planned = celled(planned, model=model, precision=precision, engine=engine)
    assert planned.cell.cards == 2
    run = VisitedRun(local, "single", cells=[planned])
    run.visit("ar", None, 160.0, rates=(1.0, 1.0), prompt_tokens=8000, requests=1)
    row = only(run.built().results)
    kv = 2 * 4 * 2 * 32 * 2 * (8000 + 50)  # keys and values x layers x heads x head size x bytes x tokens
    assert row["mbu"] == pytest.approx((30.7e9 + kv) * 160 / (2 * READ_S)) and row["mbu"] < 1
    assert row["prompt_tokens"] == 8000
    one = VisitedRun(local, "single", "told", cells=[planned])
    one.visit("ar", None, 80.0, rates=(1.0, 1.0), provenance={"gpus": 1})
    assert only(one.built().results)["mbu"] == pytest.approx(30.7e9 * 80 / READ_S, rel=1e-3), "as the node said"


def test_the_cache_of_answers_that_end_by_themselves_is_as_long_as_they_were_not_as_their_cap(local: Store) -> None:
    planned = demo_plan().cells[0].model_copy(update={"gpu": H100})
    run = VisitedRun(local, "single", cells=[planned])
    capped = Condition(name="capped", context_tokens=64, output_tokens=8192)
    run.visit("ar", None, 1.0, rates=(1.0,), condition=capped, mode=NATURAL, prompt_tokens=256, requests=4,
              completion_tokens=1200, wall_s=2.0)  # fmt: skip
    cache = (64 + 300 / 2) * planned.cell.kv_bytes_per_token
    row = only(run.built().results, mode=NATURAL)
    assert row["mbu"] == pytest.approx((weights_of(planned) + cache) * 1200 / 2.0 / READ_S)


def test_the_weights_are_read_once_for_as_many_as_the_engine_has_slots_for_not_for_all_that_wait(local: Store) -> None:
    planned = demo_plan().cells[0].model_copy(update={"gpu": H100})
    crowd = Condition(name="crowd", context_tokens=64, output_tokens=100, concurrency=16)
    used = []
    for slots in (4, 16):
        cell = celled(planned, serving=planned.cell.serving.model_copy(update={"max_num_seqs": slots}))
        run = VisitedRun(local, "single", str(slots), cells=[cell])
        run.visit("ar", None, 1000.0, rates=(1.0,), condition=crowd)
        used.append(only(run.built().results)["mbu"])
    assert used[0] - used[1] == pytest.approx(weights_of(planned) * 1000 * (1 / 4 - 1 / 16) / READ_S)


def test_replayed_acceptance_is_labelled(local: Store) -> None:
    planned = demo_plan().cells[1]
    told = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 3.2}
    technique = planned.cell.technique.model_copy(update={"speculative_config": told})
    run = VisitedRun(local, "single", cells=[celled(planned, technique=technique)])
    run.visit("mtp", 1, 100.0)
    assert only(run.built().results)["acceptance_source"] == "replayed:synthetic_acceptance_length=3.2"


ANSWERS = (40, 60, 100)  # tokens; the last is the cap


def both_modes(run: VisitedRun, technique: str, k: int | None, fixed: float, natural: float) -> None:
    step = StepWriter(run.ledger, run.key(technique, k), "throughput").provenance(machine="node-1 card-1")
    for mode, tok_s in (("fixed", fixed), (NATURAL, natural)):
        lengths = ANSWERS if mode == NATURAL else (100, 100, 100)
        step.write(WINDOWS, [window(SHORT, at, tok_s, mode=mode) for at in range(3)])
        step.write(REQUESTS, [
            {"condition": SHORT.name, "mode": mode, "context_tokens": 64, "output_tokens": 100, "concurrency": 1,
             "repeat": at, "request_id": f"{mode}/{at}", "prompt_tokens": 64, "completion_tokens": tokens,
             "finish_reason": "length" if tokens == 100 else "stop"}
            for at, tokens in enumerate(lengths)
        ])  # fmt: skip
        step.judge((SHORT.name, mode, "ok", [], []))
    step.commit()


@pytest.fixture
def built(run: VisitedRun) -> Consolidated:
    both_modes(run, "ar", None, 100.0, 80.0)
    both_modes(run, "mtp", 2, 150.0, 200.0)
    return run.built()


def test_each_mode_is_held_against_the_same_mode_of_ar_and_a_table_tells_them_apart(built: Consolidated) -> None:
    fixed, natural = (only(built.results, technique="mtp", k=2, mode=mode) for mode in ("fixed", NATURAL))
    assert fixed["speedup"] == pytest.approx(1.5) and natural["speedup"] == pytest.approx(2.5)
    assert {pair["mode"]: round(pair["ratio"], 2) for pair in built.pairs} == {"fixed": 1.5, NATURAL: 2.5}
    rows = [dict.fromkeys(RESULTS_CONSOLIDATED.column_names()) | row for row in built.results]
    said = {row["mode"]: str(condition_cell(row)) for row in rows if row["technique"] == "ar"}
    assert "answers end by themselves, 67 tokens on average" in said[NATURAL]
    assert "themselves" not in said["fixed"]


def test_how_long_answers_were_and_how_many_the_cap_ended_is_said_of_natural_ones_only(built: Consolidated) -> None:
    fixed, natural = (only(built.results, technique="ar", mode=mode) for mode in ("fixed", NATURAL))
    assert natural["answer_tokens"] == pytest.approx(200 / 3) and natural["truncated"] == 1
    assert "answers that did not end by themselves within 100 tokens: 1" in natural["details"]
    assert fixed.get("answer_tokens") is None and fixed.get("truncated") is None and fixed["details"] == []


COUNTED: Row = {
    "engine_generation_tokens": 12, "engine_drafts": 4, "engine_draft_tokens": 8, "engine_accepted_tokens": 6,
    "engine_accepted_by_position": [4, 2],
}  # fmt: skip


def telling(row: Row) -> dict[str, Any]:
    names = ("drafts", "drafted_tokens", "accepted_tokens", "acceptance_length", "acceptance_by_position",
             "tokens_per_step")  # fmt: skip
    return {name: row.get(name) for name in names}


def test_parity_has_what_was_counted_over_it_and_ar_has_nothing(run: VisitedRun) -> None:
    for technique, k in (("ar", None), ("mtp", 2), ("ngram", 4)):
        step = run.step("parity", technique, k)
        step.write(PARITY_OUTPUTS, [{"pass": 0, "prompt_id": "parity-00", "token_ids": [1, 2, 3]}])
        if technique == "mtp":
            step.write(ENGINE_COUNTED, [COUNTED])
        step.commit()
    results = run.built().results
    assert telling(only(results, technique="mtp", k=2, step="parity")) == {
        "drafts": 4, "drafted_tokens": 8, "accepted_tokens": 6, "acceptance_length": 2.5,
        "acceptance_by_position": pytest.approx([1, 0.5]), "tokens_per_step": 2,
    }  # fmt: skip
    for technique in ("ar", "ngram"):
        assert set(telling(only(results, technique=technique, step="parity")).values()) == {None}


def test_an_evaluation_has_it_on_the_row_that_counts_over_all_attempts(run: VisitedRun) -> None:
    step = run.step("eval-tiny", "mtp", 2)
    for attempt in (1, 2):
        step.attempt = attempt
        row = {"item_id": f"q{attempt}", "gold": "A", "last_letter": "A", "body": "(A)"}
        step.provenance(machine="node-1 card-1").write(EVAL_ITEMS, [row]).write(ENGINE_COUNTED, [COUNTED])
    step.commit()
    found = run.built().results
    counting, diagnostic = (only(found, extractor=f"{name}-letter") for name in ("last", "first"))
    assert (counting["drafts"], counting["acceptance_length"]) == (8, 2.5)
    assert diagnostic.get("drafts") is None


@pytest.mark.parametrize("versions", [(None, 2), (1, 2), (None, None), (2, 2)])
def test_a_speedup_is_of_one_client_for_both(run: VisitedRun, versions: tuple[int | None, int | None]) -> None:
    older, newer = versions
    run.visit("ar", None, 100.0, provenance={"client_version": older})
    run.visit("mtp", 2, 150.0, provenance={"client_version": newer})
    built = run.built()
    row = only(built.results, technique="mtp", k=2)
    assert (row["tok_s"], row.get("client_version")) == (pytest.approx(150, rel=0.01), newer)
    if older == newer:
        assert row["speedup"] == pytest.approx(1.5)
        return
    assert row.get("speedup") is None and not built.pairs
    [said] = [detail for detail in row["details"] if detail.startswith("client_differs: ")]
    assert "version 2" in said and ("without a version" in said) is (older is None)


def test_a_figure_of_two_clients_is_suspect(local: Store) -> None:
    run = VisitedRun(local, "mirrored")
    for visit, version in (("", 2), ("@2", 3)):
        run.visit("mtp", 2, 150.0, visit, provenance={"client_version": version})
    row = only(run.built().results, technique="mtp", k=2)
    assert (row["verdict"], row["reasons"]) == ("suspect", ["client_differs"])
