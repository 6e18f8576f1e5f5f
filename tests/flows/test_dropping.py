"""Between the two ways of a mirrored run: a K that is out is not visited again, for whoever goes on with the run."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import pytest

from configs.errors import SpecsweepError
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Plan
from configs.steps.depth import DepthStep
from configs.steps.throughput import ThroughputStep
from configs.visits import BACK
from flows.dropping import drop_what_is_out
from flows.forecast.forecast import forecast
from flows.terminal.forecast_table import summary
from flows.terminal.progress import ProgressReader
from tasks.runner import todo
from tests.fake_run import write_user_configs
from tests.flows.conftest import Finish
from tests.warehouse.synthetic import StepWriter, engine_counts, window
from warehouse.dataset.build import consolidate
from warehouse.dataset.statistics.speculation import expected_tokens
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import StoreAway, open_store
from warehouse.ledger.timed_tables import WINDOWS

SUITE = """
name: one-speed
steps:
  - step: throughput
    prompts: listing
    conditions:
      - {name: short c=1, context_tokens: 192, output_tokens: 256, repeats: 3}
"""

FAKE_SUITE = SUITE.replace("one-speed", "fake-suite").replace("listing", "prose").replace("repeats: 3", "repeats: 2")

SWEEP = """
name: dropping
engine: vllm-cpu
gpu: cpu
suite: one-speed
spot: false
visits: mirrored
drop: after_first_visit
serving: {max_model_len: 2048}
cells:
  - {model: tiny-gemma4, precision: bf16, technique: ar}
  - {model: tiny-gemma4, precision: bf16, technique: mtp, k: 1, draft: &mtp {family_member: mtp}}
  - {model: tiny-gemma4, precision: bf16, technique: mtp, k: 2, draft: *mtp}
  - {model: tiny-gemma4, precision: bf16, technique: mtp, k: 4, draft: *mtp}
"""

FORWARDS = {None: 100.0, 1: 145.0, 2: 150.0, 4: 105.0}

SHARES = {1: (0.8,), 2: (0.8, 0.6), 4: (0.8, 0.6, 0.4, 0.2)}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return planned(tmp_path, SWEEP)


def planned(folder: Path, sweep: str) -> Plan:
    (folder / "suites").mkdir(exist_ok=True)
    (folder / "suites" / "one-speed.yaml").write_text(SUITE)
    (folder / "mine.yaml").write_text(sweep)
    return expand(load_sweep(str(folder / "mine.yaml")))


@pytest.fixture
def ledger(tmp_path: Path, plan: Plan) -> Ledger:
    """The run as it is when all cells were visited once."""
    return visited_once(tmp_path / "store", plan)


def visited_once(store: Path, plan: Plan) -> Ledger:
    ledger = Ledger(open_store(str(store)), "r1")
    ledger.write_plan(plan)
    for each in plan.cells:
        visit(ledger, plan, each.cell.k, FORWARDS[each.cell.k])
    return ledger


def key(plan: Plan, k: int | None) -> str:
    return next(each.cell.cell_key for each in plan.cells if each.cell.k == k)


def visit(ledger: Ledger, plan: Plan, k: int | None, tok_s: float, name: str = "throughput") -> None:
    [spec] = [step for step in plan.cells[0].steps if isinstance(step, ThroughputStep)]
    [condition] = spec.conditions
    step = StepWriter(ledger, key(plan, k), name)
    step.provenance(machine="node-1")
    counts = engine_counts(SHARES.get(k or 0, ()), round(256 / expected_tokens(SHARES.get(k or 0, ()))))
    step.write(WINDOWS, [window(condition, at, tok_s * rate, **counts) for at, rate in enumerate((0.99, 1.0, 1.01))])
    step.judge((condition.name, "fixed", "ok", [], []))
    step.commit()


def drop(ledger: Ledger, plan: Plan, tell: Callable[[str], None]) -> None:
    drop_what_is_out(ledger, plan, tell, lambda: pytest.fail("the store is there"))


def left(ledger: Ledger, plan: Plan) -> list[int | None]:
    return [each.cell.k for each in plan.cells if todo(ledger, each, BACK)]


def test_a_k_that_is_out_is_done_with_says_why_and_keeps_what_it_measured(ledger: Ledger, plan: Plan) -> None:
    said: list[str] = []
    assert left(ledger, plan) == [None, 1, 2, 4]
    drop(ledger, plan, said.append)
    assert left(ledger, plan) == [None, 1, 2], "K=1 is within reach of K=2"
    why = "not visited again (drop: after_first_visit): K=4 is out: short c=1 0.70 x K=2"
    assert said == [f"tiny-gemma4 bf16 mtp K=4: {why}"]
    commit = ledger.read_commit(key(plan, 4), "throughput@2")
    assert commit is not None and commit.reasons == ("dropped",)
    row = next(row for row in consolidate(ledger.store, ["r1"]).results if row["k"] == 4)
    assert (row["tok_s"], row["visits"], row["verdict"]) == (pytest.approx(105.0, rel=1e-3), 1, "ok")


def test_the_run_ends_with_what_is_left_and_a_recommendation(ledger: Ledger, plan: Plan) -> None:
    drop(ledger, plan, lambda _: None)
    for k, tok_s in ((2, 150.5), (1, 144.0), (None, 100.4)):
        visit(ledger, plan, k, tok_s, "throughput@2")
    progress = ProgressReader(ledger, plan).read()
    assert progress.complete and (progress.measured, progress.total) == (7, 7)
    assert [cell.steps["throughput@2"] for cell in progress.cells] == ["ok", "ok", "ok", "dropped"]
    [recommended] = consolidate(ledger.store, ["r1"]).recommendations
    assert (recommended["fastest_k"], recommended["refusal"], recommended["k"] in (1, 2)) == (2, None, True)
    assert recommended["k_candidates"] == [0, 1, 2, 4] and recommended["excluded"] == ["K=4: out after its first visit"]
    assert recommended["points"] == 4, "what its first visit measured is part of the line"


def test_deciding_twice_changes_nothing_and_a_way_back_that_has_begun_is_finished(ledger: Ledger, plan: Plan) -> None:
    visit(ledger, plan, 4, 105.0, "throughput@2")
    for _ in range(2):
        drop(ledger, plan, pytest.fail)
    commit = ledger.read_commit(key(plan, 4), "throughput@2")
    assert commit is not None and commit.reasons == ()


def test_a_drop_that_was_cut_off_is_finished_by_what_was_said_then(tmp_path: Path, ledger: Ledger, plan: Plan) -> None:
    """A flow that is killed between two commits of one cell's way back."""
    cell = next(each for each in plan.cells if each.cell.k == 4)
    depth = DepthStep.model_validate({"step": "depth", "prompts": "listing", "pp_tokens": 64, "tg_tokens": 64})
    both = plan.model_copy(update={"cells": (cell.model_copy(update={"steps": (*cell.steps, depth)}),)})
    drop(ledger, plan, lambda _: None)
    said: list[str] = []
    for _ in range(2):
        drop(ledger, both, said.append)
    assert [sentence.partition("K=4 is out")[1] for sentence in said] == ["K=4 is out"], "once"
    assert left(ledger, both) == []
    commit = ledger.read_commit(key(plan, 4), "depth@2")
    assert commit is not None and commit.reasons == ("dropped",)


