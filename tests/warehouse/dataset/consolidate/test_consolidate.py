"""Consolidated rows against figures worked out by hand."""

from collections.abc import Callable
from math import log
from statistics import stdev
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.load import load_gpu
from configs.steps.throughput import Condition
from tests.warehouse.runs import SHORT
from tests.warehouse.synthetic import (
    DemoRun,
    StepWriter,
    celled,
    close_attempt,
    demo_plan,
    engine_counts,
    item,
    only,
    streamed,
    window,
)
from warehouse.dataset import build
from warehouse.dataset.build import consolidate
from warehouse.dataset.consolidate.inputs import batches, comparison_groups, take_inventory
from warehouse.dataset.snapshot import product_files, product_rows, publish, read_current
from warehouse.dataset.tables import RESULTS_CONSOLIDATED
from warehouse.ledger.steps import EVAL_ITEMS
from warehouse.ledger.store import Store, StoreError
from warehouse.ledger.tables import arrow_schema, encode, sha256_hex
from warehouse.ledger.timed_tables import REQUESTS, WINDOWS

WIDE = Condition(name="short c=4", context_tokens=64, output_tokens=100, concurrency=4, requests=16)
OK = (SHORT.name, "fixed", "ok", [], [])


class Run(DemoRun):
    def speed(
        self, technique: str, k: int | None, rates: list[float], verdict: Any = None,
        condition: Condition = SHORT, **engine: Any,
    ) -> None:  # fmt: skip
        step = self.step("throughput", technique, k).provenance(price_usd_h=7.2)
        step.write(WINDOWS, [window(condition, repeat, rate, **engine) for repeat, rate in enumerate(rates)])
        verdict = verdict or (condition.name, *OK[1:])
        step.judge(verdict).commit(verdict[2], verdict[3], wall_s=10.0)


@pytest.fixture
def run(local: Store) -> Run:
    return Run(local)


def test_a_speed_row_by_hand(run: Run) -> None:
    run.speed("mtp", 2, [90.0, 100.0, 110.0], **engine_counts((0.8, 0.5), 40))
    close_attempt(run.ledger, run.key("mtp", 2))
    row = only(run.built().results)
    wall_s = 100 / 90 + 100 / 100 + 100 / 110
    assert (row["tok_s"], row["repeats"], row["visits"]) == (pytest.approx(300 / wall_s), 3, 1)
    assert row["cv"] == pytest.approx(stdev([90, 100, 110]) / 100)
    assert row["repeat_sd"] == pytest.approx(stdev([log(90), log(100), log(110)]))
    assert row["tok_s_lo"] < 90 and 110 < row["tok_s_hi"], "Student's t over three repeats, not the bootstrap's range"
    assert (row["interval_scope"], row.get("start_sd")) == ("within one start", None)
    assert row["tokens_per_step"] == pytest.approx(100 / (100 - 52))
    assert row["chars_s"] == pytest.approx(3 * 400 / wall_s)
    assert row["acceptance_length"] == pytest.approx(2.3)
    assert row["acceptance_by_position"] == pytest.approx([0.8, 0.5])
    assert (row["context_tokens"], row["output_tokens"], row["concurrency"], row["mode"]) == (64, 100, 1, "fixed")
    assert (row["gpu_s"], row["cost_usd"], row["attempts"]) == (10.0, pytest.approx(0.02), 1)
    assert row["usd_per_mtok"] == pytest.approx(7.2 / 3600 * wall_s / 300 * 1e6)
    assert (row["model"], row["precision"], row["technique"], row["k"]) == ("tiny-gemma4", "bf16", "mtp", 2)
    assert (row["acceptance_source"], row["weights"], row["argv"][:10]) == ("measured", "real", "vllm serve")


def test_a_cpu_has_no_bandwidth_to_use_and_a_gpu_has(local: Store) -> None:
    run = Run(local, "cpu")
    run.speed("ar", None, [100.0, 100.0])
    assert only(run.built().results).get("mbu") is None
    gpu = load_gpu("h100")
    cells = tuple(planned.model_copy(update={"gpu": gpu}) for planned in demo_plan().cells)
    fast = Run(local, "gpu", gpu=gpu, cells=cells)
    fast.speed("mtp", 2, [1000.0, 1000.0], condition=WIDE, **engine_counts((0.4,), 500))
    cell, tokens = cells[0].cell, WIDE.output_tokens * WIDE.requests
    steps_per_s = (tokens - 200) / 4 / (tokens / 1000)  # 200 tokens were accepted drafts; four sequences at a time
    weights = cell.model.active_params_b * 1e9 * cell.precision.bytes_per_param
    cache = 4 * (64 + 50) * 2 * 4 * 2 * 32 * 2  # sequences x tokens at half their output x bytes of a token
    expected = (weights + cache) * steps_per_s / (3350 * 1e9)
    assert only(fast.built().results)["mbu"] == pytest.approx(expected)


