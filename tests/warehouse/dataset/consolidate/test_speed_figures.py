"""Figures of a speed row that once were wrong: rates, tokens per step, bandwidth of several cards, replayed drafts."""

from __future__ import annotations

import pytest

from configs.load import load_gpu, load_technique
from configs.steps.throughput import NATURAL, Condition
from tests.warehouse.synthetic import demo_plan
from tests.warehouse.visited import VisitedRun, only
from warehouse.ledger.store import Store

LONG = Condition(name="long", context_tokens=64, output_tokens=512)


def test_a_rate_is_all_tokens_over_all_seconds(local: Store) -> None:
    run = VisitedRun(local, "single")
    run.visit("ar", None, 1.0, rates=(100.0, 100.0, 100.0, 100.0, 50.0))
    row = only(run.built().results)
    assert row["tok_s"] == pytest.approx(500 / 6), "not the mean of ratios, 90"
    assert row["chars_s"] / row["tok_s"] == pytest.approx(4.0)


def test_several_in_flight_are_counted_while_all_of_them_are(local: Store) -> None:
    run = VisitedRun(local, "single")
    run.visit("ar", None, 50.0, steady_s=1.0, steady_tokens=88.0)
    assert only(run.built().results)["tok_s"] == pytest.approx(88.0)


def test_an_impossible_speedup_claims_nothing_in_its_pair_either(local: Store) -> None:
    run = VisitedRun(local)
    counts = {"engine_drafts": 87, "engine_accepted_tokens": 13, "engine_accepted_by_position": [13]}
    run.bracket("mtp", 1, 100.0, 400.0, 101.0, **counts)
    run.bracket("mtp", 2, 100.0, 110.0, 100.5, **counts)
    built = run.built()
    row, pair = only(built.results, k=1), only(built.pairs, kind="speed", k=1)
    assert (row["verdict"], row["reasons"]) == ("suspect", ["speedup_above_acceptance"])
    assert row["speedup"] is row["speedup_lo"] is row["speedup_hi"] is None and pair["ratio_lo"] > 1.13
    assert (pair["conclusion"], pair["verdict"], pair["reasons"]) == (
        "inconclusive",
        "suspect",
        ["speedup_above_acceptance"],
    )
    assert "no claim: the row is suspect (speedup_above_acceptance)" in pair["wording"]


def test_steps_without_a_draft_bound_the_speedup_too(local: Store) -> None:
    run = VisitedRun(local)
    counts = {"engine_drafts": 10, "engine_accepted_tokens": 25, "engine_accepted_by_position": [9, 7, 5, 4]}
    run.bracket("ngram", 4, 100.0, 350.0, 100.0, condition=LONG, **counts)
    row = only(run.built().results)
    assert row["acceptance_length"] == pytest.approx(3.5)
    assert row["tokens_per_step"] == pytest.approx(512 / (512 - 25))
    assert (row["verdict"], row["reasons"]) == ("suspect", ["speedup_above_acceptance"])


def test_tokens_per_step_do_not_exceed_the_acceptance_length_of_short_answers(local: Store) -> None:
    """What K = 7 accepted behind the ends of two answers is counted, too: 28 of 32 tokens, and 4 drafts."""
    run = VisitedRun(local, "single")
    counts = {"engine_drafts": 4, "engine_draft_tokens": 28, "engine_accepted_tokens": 28, "requests": 2}
    run.visit("mtp", 2, 100.0, rates=(100.0,), completion_tokens=32, engine_accepted_by_position=None, **counts)
    row = only(run.built().results, technique="mtp")
    assert row["acceptance_length"] == 8 and row["tokens_per_step"] == pytest.approx(32 / 6)


def test_the_first_step_of_generate_has_a_draft_and_is_no_further_one(local: Store) -> None:
    """64 tokens in 13 steps, the first of which drafted, too."""
    planned = next(each for each in demo_plan().cells if each.cell.technique.name == "mtp" and each.cell.k == 4)
    engine = planned.cell.engine.model_copy(update={"kind": "transformers"})
    cell = planned.cell.model_copy(update={"engine": engine, "technique": load_technique("draft_model")})
    run = VisitedRun(local, "single", cells=[planned.model_copy(update={"cell": cell})])
    counts = {"engine_drafts": 13, "engine_draft_tokens": 52, "engine_accepted_tokens": 51, "requests": 1}
    run.visit("draft_model", 4, 100.0, rates=(100.0,), completion_tokens=64, engine_accepted_by_position=None, **counts)
    assert only(run.built().results)["tokens_per_step"] == pytest.approx(64 / 13)


