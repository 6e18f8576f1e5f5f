"""What an engine loaded against what its cell's label says, in the words that vLLM 0.32.0 logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.cell import Cell, Precision, Serving
from configs.load import load_engine, load_model, load_precision, load_technique
from tasks.engine.loaded import Loaded, loaded
from tasks.guards.label import unlike_its_label
from tests.fake_run import FakeRun
from warehouse.ledger.verdicts import Reason

CORE = "(EngineCore pid=212) INFO 11-27 13:00:01 "


def arguments(quantization: str | None, dtype: str = "bfloat16") -> str:
    return (
        f"{CORE}[core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/m', speculative_config="
        "SpeculativeConfig(method='mtp', model='/d', num_spec_tokens=4), tokenizer='/m', revision=None, "
        f"dtype=torch.{dtype}, max_seq_len=4096, download_dir=None, load_format=auto, tensor_parallel_size=1, "
        f"quantization={quantization}, quantization_config=None, enforce_eager=True, kv_cache_dtype=auto, "
        "device_config=cpu, compilation_config={'mode': 0}"
    )


def while_loading(layers: int, kinds: str = "") -> str:
    return f"{CORE}[base_loader.py:151] Quantizing {layers} layers of types: {kinds}"


def took(gib: float) -> str:
    return f"{CORE}[gpu_model_runner.py:5150] Model loading took {gib} GiB memory and 3.063984 seconds"


FP8 = while_loading(4, "mlp.down_proj: 4 (from linear: fp8_per_tensor_static)")
INT8 = f"{CORE}[__init__.py:846] Selected CPUInt8ScaledMMLinearKernel for CompressedTensorsW8A8Int8"
CHECKPOINT_FP8 = f"{CORE}[__init__.py:797] Selected CutlassFP8ScaledMMLinearKernel for CompressedTensorsW8A8Fp8"
EXPERTS = f"{CORE}[int8.py:121] Using TRITON Int8 MoE backend out of potential backends: ['TRITON']."
PLAIN_EXPERTS = f"{CORE}[unquantized.py:266] Using TRITON Unquantized MoE backend out of potential backends: []."
FOUR_BITS = f"{CORE}[compressed_tensors_wNa16.py:138] Using MarlinLinearKernel for CompressedTensorsWNA16"
ONLINE_INT8 = "int8_per_channel_weight_only"
STORED_INT8 = {"name": "int8-checkpoint", "bytes_per_param": 1}
STORED_FP8 = {"name": "fp8-checkpoint", "bytes_per_param": 1}


def cell(model: str, precision: str | dict[str, object], technique: str = "ar") -> Cell:
    label = load_precision(precision) if isinstance(precision, str) else Precision.model_validate(precision)
    return Cell(
        model=load_model(model),
        precision=label,
        technique=load_technique(technique),
        engine=load_engine("vllm"),
        serving=Serving(max_model_len=4096),
    )


def test_what_the_log_says_is_recorded() -> None:
    passed = "(APIServer pid=7) INFO 11-27 13:00:00 [utils.py:286] non-default args: {'model': 1, 'max_num_seqs': 16}"
    cache = f"{CORE}[kv_cache_utils.py:2233] GPU KV cache size: 179,881 tokens"
    log = "\n".join([passed, arguments("fp8_per_tensor"), FP8, EXPERTS, PLAIN_EXPERTS, took(31.53), cache])
    assert loaded(log).columns() == {
        "loaded_quantization": "fp8_per_tensor",
        "loaded_dtype": "bfloat16",
        "loaded_kv_cache_dtype": "auto",
        "loaded_max_model_len": 4096,
        "loaded_max_num_seqs": 16,
        "loaded_weights_bytes": round(31.53 * 1024**3),
        "loaded_kv_tokens": 179_881,
        "loaded_formats": "mlp.down_proj: 4 (from linear: fp8_per_tensor_static); Int8 experts",
    }
    assert loaded(arguments(None)).quantization == "none", "said to be none, which is no null"
    assert set(loaded("").columns().values()) == {None}


@pytest.mark.parametrize(
    ("model", "precision", "log", "found"),
    [
        ("gemma-4-31b", "int8", [arguments(ONLINE_INT8), while_loading(0)], f"{ONLINE_INT8} applies to no layer"),
        ("tiny-gemma4", "int8", [arguments(ONLINE_INT8), while_loading(0)], f"{ONLINE_INT8} applies to no layer"),
        ("tiny-gemma4", STORED_INT8, [arguments(None)], "the engine quantized nothing"),
        ("tiny-gemma4", "awq", [arguments(None)], "the engine quantized nothing"),
        ("tiny-gemma4", "bf16", [arguments("compressed-tensors"), INT8], "the checkpoint is in compressed-tensors"),
        ("tiny-gemma4", "bf16", [arguments(None, "float32")], "computes in float32, not in bfloat16"),
        ("tiny-gemma4", STORED_FP8, [arguments("compressed-tensors"), INT8], "are in int8, not in fp8"),
        ("gemma-4-31b", STORED_INT8, [arguments("compressed-tensors"), CHECKPOINT_FP8], "are in fp8, not in int8"),
        # of other versions and builds, whose log has other words
        ("gemma-4-31b", "fp8", [took(58.2)], "62.5 GB were loaded on a card"),
        ("gemma-4-31b", "bf16", [took(31.5)], "33.8 GB were loaded on a card"),
        ("gemma-4-31b", "bf16", [took(18.0)], "19.3 GB were loaded on a card"),
    ],
)  # fmt: skip
def test_another_format_than_the_label_says_is_rejected_with_both(
    model: str, precision: str | dict[str, object], log: list[str], found: str
) -> None:
    finding = unlike_its_label(cell(model, precision), loaded("\n".join(log)))
    assert finding is not None and finding.reason is Reason.UNLIKE_ITS_LABEL and finding.severity == "rejected"
    assert found in finding.sentence and "bytes a parameter" in finding.sentence and "\n" not in finding.sentence


@pytest.mark.parametrize(
    ("model", "precision", "log"),
    [
        ("gemma-4-31b", "bf16", [arguments(None), took(58.3)]),
        ("gemma-4-31b", "fp8", [arguments("fp8"), FP8, took(31.53)]),
        ("gemma-4-26b-a4b", "fp8", [arguments("fp8_per_tensor"), FP8, took(26.0)]),
        ("qwen3.6-27b", "fp8", [arguments("fp8"), FP8, took(28.5)]),
        ("gemma-4-26b-a4b", "int8", [arguments(ONLINE_INT8), while_loading(30, "experts: 30"), EXPERTS, took(27.0)]),
        ("gemma-4-31b", "autoround-int4", [arguments("inc"), FOUR_BITS, took(19.8)]),
        ("gemma-4-31b", "qat-int4", [arguments("compressed-tensors"), FOUR_BITS]),
        ("tiny-gemma4", "bf16", [arguments(None)]),
        ("tiny-gemma4", "fp8_per_channel", [arguments("fp8_per_channel"), FP8]),
        ("tiny-gemma4", STORED_INT8, [arguments("compressed-tensors"), INT8]),
        ("gemma-4-31b", STORED_FP8, [arguments("compressed-tensors"), CHECKPOINT_FP8, took(31.0)]),
        # nobody can tell
        ("gemma-4-31b", "int8", []),
        ("gemma-4-31b", "awq", [took(31.5)]),
        ("gemma-4-31b", "bf16", [took(1.5)]),
        ("tiny-gemma4", "fp8", [took(0.0)]),
    ],
)
def test_a_right_label_and_one_that_nobody_can_judge_are_measured(
    model: str, precision: str | dict[str, object], log: list[str]
) -> None:
    assert unlike_its_label(cell(model, precision), loaded("\n".join(log))) is None


def test_a_draft_beside_it_is_not_taken_for_the_model() -> None:
    both = loaded("\n".join([arguments("compressed-tensors"), FOUR_BITS, CHECKPOINT_FP8, took(58.2)]))
    drafting = cell("gemma-4-31b", STORED_INT8, "mtp")
    assert isinstance(both, Loaded) and unlike_its_label(drafting, both) is None


@pytest.mark.slow(8)
def test_such_a_cell_is_rejected_before_a_question_is_asked(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path)
    code, said = run.finish(node_python, FAKE_ENGINE_LOG="\n".join([arguments("compressed-tensors"), INT8]))
    assert code == 3 and "the checkpoint is in compressed-tensors" in said, said
    assert run.prompts_sent() == [] and run.ledger.read_commit(run.key, "throughput") is None
    (verdict,) = run.rows("smoke", "verdicts")
    assert (verdict["verdict"], verdict["reasons"]) == ("rejected", ["unlike_its_label"])
    assert "fake-model bf16 ar: bf16 is 2 bytes a parameter, but" in verdict["details"][0]
    (place,) = run.rows("smoke", "provenance")
    assert (place["loaded_quantization"], place["loaded_dtype"]) == ("compressed-tensors", "bfloat16")
    again, said = run.finish(node_python)
    assert again == 3 and "unlike_its_label" in said, "nobody pays for it twice"