def test_one_repeat_has_no_interval_and_answers_without_text_no_characters_per_second(run: Run) -> None:
    run.speed("ar", None, [100.0])
    run.speed("ngram", 4, [100.0, 100.0], chars=0)
    once, silent = (only(run.built().results, technique=name) for name in ("ar", "ngram"))
    assert (once["tok_s"], once.get("tok_s_lo"), once.get("cv"), once["repeats"]) == (pytest.approx(100), None, None, 1)
    assert silent["chars_s"] is None, "0 would be a speed"


def test_a_speedup_is_a_pair_of_ok_rows(run: Run) -> None:
    run.speed("ar", None, [98.0, 100.0, 102.0])
    run.speed("mtp", 2, [176.0, 180.0, 184.0], **engine_counts((0.8, 0.5), 40))
    built = run.built()
    row = only(built.results, technique="mtp")
    assert row["speedup"] == pytest.approx(1.8, rel=1e-3)
    assert (row["speedup_lo"], row["speedup_hi"], row["interval_scope"]) == (None, None, "within one start")
    assert only(built.results, technique="ar").get("speedup") is None
    pair = only(built.pairs)
    assert (pair["kind"], pair["baseline_cell_key"], pair["conclusion"]) == ("speed", run.key("ar"), "inconclusive")
    assert pair["wording"] == "1.80 x within one start: no claim about another one"
    assert pair["baseline_value"] == pytest.approx(100.0, rel=1e-3) and pair["value"] == row["tok_s"]
    assert (pair["n"], pair["visits"], pair["baseline_visits"], pair["verdict"]) == (3, 1, 1, "ok")


def test_without_a_trusted_ar_row_there_is_no_speedup(local: Store) -> None:
    alone, flagged = Run(local, "alone"), Run(local, "flagged")
    for run in (alone, flagged):
        run.speed("mtp", 2, [150.0, 150.0], **engine_counts((0.8, 0.5), 100))
    row = only(alone.built().results)
    assert (row.get("speedup"), row["verdict"], row["reasons"]) == (None, "ok", [])
    assert "no_baseline" in row["details"][0]
    flagged.speed("ar", None, [100.0, 100.0], (SHORT.name, "fixed", "rejected", ["prefix_cache_hit"], ["12 hits"]))
    built = flagged.built()
    assert only(built.results, technique="mtp").get("speedup") is None
    assert "not ok" in only(built.results, technique="mtp")["details"][0]
    assert built.pairs == []
    assert only(built.results, technique="ar")["details"] == ["12 hits"]


def test_a_speedup_above_its_tokens_per_step_is_suspect(run: Run) -> None:
    run.speed("ar", None, [100.0, 100.0])
    run.speed("mtp", 1, [210.0, 210.0], **engine_counts((0.9,), 50))
    run.speed("mtp", 2, [170.0, 170.0], **engine_counts((0.9, 0.0), 50))
    found = run.built().results
    lie = only(found, k=1)
    assert (lie["verdict"], lie["reasons"]) == ("suspect", ["speedup_above_acceptance"])
    assert lie.get("speedup") is None, "the pair keeps it"
    assert "2.10" in lie["details"][0] and "1.82" in lie["details"][0]
    assert only(found, k=2)["verdict"] == "ok"


def test_other_runs_and_precisions_are_no_baseline(local: Store) -> None:
    other = Run(local, "other")
    other.speed("ar", None, [100.0, 100.0])
    run = Run(local, "run")
    run.step("throughput", "ar", eight_bit=True).write(WINDOWS, [window(SHORT, 0, 50.0)]).commit()
    run.speed("mtp", 2, [150.0, 150.0], **engine_counts((0.8, 0.5), 100))
    found = consolidate(local, ["other", "run"]).results
    assert only(found, technique="mtp").get("speedup") is None


def test_streams_give_medians_and_no_rate(run: Run) -> None:
    step = run.step("throughput", "ar").write(WINDOWS, [window(SHORT, 0, 100.0), window(SHORT, 0, 90.0, mode="stream")])
    rows = [streamed(SHORT, index, ttft, tpot) for index, (ttft, tpot) in enumerate([(10, 2), (30, 4), (11, 3)])]
    step.write(REQUESTS, [row | {"first_chunk_tokens": tokens} for row, tokens in zip(rows, (4, 4, None), strict=True)])
    step.judge(OK, (SHORT.name, "stream", "rejected", ["stream_burst"], ["in one burst"]))
    step.commit("rejected", ["stream_burst"])
    found = run.built().results
    stream = only(found, mode="stream")
    assert (stream["ttft_ms"], stream["tpot_ms"], stream.get("tok_s"), stream["verdict"]) == (11, 3, None, "rejected")
    assert stream["first_chunk_tokens"] == 4, "beside the TTFT that it makes late"
    assert only(found, mode="fixed")["verdict"] == "ok"
    assert only(found, mode="fixed").get("ttft_ms") is None


