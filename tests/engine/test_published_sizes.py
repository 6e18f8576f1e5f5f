"""Shapes and models against what is published of them, by transformers' own model code and the pinned vLLM's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from configs.checkout import ROOT
from configs.kv_cache import KV_FORMATS, KvCacheLayout
from configs.load import load_model, load_shape, names
from tests.busy_machine import PATIENCE_S

pytestmark = [pytest.mark.engine, pytest.mark.slow(20)]

LEFT_OUT = 0.04  # of a checkpoint's parameters: its towers and its MTP head, which shapes and transformers leave out
ROUNDING = 0.01
READ = 0.03  # what a published "A3B" may be off

DRAFTS_B = {
    "gemma-4-12b-assistant": None,  # nobody says
    "gemma-4-26b-a4b-assistant": 0.416,  # 832 MB in BF16 (docs/sources.md: mtp-gb10)
    "gemma-4-31b-assistant": 0.470,  # the hub's figure of its QAT twin
    "gemma-4-31b-dflash": 1.54,  # a loader's log (Anbeeld/beellama.cpp, issue 27)
    "gemma-4-31b-dflash-full-attention": 1.54,
}
"""Billions of parameters of second checkpoints, which have no model's file."""

HEAD_DIM = 128  # of `facts_of_vllm.py`


@pytest.fixture(scope="module")
def facts(engine_python: Path) -> dict[str, Any]:
    configs = {name: load_shape(name).config for name in names("shapes")}
    done = subprocess.run(
        [engine_python, "-m", "tests.engine.facts_of_vllm"], input=json.dumps(configs), cwd=ROOT, check=True,
        text=True, stdout=subprocess.PIPE, timeout=PATIENCE_S,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", names("shapes"))
def test_a_shape_has_the_parameters_that_are_published(facts: dict[str, Any], name: str) -> None:
    counted, shape = facts["models"][name], load_shape(name)
    models = [
        model for model in map(load_model, names("models")) if model.shape == name or model.hub_id in shape.published_as
    ]
    assert models or name in DRAFTS_B
    for model in models:
        off = counted["total"] / model.total_params_b - 1
        assert -LEFT_OUT < off < ROUNDING, (model.name, counted, model.total_params_b)
        assert counted["active"] == pytest.approx(model.active_params_b, rel=READ), model.name
    if published := DRAFTS_B.get(name):
        assert counted["total"] == pytest.approx(published, rel=ROUNDING)


def test_the_cache_s_number_formats_are_those_of_the_pinned_engine(facts: dict[str, Any]) -> None:
    assert set(KV_FORMATS) == set(facts["formats"])
    said = {name: size for name, size in facts["formats"].items() if size is not None}
    assert {"fp8", "int4_per_token_head", "turboquant_k8v4", "ultraquant_4bit"} <= set(said)
    one_head = KvCacheLayout.model_validate({"layers": 1, "kv_heads": 1, "head_dim": HEAD_DIM})
    assert {name: one_head.bytes_kept(KV_FORMATS[name]) for name in said} == said