def test_a_store_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch, ledger: Ledger, plan: Plan) -> None:
    commit = Mock(wraps=ledger.commit, side_effect=chain([StoreAway("nobody answers")], repeat(DEFAULT)))
    monkeypatch.setattr(ledger, "commit", commit)
    pause = Mock()
    drop_what_is_out(ledger, plan, lambda _: None, pause)
    assert pause.call_count == 1 and left(ledger, plan) == [None, 1, 2]


def test_without_the_field_nothing_is_dropped_and_its_plan_is_the_one_of_before(tmp_path: Path, plan: Plan) -> None:
    never = planned(tmp_path, SWEEP.replace("drop: after_first_visit\n", ""))
    assert never.config_hash != plan.config_hash
    assert "drop" not in never.model_dump(mode="json")["cells"][1] and {each.drop for each in never.cells} == {"never"}
    assert plan.model_dump(mode="json")["cells"][1]["drop"] == "after_first_visit"
    assert plan.cells[0].drop == "never", "AR is what all others are held against"
    ledger = visited_once(tmp_path / "other", never)
    drop(ledger, never, pytest.fail)
    assert left(ledger, never) == [None, 1, 2, 4]


def test_the_plan_says_beforehand_that_visits_may_be_left_out(plan: Plan) -> None:
    said = " ".join(summary(forecast(plan, {})).split())
    assert "8 engine starts" in said and "Of the 3 cells with a K" in said and "drop: after_first_visit" in said


def test_a_design_without_a_way_back_has_nothing_to_drop(tmp_path: Path) -> None:
    with pytest.raises(SpecsweepError, match=r"drop: .*after_first_visit leaves out the way back, and visits: single"):
        planned(tmp_path, SWEEP.replace("visits: mirrored\n", ""))


@pytest.mark.slow(16)
def test_a_run_that_is_continued_on_its_way_back_leaves_out_what_is_out(tmp_path: Path, finish_sweep: Finish) -> None:
    sweep = write_user_configs(tmp_path, "ar mtp mtp2", FAKE_SUITE, "mirrored", more="drop: after_first_visit\n")
    fake = expand(load_sweep(str(sweep)))
    ledger = visited_once(tmp_path / "store", fake)
    said = finish_sweep("run", sweep, "--run-id", "r1")
    assert "mtp K=4 / throughput@2: dropped" in said and "which K" in said, said
    back = {k: ledger.read_commit(key(fake, k), "throughput@2") for k in (None, 2, 4)}
    measured = {k: commit is not None and commit.wall_s > 0 for k, commit in back.items()}
    assert measured == {None: True, 2: True, 4: False}
    said = finish_sweep("status")
    assert "5 of 5 steps" in said and "dropped" in said, said