def test_parity_is_compared_with_ar_and_ar_with_itself(run: Run) -> None:
    run.outputs("ar", None, {"p-0": [1, 2, 3], "p-1": [4, 5, 6]}, {"p-0": [1, 2, 3], "p-1": [4, 9, 6]})
    run.outputs("mtp", 2, {"p-0": [1, 2, 3, 4], "p-1": [4, 5, 6]})
    run.outputs("ngram", 4, {"p-0": [1, 2, 3], "p-1": [4, 5, 6], "p-2": [7]})
    found = run.built().results
    agreement = {row["technique"]: (row["parity_equal"], row["parity_n"], row["first_divergence"]) for row in found}
    assert agreement == {"ar": (1, 2, 1), "mtp": (1, 2, 3), "ngram": (2, 2, None)}


def test_parting_where_the_model_was_sure_is_suspect_and_at_a_near_tie_is_not(run: Run) -> None:
    outputs = {"p-0": [1, 2, 3], "p-1": [4, 5, 6]}
    run.outputs("ar", None, outputs, outputs | {"p-1": [4, 5, 7]}, gap=0.06)
    run.outputs("mtp", 2, outputs | {"p-0": [1, 9, 9]}, gap=3.1)
    run.outputs("ngram", 4, outputs, gap=3.1)
    found = {row["technique"]: row for row in run.built().results}
    ties = {name: (row["parity_near_ties"], row["divergence_margin"]) for name, row in found.items()}
    assert ties == {"ar": (1, 0.06), "mtp": (0, 3.1), "ngram": (None, None)}
    assert found["mtp"]["reasons"] == ["parity_not_a_tie", "parity_failed"]
    assert found["ar"]["reasons"] == found["ngram"]["reasons"] == []
    assert found["mtp"]["verdict"] == "suspect"
    assert "1 of 1 outputs parted where the model was sure: up to 3.1 nats" in found["mtp"]["details"][0]


def test_parity_without_ar_or_without_greedy_says_so(run: Run) -> None:
    run.outputs("mtp", 2, {"p-0": [1]})
    greedy = run.step("parity", "ngram", 4).judge((None, None, "suspect", ["no_greedy"], ["it samples"]))
    greedy.commit("suspect", ["no_greedy"])
    found = run.built().results
    alone = only(found, technique="mtp")
    assert (alone.get("parity_n"), alone["verdict"], alone["reasons"]) == (None, "suspect", ["no_baseline"])
    assert only(found, technique="ngram")["reasons"] == ["no_greedy"]


def test_scores_by_both_extractors(run: Run) -> None:
    step = run.step("eval-tiny", "ar")
    step.write(EVAL_ITEMS, [
        item(0, right=True), item(1, right=True), item(2, right=True, first_right=True),
        item(3, right=False) | {"finish_reason": "length"}, item(4, right=False, body="  ") | {"last_letter": None},
    ])  # fmt: skip
    step.commit()
    found = run.built().results
    last = only(found, extractor="last-letter")
    assert (last["score"], last["n"], last["truncated"], last["blank"]) == (0.6, 5, 1, 1)
    assert last["score_stderr"] == pytest.approx((0.6 * 0.4 / 5) ** 0.5)
    assert (last["metric"], last["verdict"]) == ("accuracy", "ok")
    first = only(found, extractor="first-letter")
    assert (first["score"], first["verdict"], first["reasons"]) == (0.4, "suspect", ["extractors_disagree"])


def test_smoke_is_one_row_and_a_judged_condition_without_windows_is_one_too(run: Run) -> None:
    step = run.step("smoke", "ar").write(EVAL_ITEMS, [item(index, right=index < 4) for index in range(5)])
    step.judge((None, None, "rejected", ["blank_output"], ["1 of 5 answers are blank"]))
    step.commit("rejected", ["blank_output"])
    step = run.step("throughput", "ar").judge((SHORT.name, "fixed", "rejected", ["short_output"], ["nothing came"]))
    step.write(WINDOWS, []).commit("rejected", ["short_output"])
    found = run.built().results
    row = only(found, step="smoke")
    assert (row["metric"], row["score"], row["n"], row["verdict"]) == ("smoke", 0.8, 5, "rejected")
    assert row.get("condition") is None
    row = only(found, step="throughput")
    assert (row.get("tok_s"), row["verdict"], row["details"]) == (None, "rejected", ["nothing came"])