def test_two_cards_read_twice_as_much_and_the_cache_is_read_too(local: Store) -> None:
    gpu, planned = load_gpu("h100"), demo_plan().cells[0]
    model = planned.cell.model.model_copy(update={"active_params_b": 30.7})
    precision = planned.cell.precision.model_copy(update={"name": "fp8", "bytes_per_param": 1.0})
    engine = planned.cell.engine.model_copy(update={"args": ("--tensor-parallel-size=2",)})
    cell = planned.cell.model_copy(update={"model": model, "precision": precision, "engine": engine})
    assert cell.cards == 2
    run = VisitedRun(local, "single", cells=[planned.model_copy(update={"cell": cell, "gpu": gpu})])
    run.visit("ar", None, 160.0, rates=(1.0, 1.0), prompt_tokens=8000, requests=1)
    row = only(run.built().results)
    kv = 2 * 4 * 2 * 32 * 2 * (8000 + 50)  # keys and values x layers x heads x head size x bytes x tokens
    assert row["mbu"] == pytest.approx((30.7e9 + kv) * 160 / (2 * 3350e9)) and row["mbu"] < 1
    assert row["prompt_tokens"] == 8000
    one = VisitedRun(local, "single", "told", cells=[planned.model_copy(update={"cell": cell, "gpu": gpu})])
    one.visit("ar", None, 80.0, rates=(1.0, 1.0), provenance={"gpus": 1})
    assert only(one.built().results)["mbu"] == pytest.approx(30.7e9 * 80 / 3350e9, rel=1e-3), "as the node said"


def test_the_cache_of_answers_that_end_by_themselves_is_as_long_as_they_were_not_as_their_cap(local: Store) -> None:
    planned = demo_plan().cells[0]
    run = VisitedRun(local, "single", cells=[planned.model_copy(update={"gpu": load_gpu("h100")})])
    capped = Condition(name="capped", context_tokens=64, output_tokens=8192)
    run.visit("ar", None, 1.0, rates=(1.0,), condition=capped, mode=NATURAL, prompt_tokens=256, requests=4,
              completion_tokens=1200, wall_s=2.0)  # fmt: skip
    cell = planned.cell
    weights = cell.model.active_params_b * 1e9 * cell.precision.bytes_per_param
    cache = (64 + 300 / 2) * cell.kv_bytes_per_token
    row = only(run.built().results, mode=NATURAL)
    assert row["mbu"] == pytest.approx((weights + cache) * 1200 / 2.0 / 3350e9)


def test_the_weights_are_read_once_for_as_many_as_the_engine_has_slots_for_not_for_all_that_wait(local: Store) -> None:
    planned = demo_plan().cells[0]
    crowd = Condition(name="crowd", context_tokens=64, output_tokens=100, concurrency=16)
    used = []
    for slots in (4, 16):
        serving = planned.cell.serving.model_copy(update={"max_num_seqs": slots})
        cell = planned.cell.model_copy(update={"serving": serving})
        run = VisitedRun(
            local, "single", str(slots), cells=[planned.model_copy(update={"cell": cell, "gpu": load_gpu("h100")})]
        )
        run.visit("ar", None, 1000.0, rates=(1.0,), condition=crowd)
        [row] = [each for each in run.built().results if each["run_id"] == str(slots)]
        used.append((row["mbu"], planned.cell.model.active_params_b * 1e9 * planned.cell.precision.bytes_per_param))
    (four, weights), (sixteen, _) = used
    assert four - sixteen == pytest.approx(weights * 1000 * (1 / 4 - 1 / 16) / 3350e9)


def test_replayed_acceptance_is_labelled(local: Store) -> None:
    planned = demo_plan().cells[1]
    told = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 3.2}
    technique = planned.cell.technique.model_copy(update={"speculative_config": told})
    cell = planned.cell.model_copy(update={"technique": technique})
    run = VisitedRun(local, "single", cells=[planned.model_copy(update={"cell": cell})])
    run.visit("mtp", 1, 100.0)
    assert only(run.built().results)["acceptance_source"] == "replayed:synthetic_acceptance_length=3.2"
