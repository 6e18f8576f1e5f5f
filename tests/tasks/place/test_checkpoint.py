"""A checkpoint of 16 bits isn't measured under the label of fewer, which an engine would serve without a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from configs.cell import Cell, Precision
from tasks.place.provenance import unlike_its_label
from tests.fake_run import FakeRun

COMMIT = "0" * 40
AWQ = "name: bf16\nbytes_per_param: 0.52\n"
"""Takes the place of the precision that the fake run's rows name."""


def in_precision(cell: Cell, **fields: object) -> Cell:
    return cell.model_copy(update={"precision": Precision.model_validate({"name": "awq", **fields})})


def keep(home: Path, config: str, name: str = "config.json") -> None:
    """Put a file into the hub's cache, as the engine does."""
    folder = home / "hub" / "models--some--model" / "snapshots" / COMMIT
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(config)


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return FakeRun(tmp_path / "run").planned.cell


def test_a_checkpoint_without_a_word_of_quantisation_is_not_in_four_bits(tmp_path: Path, cell: Cell) -> None:
    keep(tmp_path, '{"model_type": "x", "quantization_config": null, "text_config": {}}')
    said = unlike_its_label(in_precision(cell, bytes_per_param=0.52), COMMIT, {"HF_HOME": str(tmp_path)})
    assert said is not None and "\n" not in said
    assert said.startswith(
        "fake-model awq ar: some/model is no checkpoint in awq: its config.json has no quantization_"
    )


@pytest.mark.parametrize(
    ("precision", "files"),
    [
        ({"bytes_per_param": 0.52}, {"config.json": {"quantization_config": {"quant_method": "awq"}}}),
        ({"bytes_per_param": 0.52}, {"config.json": {"compression_config": {"quant_method": "compressed-tensors"}}}),
        ({"bytes_per_param": 0.52}, {"config.json": {"text_config": {"quantization_config": {"quant_method": "x"}}}}),
        ({"bytes_per_param": 0.52}, {"config.json": {}, "hf_quant_config.json": {"quantization": "NVFP4"}}),
        ({"bytes_per_param": 0.52}, {"config.json": "no JSON"}),
        ({"bytes_per_param": 0.52}, {}),
        ({"bytes_per_param": 2, "dtype": "bfloat16"}, {"config.json": {}}),
        ({"bytes_per_param": 2}, {"config.json": {}}),
        ({"bytes_per_param": 1, "quantization": "fp8"}, {"config.json": {}}),
    ],
    ids=["awq", "compressed", "of its text", "ModelOpt's file", "odd", "not here", "dtype", "16 bits", "made at load"],
)
def test_one_that_says_its_format_or_that_nobody_can_tell_of_is_measured(
    tmp_path: Path, cell: Cell, precision: dict[str, object], files: dict[str, object]
) -> None:
    for name, content in files.items():
        keep(tmp_path, content if isinstance(content, str) else json.dumps(content), name)
    assert unlike_its_label(in_precision(cell, **precision), COMMIT, {"HF_HOME": str(tmp_path)}) is None


def test_a_folder_of_ones_own_is_looked_at_too(tmp_path: Path, cell: Cell) -> None:
    (tmp_path / "config.json").write_text("{}")
    own = cell.model_copy(update={"model": cell.model.model_copy(update={"hub_id": str(tmp_path)})})
    assert unlike_its_label(in_precision(own, bytes_per_param=0.52), None, {}) is not None


@pytest.mark.slow(8)
def test_such_a_cell_is_rejected_before_anything_is_measured(tmp_path: Path, node_python: Path) -> None:
    (tmp_path / "precisions").mkdir()
    (tmp_path / "precisions" / "bf16.yaml").write_text(AWQ)
    run = FakeRun(tmp_path)
    keep(tmp_path / "hf", "{}")
    code, said = run.finish(node_python, HF_HOME=str(tmp_path / "hf"))
    assert code == 3 and said.splitlines()[-1].startswith("fake-model bf16 ar: some/model is no checkpoint"), said
    assert run.prompts_sent() == [] and run.ledger.read_commit(run.key, "smoke") is None
    assert [attempt.outcome for attempt in run.attempts()] == ["failed"]
