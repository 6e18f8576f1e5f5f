"""The node runner, whole and in visits: real store, real process handling, a fake engine that lies in a chosen way."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.visits import split_name
from tasks.engine.server import ENGINE_RECORD
from tasks.runner import todo
from tests.busy_machine import KEPT_WAITING, PATIENCE_S
from tests.fake_run import FakeRun

STEPS = ("smoke", "throughput", "parity", "eval-tiny")


def wait_until(
    true: Callable[[], object],
    what: str,
    timeout_s: float = PATIENCE_S,
    every_s: float = 0.02,
    by: subprocess.Popen[str] | None = None,
) -> None:
    """Wait for what the process `by` should bring about; if it ends first or is too late, its words are the error."""
    deadline = time.monotonic() + timeout_s
    while not true():
        ended, late = by is not None and by.poll() is not None, time.monotonic() > deadline
        if late or (ended and not true()):
            said = ""
            if by is not None:
                by.kill()
                said = f": {by.communicate()[0]}(exit code {by.returncode})"
            pytest.fail(f"{'no' if ended else f'waited {timeout_s} s for'} {what}{said}")
        time.sleep(every_s)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=PATIENCE_S)


def processes_with(text: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and text.encode() in (folder / "environ").read_bytes():
                if "Z" not in (folder / "stat").read_text().rpartition(")")[2].split()[0]:
                    found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.core
@pytest.mark.slow(26)
def test_a_cell_is_measured_step_by_step_and_left_clean(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "mtp")
    # slow tokens: beside a busy neighbour, half a second without a core must not look like a stream in lumps
    said = run.measured(node_python, FAKE_ENGINE_MOST=str(tmp_path / "most"), FAKE_ENGINE_TOKEN_S="0.015")
    assert (tmp_path / "most").read_text() == "4", "eval-tiny asks 4 at a time: a client that queues measures itself"
    assert {step for step in STEPS if run.commit(step).verdict != "ok"} <= {"throughput"}, said
    assert set(run.commit("throughput").reasons) <= KEPT_WAITING, run.rows("throughput", "verdicts")
    windows = run.rows("throughput", "windows")
    assert [(row["mode"], row["condition"]) for row in windows].count(("fixed", "short c=1")) == 3
    assert all(row["completion_tokens"] == row["engine_generation_tokens"] for row in windows)
    outputs = run.rows("parity", "parity_outputs")
    assert [len(row["top2_gap"]) for row in outputs] == [len(row["token_ids"]) for row in outputs] == [32] * 3
    [parity], [answers] = (run.rows(step, "engine_counted") for step in ("parity", "eval-tiny"))
    assert (parity["engine_drafts"], parity["engine_accepted_tokens"]) == (48, 48), "a token of each draft of 96 tokens"
    assert answers["engine_generation_tokens"] == 24 * 12 and answers["engine_accepted_tokens"] > 0
    assert run.rows("throughput", "provenance")[0]["engine_version"] == "fake"
    seeds = [run.rows(step, "provenance")[-1]["seed"] for step in STEPS]
    assert seeds == [None, None, None, 7], "only an evaluation's items are drawn with one"
    assert [(attempt.attempt, attempt.outcome) for attempt in run.attempts()] == [(1, "completed")]
    assert processes_with(str(tmp_path)) == []
    sent = len(run.prompts_sent())
    assert run.finish(node_python) == (0, "everything is measured\n"), "what is measured is not measured again"
    assert len(run.prompts_sent()) == sent


@pytest.mark.slow(22)
def test_several_in_flight_are_timed_while_all_slots_are_busy(run: FakeRun, node_python: Path) -> None:
    run.measured(node_python, FAKE_ENGINE_TOKEN_S="0.006", FAKE_ENGINE_SLOTS="1 2")
    windows = [row for row in run.rows("throughput", "windows") if (row["mode"], row["concurrency"]) == ("fixed", 2)]
    assert windows
    tokens, wall_s, steady_tokens, steady_s = (
        sum(row[name] for row in windows) for name in ("completion_tokens", "wall_s", "steady_tokens", "steady_s")
    )
    assert tokens / wall_s < steady_tokens / steady_s, "one slot is idle while the slow one ends"
    for row in windows:
        assert row["steady_s"] < row["wall_s"]
        assert row["client_late_ms"] is not None


@pytest.mark.slow(6)
@pytest.mark.parametrize(
    ("lie", "technique", "step", "reason"),
    [
        ("bursts", "ar", "throughput", "stream_mismatch"),
        ("dead_draft", "mtp", "smoke", "dead_draft"),
        ("short", "ar", "smoke", "short_output"),
        ("blank", "ar", "smoke", "blank_output"),
        ("loop", "ar", "smoke", "looping_text"),
        ("miscount", "ar", "smoke", "token_mismatch"),
        ("at_chance", "ar", "smoke", "at_chance"),
        ("drafts_secretly", "ar", "smoke", "baseline_drafts"),
        ("noise", "ar", "smoke", "gibberish"),
        ("drafts_apart", "mtp", "smoke", "acceptance_mismatch"),
    ],
)
def test_a_lying_engine_is_rejected_with_its_reason(
    tmp_path: Path, node_python: Path, lie: str, technique: str, step: str, reason: str
) -> None:
    run = FakeRun(tmp_path, technique)
    code, said = run.finish(node_python, lie)
    commit = run.commit(step)
    if lie == "bursts" and commit.verdict == "suspect" and reason not in commit.reasons:
        return  # on a busy machine sound streams come in bursts, too: a client that waited accuses nobody
    assert commit.verdict == "rejected", said
    assert reason in commit.reasons
    caught = [row for row in run.rows(step, "verdicts") if reason in row["reasons"]]
    assert caught[0]["verdict"] == "rejected"
    assert caught[0]["details"], "a rejected row says why in a sentence"
    if step == "smoke":
        assert code == 3
        assert run.ledger.read_commit(run.key, "throughput") is None, "an insane cell must not cost hours"
        assert run.finish(node_python, lie)[0] == 3, "and is not tried again"


@pytest.mark.slow(11)
def test_a_request_has_the_engine_s_own_account_beside_the_client_s(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "mtp")
    run.measured(node_python)
    rows = [row for row in run.rows("throughput", "requests") if row["mode"] == "fixed"]
    of_engine = ("engine_queue_ms", "engine_ttft_ms", "engine_generation_ms")
    assert all(0 < sum(row[part] for part in of_engine) / 1000 < row["wall_s"] for row in rows)
    assert all(row["engine_itl_ms"] > 1.9 for row in rows), "its tokens take 2 ms"
    assert {(row["engine_draft_steps"], row["engine_accepted_tokens"]) for row in rows} == {(64, 64)}
    assert rows[0]["engine_accepted_histogram"] == [0, 64, 0, 0, 0]
    windows = [row for row in run.rows("throughput", "windows") if row["mode"] == "fixed"]
    steps = sum(row["engine_draft_steps"] for row in rows)
    assert steps == sum(row["engine_drafts"] for row in windows), "the same drafts, counted twice"
    assert all(0 < row["delivered_share"] <= 1 and row["failed"] == 0 for row in windows)


@pytest.mark.slow(27)
def test_counters_under_other_names_are_not_counters_at_zero(run: FakeRun, node_python: Path) -> None:
    # at 2 ms a token a busy machine's streams are suspect of their own
    said = run.measured(node_python, "renamed_counters", FAKE_ENGINE_TOKEN_S="0.01")
    commit = run.commit("throughput")
    assert (commit.verdict, "counters_vanished" in commit.reasons) == ("suspect", True), said
    details = str(run.rows("throughput", "verdicts")[0]["details"])
    assert "vllm:prefix_cache_hits_total, vllm:num_preemptions_total" in details


def test_an_engine_that_can_not_start_is_one_line(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path)
    text = run.planned.model_dump_json().replace("tests/fake_engine.py", "tests/no_such_engine.py")
    (tmp_path / "store/runs/r1/cells" / run.key / "cell.json").write_text(text)
    code, _ = run.finish(node_python)
    assert code == 1
    assert "No such file" in run.attempts()[0].reason


@pytest.mark.core
@pytest.mark.slow(11)
def test_a_killed_runner_loses_at_most_the_condition_in_flight(run: FakeRun, node_python: Path) -> None:
    first = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.004")
    wait_until(lambda: len(run.stored("throughput/parts/windows-*")) >= 2, "two finished windows")
    kill(first)
    assert processes_with(str(run.counts)), "the engine outlives its runner: that is what the record is for"
    run.measured(node_python, FAKE_ENGINE_TOKEN_S="0.001")
    windows = run.rows("throughput", "windows")
    identities = Counter((row["condition"], row["mode"], row["repeat"], row["attempt"]) for row in windows)
    assert set(identities.values()) == {1}
    assert {row["attempt"] for row in windows} == {1, 2}, "nothing that was measured is lost"
    whole = {condition: attempt for condition, attempt in sorted((row["condition"], row["attempt"]) for row in windows)}
    for condition, attempt in whole.items():
        found = [row["repeat"] for row in windows if (row["condition"], row["attempt"]) == (condition, attempt)]
        assert found and sorted(set(found)) == list(range(max(found) + 1)), "one start has measured all of it"
    requests = Counter((row["request_id"], row["attempt"]) for row in run.rows("throughput", "requests"))
    assert set(requests.values()) == {1}
    assert [attempt.outcome for attempt in run.attempts()] == ["lost", "completed"]
    assert processes_with(str(run.counts)) == []


@pytest.mark.slow(15)
def test_an_evaluation_goes_on_at_the_first_unanswered_question(run: FakeRun, node_python: Path) -> None:
    first = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.002")
    wait_until(lambda: run.stored("eval-tiny/parts/eval_items-*"), "the first answers")
    kill(first)
    assert run.finish(node_python)[0] == 0
    items = Counter(row["item_id"] for row in run.rows("eval-tiny", "eval_items"))
    assert len(items) == 24
    assert set(items.values()) == {1}


def nobody_hears_it(run: FakeRun, runner: subprocess.Popen[str]) -> None:
    """From now on a printed line is an error."""
    assert runner.stdout
    runner.stdout.close()


def its_engine_leaves_first(run: FakeRun, runner: subprocess.Popen[str]) -> None:
    for engine in set(processes_with(str(run.counts))) - {runner.pid}:
        os.kill(engine, signal.SIGTERM)
    wait_until(lambda: not list(run.state.rglob(ENGINE_RECORD)), "the runner to see that its engine is gone")


@pytest.mark.slow(5)
@pytest.mark.parametrize("meanwhile", [None, nobody_hears_it, its_engine_leaves_first])
def test_a_runner_that_is_asked_to_stop_does_and_keeps_what_is_finished(
    run: FakeRun, node_python: Path, meanwhile: Callable[[FakeRun, subprocess.Popen[str]], None] | None
) -> None:
    runner = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.004")
    wait_until(lambda: run.stored("throughput/parts/windows-*"), "a finished window")
    if meanwhile is not None:
        meanwhile(run, runner)
    runner.send_signal(signal.SIGTERM)
    runner.wait(timeout=PATIENCE_S)
    assert runner.stdout
    runner.stdout.close()
    assert processes_with(str(run.counts)) == []
    if meanwhile is not nobody_hears_it:
        assert runner.returncode == 143
        assert [attempt.outcome for attempt in run.attempts()] == ["stopped"]


@pytest.mark.slow(11)
def test_a_cell_somebody_measures_is_left_alone(run: FakeRun, node_python: Path) -> None:
    first = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.004")
    wait_until(lambda: run.leases.current() is not None, "the lease")
    code, said = run.finish(node_python)
    assert code == 75
    assert "is being measured by" in said
    kill(first)
    assert run.finish(node_python)[0] == 0, "a dead owner on the same machine is not waited for"


@pytest.mark.slow(10)
def test_two_runners_race_for_one_step_and_one_is_superseded(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path)
    frozen = run.start(node_python, arguments=("--deadline-s", "1"), FAKE_ENGINE_TOKEN_S="0.003")
    wait_until(lambda: run.stored("throughput/parts/windows-*"), "the first runner inside a step")
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        assert run.leases.current() is not None
        heartbeat = tmp_path / f"store/runs/r1/cells/{run.key}/heartbeat.json"
        os.utime(heartbeat, (0, 0))  # silence, without waiting for it
        second_cache = {"SPECSWEEP_STATE": str(tmp_path / "other-machine")}
        run.measured(node_python, arguments=("--deadline-s", "1"), **second_cache)
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
    said, _ = frozen.communicate(timeout=PATIENCE_S)
    assert frozen.returncode == 76, said
    assert "another runner took the cell over" in said
    assert {run.commit(step).attempt for step in STEPS[1:]} == {2}
    timed = run.rows("throughput", "windows")
    windows = Counter((row["attempt"], row["condition"], row["mode"], row["repeat"]) for row in timed)
    assert set(windows.values()) == {1}, "the second runner began the condition anew, and measured no window twice"


RUNNER = """
import resource, sys
from tasks.cell import main

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
main()  # there is no such run: it ends before it serves anything
kept = [open("/dev/null") for _ in range(200)]
print("opened", len(kept))
"""


def test_a_runner_may_open_more_files_than_a_shell_begins_with(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", RUNNER, "--store", str(tmp_path), "--run", "none", "--cell", "0" * 16]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout.endswith("opened 200\n"), done.stderr


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
    runner = run.start(node_python)
    wait_until(lambda: run.ledger.read_commit(run.key, "throughput@control-1"), "its control is measured", by=runner)
    kill(runner)
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
    controls = {"throughput@control-1", "throughput@control-2"} & set(run.ledger.committed_steps()[run.key])
    # on a busy machine the cell's own rates may be good for nothing: then no control is worth its time
    assert len(controls) == (2 if run.commit("throughput").is_usable else 0)


def test_a_cell_without_a_usable_speed_needs_no_second_control(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE)
    planned = run.planned.model_copy(update={"visits": "bracketed", "control": run.planned.cell})
    spec = next(step for step in planned.steps if step.is_timed)
    judged = {"judged": 1, "judged_ok": 0}
    useless = run.ledger.new_commit(spec.step, 1, "somebody", "rejected", ["dead_draft"], 1.0, [], **judged)
    run.ledger.commit(run.key, useless)
    names = [each.name for start in todo(run.ledger, planned) for each in start.measurements]
    assert names == ["smoke", "parity"]


@pytest.mark.slow(2)
@pytest.mark.parametrize("lie", ["loop", "blank"])
def test_a_cell_that_smoke_rejects_costs_no_second_control(tmp_path: Path, node_python: Path, lie: str) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE, visits="bracketed")
    code, output = run.finish(node_python, lie=lie)
    assert code != 0 and "throughput@control-2" not in output
    committed = {split_name(name)[0] for name in run.ledger.committed_steps()[run.key]}
    assert committed == {"throughput", "smoke"}