def test_what_no_commit_names_does_not_exist(run: Run) -> None:
    run.step("eval-tiny", "ar").write(EVAL_ITEMS, [item(9, right=True)])
    assert run.built().results == []
    run.step("eval-tiny", "ar").write(EVAL_ITEMS, [item(0, right=True)]).commit()
    assert only(run.built().results, extractor="last-letter")["n"] == 1


def test_a_changed_or_lost_part_names_its_key(local: Store, run: Run) -> None:
    run.speed("ar", None, [100.0])
    [key] = [key for key in local.list("runs") if "windows" in key]
    for damage in (lambda: local.put(key, encode(WINDOWS, [])), lambda: local.delete(key)):
        damage()
        with pytest.raises(StoreError, match=key):
            run.built()


def test_an_older_part_without_a_column_reads_as_null_and_a_newer_ones_is_an_error_not_a_loss(run: Run) -> None:
    step = run.step("throughput", "ar").write(WINDOWS, [window(SHORT, 0, 100.0)])
    rewrite(step, lambda table: table.drop(["chars", "engine_drafts"]))
    step.write(WINDOWS, [window(SHORT, 1, 100.0)]).commit()
    row = only(run.built().results)
    assert (row["repeats"], row["chars_s"], row["tok_s"]) == (2, None, pytest.approx(100.0))
    step = run.step("throughput", "mtp", 2).write(WINDOWS, [window(SHORT, 0, 100.0)])
    rewrite(step, lambda table: table.append_column("joules", pa.array([1.0])))
    step.commit()
    with pytest.raises(StoreError, match="joules"):
        run.built()


def rewrite(step: StepWriter, change: Callable[[pa.Table], pa.Table]) -> None:
    """The part that was written is of another version of its table."""
    [part] = step.parts
    sink = pa.BufferOutputStream()
    pq.write_table(change(pq.read_table(pa.BufferReader(step.ledger.store.get(part.key)))), sink)
    data = sink.getvalue().to_pybytes()
    step.ledger.store.put(part.key, data)
    step.parts = [part.model_copy(update={"sha256": sha256_hex(data)})]


def test_attempts_are_rows_for_ever(run: Run) -> None:
    key = run.key("mtp", 4)
    close_attempt(run.ledger, key, 1, "lost", "preempted", "log")
    close_attempt(run.ledger, key, 2, "failed", "out of memory")
    built = run.built()
    assert {(row["technique"], row["k"]) for row in built.attempts} == {("mtp", 4)}
    assert [(row["attempt"], row["outcome"], row["reason"]) for row in built.attempts] == [
        (1, "lost", "preempted"), (2, "failed", "out of memory"),
    ]  # fmt: skip
    assert built.results == []


def test_small_batches_give_the_same_rows(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for run_id in ("one", "two"):
        run = Run(local, run_id)
        run.speed("ar", None, [98.0, 102.0])
        run.speed("mtp", 2, [150.0, 160.0], **engine_counts((0.8, 0.5), 100))
    whole = consolidate(local, ["one", "two"])
    monkeypatch.setattr(build, "BATCH_ROWS", 1)
    assert consolidate(local, ["one", "two"]) == whole
    groups = comparison_groups(take_inventory(local, ["one", "two"]).steps)
    assert [len(batch) for batch in batches(groups, max_rows=1, max_parts=1)] == [1, 1]
    assert [len(batch) for batch in batches(groups, max_rows=10_000, max_parts=10_000)] == [2]


def test_two_builds_of_the_same_commits_are_the_same_bytes(run: Run) -> None:
    run.speed("ar", None, [98.0, 102.0])
    run.speed("mtp", 2, [150.0, 160.0], **engine_counts((0.8, 0.5), 100))
    first, second = (product_files(product_rows(run.built())) for _ in range(2))
    assert first == second


def test_every_raw_and_product_column_has_a_polars_type(local: Store) -> None:
    Run(local)
    publish(local)
    frame = read_current(local)
    assert frame.is_empty() and frame.schema["acceptance_by_position"] == pl.List(pl.Float64)
    assert frame.columns == arrow_schema(RESULTS_CONSOLIDATED).names


def test_diffusion_has_no_acceptance(local: Store) -> None:
    planned = demo_plan().cells[0]
    technique = planned.cell.technique.model_copy(update={"name": "diffusion", "method": "diffusion"})
    run = Run(local, cells=(celled(planned, technique=technique),))
    run.speed("diffusion", None, [100.0], engine_denoising_steps=20, engine_committed_tokens=128)
    row = only(run.built().results)
    assert (row.get("acceptance_length"), row["acceptance_source"], row["verdict"]) == (None, None, "ok")
