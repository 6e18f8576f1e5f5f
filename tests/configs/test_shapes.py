"""Shapes: whose config each is, and whether the files of its models say the same of the cache."""

from collections import Counter
from typing import Any

import pytest

from configs.cell import Model
from configs.kv_cache import KV_FORMATS
from configs.load import load_model, load_shape, names
from configs.without_weights import CheckpointShape

SHAPES = names("shapes")
MODELS = [load_model(name) for name in names("models")]
TARGETS = [
    pytest.param(shape, model, id=model.name)
    for shape in map(load_shape, SHAPES)
    for model in MODELS
    if model.hub_id in shape.published_as or model.shape == shape.name
]


def test_a_hub_id_leads_to_one_shape() -> None:
    claimed = Counter(hub_id for name in SHAPES for hub_id in load_shape(name).published_as)
    assert claimed["google/gemma-4-31B-it"] and set(claimed.values()) == {1}


@pytest.mark.parametrize("name", SHAPES)
def test_whose_config_it_is_changes_no_cell(name: str) -> None:
    shape = load_shape(name)
    assert shape.model_dump_json() == shape.model_copy(update={"published_as": ("a/b",)}).model_dump_json()
    assert CheckpointShape.model_validate_json(shape.model_dump_json()).published_as == ()


@pytest.mark.parametrize("name", ["qwen3.6-27b", "qwen3.6-35b-a3b"])
def test_the_state_of_qwen_s_linear_attention_is_kept_as_published(name: str) -> None:
    """By this key vLLM 0.32.0 keeps it in 32 bits (`Qwen3_5ForConditionalGenerationConfig`); without it, in 16."""
    assert load_shape(name).text_config["mamba_ssm_dtype"] == "float32"


@pytest.mark.parametrize(("shape", "model"), TARGETS)
def test_the_cache_of_a_model_is_what_its_config_makes_it(shape: CheckpointShape, model: Model) -> None:
    config, kv = shape.text_config, model.kv
    assert kv is not None
    if "kv_lora_rank" in config:
        layers = config["num_hidden_layers"]
        assert kv.bytes_per_token == layers * (config["kv_lora_rank"] + config["qk_rope_head_dim"]) * 2
        assert kv.index_bytes_per_token == layers * (config["index_head_dim"] + 4)  # of fp8, with one float32 scale
        assert kv.reads_at_most == config["index_topk"]
    else:
        assert (kv.layers, kv.kv_heads, kv.head_dim) == (full_layers(config), *widest(config))
        assert kv.bytes_kept(KV_FORMATS["auto"]) == full_layers(config) * 4 * widest(config)[0] * widest(config)[1]


def full_layers(config: dict[str, Any]) -> int:
    if "layer_types" in config:
        return int(config["layer_types"].count("full_attention"))
    return int(config["num_hidden_layers"] // config["full_attention_interval"])


def widest(config: dict[str, Any]) -> tuple[int, int]:
    """Key/value heads, and values of each, of layers that keep every token."""
    heads, width = config["num_key_value_heads"], config["head_dim"]
    return config.get("num_global_key_value_heads") or heads, config.get("global_head_dim") or width


MIXED = "name: own\nfamily: f\nhub_id: a/b\ntotal_params_b: 1\nactive_params_b: 1\nkv: {kv}\n"


@pytest.mark.parametrize(
    "kv",
    ["{layers: 4, kv_heads: 2}", "{reads_at_most: 2048}", "{layers: 4, kv_heads: 2, head_dim: 8, bytes_per_token: 9}"],
    ids=["half of it", "neither", "both"],
)
def test_a_cache_is_said_in_one_of_two_ways(refused: Any, sweep_text: str, kv: str) -> None:
    said = refused(sweep_text.replace("tiny-gemma4", "own", 1), {"models/own.yaml": MIXED.replace("{kv}", kv)})
    assert all(part in said for part in ("own.yaml", "kv", "layers, kv_heads and head_dim, or bytes_per_token")), said
