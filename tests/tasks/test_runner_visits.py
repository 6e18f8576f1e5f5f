"""The node runner in visits: which engine it starts for what, and what a killed one leaves to the next."""

from pathlib import Path

import pytest

from configs.steps.throughput import WARM_UP_LENGTHS
from configs.visits import split_name
from tasks.runner import todo
from tests.busy_machine import KEPT_WAITING
from tests.fake_run import FakeRun

SUITE = """
name: fake-suite
steps:
  - {step: smoke, items: 5}
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 64, output_tokens: 64, repeats: 3, stream_requests: 0}
  - {step: parity, prompts: prose, n_prompts: 3, context_tokens: 64, output_tokens: 32}
"""

SLOW = "0.01"
"""Seconds a token: a window of half a second keeps its pace beside a neighbour, and a cell with no usable speed would
be asked for no control."""


def served(run: FakeRun, name: str) -> set[bool]:
    """Whether the engines that measured it were told to speculate."""
    return {"--speculative-config" in row["argv"] for row in run.rows(name, "provenance")}


@pytest.mark.slow(10)
def test_a_cell_is_measured_between_two_visits_of_its_control(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE, visits="bracketed")
    output = run.measured(node_python, FAKE_ENGINE_TOKEN_S=SLOW)
    order = [line.split(":")[0] for line in output.splitlines() if ": committed" in line]
    assert order == ["throughput@control-1", "smoke", "throughput", "throughput@control-2", "parity"]
    assert output.count("healthy after") == 4, "a visit is a start"
    assert served(run, "throughput@control-1") == served(run, "throughput@control-2") == {False}
    assert served(run, "throughput") == served(run, "parity") == {True}
    for name in ("throughput@control-1", "throughput", "throughput@control-2"):
        assert {row["step"] for row in run.rows(name, "windows")} == {name}
        assert len(run.rows(name, "windows")) == 3
        assert set(run.commit(name).reasons) <= KEPT_WAITING


@pytest.mark.slow(5)
def test_an_ar_cell_is_its_own_control(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "ar", suite=SUITE, visits="bracketed")
    output = run.measured(node_python)
    assert output.count("healthy after") == 2
    assert [len(run.rows(name, "windows")) for name in ("throughput", "throughput@2")] == [3, 3]
    passes = [[row["pass"] for row in run.rows(name, "parity_outputs")] for name in ("parity", "parity@2")]
    assert passes == [[0] * 3, [1] * 3], "off again is another start, as on is"


@pytest.mark.slow(4)
def test_the_way_back_is_another_start_and_only_of_what_is_timed(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE, visits="mirrored")
    assert "throughput@2" not in run.measured(node_python, arguments=("--leg", "1"))
    output = run.measured(node_python, arguments=("--leg", "3"))
    assert [line.split(":")[0] for line in output.splitlines() if ": committed" in line] == ["throughput@2"]
    assert run.finish(node_python)[1].strip() == "everything is measured"


@pytest.mark.slow(7)
def test_a_control_that_was_measured_is_not_measured_again(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE, visits="bracketed")
    # the control asks 1 warm-up, some for their lengths and 3 requests; the third start dies before its first window
    code, output = run.finish(node_python, lie="dies_later", FAKE_ENGINE_AFTER=str(6 + WARM_UP_LENGTHS))
    assert code != 0, output
    first = run.commit("throughput@control-1")
    output = run.measured(node_python)
    assert run.commit("throughput@control-1") == first
    assert "throughput@control-1" not in output


@pytest.mark.slow(10)
def test_a_control_that_can_not_be_served_does_not_stop_its_cell(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE, visits="bracketed")
    code, output = run.finish(node_python, lie="no_ar", FAKE_ENGINE_TOKEN_S=SLOW)
    assert code == 1 and "the control failed, the cell goes on" in output, output
    [tried] = run.attempts()
    refused = "the engine died: ValueError: the fake engine refuses these arguments"
    assert tried.reason == f"the control, fake-model bf16 ar: {refused}"
    assert set(run.ledger.committed_steps()[run.key]) == {"smoke", "throughput", "parity"}
    run.measured(node_python, FAKE_ENGINE_TOKEN_S=SLOW)
    assert set(run.ledger.committed_steps()[run.key]) >= {"throughput@control-1", "throughput@control-2"}


def test_a_cell_without_a_usable_speed_needs_no_second_control(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE)
    planned = run.planned.model_copy(update={"visits": "bracketed", "control": run.planned.cell})
    spec = next(step for step in planned.steps if step.is_timed)
    judged = {"judged": 1, "judged_ok": 0}
    useless = run.ledger.new_commit(spec.step, 1, "somebody", "rejected", ["dead_draft"], 1.0, [], **judged)
    run.ledger.commit(run.key, useless)
    names = [each.name for start in todo(run.ledger, planned) for each in start.measurements]
    assert names == ["smoke", "parity"]


@pytest.mark.parametrize("lie", ["loop", "blank"])
def test_a_cell_that_smoke_rejects_costs_no_second_control(tmp_path: Path, node_python: Path, lie: str) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE, visits="bracketed")
    code, output = run.finish(node_python, lie=lie)
    assert code != 0 and "throughput@control-2" not in output
    committed = {split_name(name)[0] for name in run.ledger.committed_steps()[run.key]}
    assert committed == {"throughput", "smoke"}
