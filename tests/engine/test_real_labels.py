"""The real vLLM on the CPU: what it loaded is recorded, a true label stands, and an untrue one stops its cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.family import members
from tests.engine.stored_in_int8 import store
from tests.fake_run import FakeRun

pytestmark = [pytest.mark.engine, pytest.mark.slow(90)]

SWEEP = """
name: labels
engine: vllm-cpu
gpu: cpu
suite: fake-suite
spot: false
visits: single
serving: {{max_model_len: 1024, max_num_seqs: 4}}
cells:
  - {{model: {model}, precision: {precision}, technique: ar}}
"""

FACTS = """
family: tiny-gemma4
total_params_b: 0.000744
active_params_b: 0.000744
reasoning_parser: gemma4
chat_template_kwargs: {enable_thinking: true}
"""

STORED = "name: stored-int8\nbytes_per_param: 1\n"
ONLINE = "name: online-int8\nbytes_per_param: 1\nquantization: int8_per_channel_weight_only\n"

EVALUATED = "name: fake-suite\nsteps:\n  - {step: eval-tiny, items: 16, seed: 7}\n"
GATED = "name: fake-suite\nsteps:\n  - {step: smoke, items: 2}\n  - {step: eval-tiny, items: 16, seed: 7}\n"


def run_of(folder: Path, model: str, precision: str, suite: str) -> FakeRun:
    files = {
        "sweep.yaml": SWEEP.format(model=model, precision=precision),
        "models/tiny-int8.yaml": f"name: tiny-int8\nhub_id: {folder / 'weights'}\n{FACTS}",
        "models/tiny-bf16.yaml": f"name: tiny-bf16\nhub_id: {members.folder_of('target')}\n{FACTS}",
        "precisions/stored-int8.yaml": STORED,
        "precisions/online-int8.yaml": ONLINE,
    }
    return FakeRun(folder, suite=suite, files=files)


def test_the_real_engine_is_judged_by_what_it_loaded(tmp_path: Path, node_python: Path) -> None:
    store(tmp_path / "weights")
    right = run_of(tmp_path, "tiny-int8", "stored-int8", EVALUATED)
    right.measured(node_python)
    place = right.rows("eval-tiny", "provenance")[-1]
    has = {name: place[f"loaded_{name}"] for name in ("quantization", "dtype", "max_model_len", "max_num_seqs")}
    assert has == {
        "quantization": "compressed-tensors", "dtype": "bfloat16", "max_model_len": 1024, "max_num_seqs": 4
    }  # fmt: skip
    assert place["loaded_formats"] == "CompressedTensorsW8A8Int8" and place["loaded_kv_tokens"] > 0
    items = right.rows("eval-tiny", "eval_items")
    assert sum(item["last_letter"] == item["gold"] for item in items) >= 12, "8 bits answer nearly as well as 16"


def test_the_real_engine_quantizes_no_dense_layer_to_int8_and_says_so(tmp_path: Path, node_python: Path) -> None:
    wrong = run_of(tmp_path, "tiny-bf16", "online-int8", GATED)
    code, said = wrong.finish(node_python)
    assert code == 3 and "int8_per_channel_weight_only applies to no layer of this model" in said, said
    (verdict,) = wrong.rows("smoke", "verdicts")
    assert verdict["reasons"] == ["unlike_its_label"]
    assert wrong.ledger.read_commit(wrong.key, "eval-tiny") is None
