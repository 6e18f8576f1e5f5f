"""What an engine is told beyond its own arguments: only of cells that draft, that it shall account for each draft."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from configs.cell import Draft, Technique
from configs.load import load_engine, load_technique
from flows.forecast.decoding import gain_at
from tasks.engine import command
from tasks.engine.command import engine_command
from tasks.guards.drafting import dead_draft
from tasks.meters import parse
from tests.fake_run import FakeRun

FLAG = "--per-request-spec-decode-metrics"


@pytest.mark.parametrize(("technique", "asked"), [("mtp", True), ("ngram", True), ("ar", False)])
def test_drafts_by_request_are_asked_for_where_something_drafts(tmp_path: Path, technique: str, asked: bool) -> None:
    """vLLM refuses the argument without a speculative config, so it can't be one of the engine's own."""
    argv = engine_command(FakeRun(tmp_path, technique).planned.cell, 1, tmp_path).argv
    assert (FLAG in argv) is asked


@pytest.mark.parametrize(
    ("technique", "field", "value"),
    [
        ("mtp-dynamic-k", "num_speculative_tokens_per_batch_size", [[1, 4, 4], [5, 16, 2], [17, 512, 0]]),
        ("mtp-adaptive", "enable_adaptive_verification", True),
        ("mtp-block", "rejection_sample_method", "block"),
    ],
)
def test_lists_and_switches_of_a_technique_reach_vllm_as_they_are_written(
    tmp_path: Path, technique: str, field: str, value: object
) -> None:
    cell = FakeRun(tmp_path, "mtp").planned.cell.model_copy(update={"technique": load_technique(technique)})
    argv = engine_command(cell, 1, tmp_path).argv
    said = json.loads(argv[argv.index("--speculative-config") + 1])
    assert (said["method"], said["num_speculative_tokens"], said[field]) == ("mtp", 4, value)


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
def test_both_of_eagles_heads_are_called_as_vllm_calls_them_with_their_checkpoint(tmp_path: Path, method: str) -> None:
    technique = Technique.model_validate(load_technique("eagle3").model_dump() | {"name": method, "method": method})
    drafting = {"technique": technique, "k": 3, "draft": Draft(hub_id="some/head", revision="abc")}
    argv = engine_command(FakeRun(tmp_path).planned.cell.model_copy(update=drafting), 1, tmp_path).argv
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == {
        "method": method, "model": "some/head", "revision": "abc", "num_speculative_tokens": 3,
    }  # fmt: skip
    idle = dead_draft(technique, parse("")._replace(drafts=0, accepted_tokens=0))
    assert idle is not None and idle.severity == "rejected", "a head that drafts nothing is broken"
    assert gain_at(method, 1) > 1


@pytest.mark.parametrize("words", [("vllm",), ("docker", "run", "--gpus", "all", "an/image", "vllm")])
def test_the_engine_counts_cards_as_nvidia_smi_does(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Else a row on a host with different cards has another one's name, clock and energy."""
    cell = FakeRun(tmp_path).planned.cell
    served = cell.model_copy(update={"engine": cell.engine.model_copy(update={"command": words})})
    started = engine_command(served, 1, tmp_path)
    assert started.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert ("--env=CUDA_DEVICE_ORDER" in started.argv) is (words[0] == "docker"), "what is named gets in"


@pytest.mark.parametrize(("engine", "compiles"), [("vllm-cpu", False), ("vllm", True)])
def test_our_engine_on_the_processor_waits_for_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, compiles: bool
) -> None:
    monkeypatch.setattr(command, "program", lambda _: ("vllm",))  # neither is installed wherever this runs
    cell = FakeRun(tmp_path).planned.cell
    served = cell.model_copy(update={"engine": load_engine(engine)})
    env = engine_command(served, 1, tmp_path).env
    assert ("TORCHDYNAMO_DISABLE" not in env) is compiles
    assert "TORCHDYNAMO_DISABLE" not in served.canonical_json(), "what it serves is the same"
