"""The real configuration code of the pinned vLLM, and cells that it would start or refuse on a card that isn't here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from configs.cell import Cell, Serving
from configs.checkout import ROOT
from configs.checks.between_files import PLACES
from configs.load import SHIPPED, load_engine, load_gpu, load_model, load_precision, load_technique, names
from configs.vllm_arguments import PINNED, given_by
from flows.plans import make_plan
from tasks.host import environments
from tasks.rehearsal.rehearse import Part, Rehearsed, parts_of, rehearse
from tests.busy_machine import PATIENCE_S

pytestmark = [pytest.mark.engine, pytest.mark.slow(55)]

EVERY_TIME = ("demo", "full")
"""Rehearsed with the core: what newcomers and users of cards run first. The others have 80 cells."""

ByName = Callable[[str], list[Rehearsed]]

OTHERS = tuple(name for name in names("sweeps") if name not in EVERY_TIME)


@pytest.mark.parametrize("sweep", [*(pytest.param(name, marks=pytest.mark.core) for name in EVERY_TIME), *OTHERS])
def test_the_engine_would_start_every_shipped_cell(rehearsed: ByName, sweep: str) -> None:
    for each in (one for one in rehearsed(sweep) if one.part.is_known):
        assert each.facts is not None, each.part.label
        assert each.refusals == []
        if each.part.cell.engine.is_pinned and not each.facts.is_unreachable:  # some configs only the hub has
            assert each.facts.stage == "done", (each.part.label, each.facts.error)
            assert each.facts.cards == each.part.cell.cards


@pytest.mark.core
def test_a_sweep_on_a_card_says_what_an_engineer_asks(rehearsed: ByName) -> None:
    for each in rehearsed("full"):
        facts, cell = each.facts, each.part.cell
        assert facts is not None and facts.weights_bytes is not None and facts.requests is not None
        promised = cell.model.total_params_b * 1e9 * cell.precision.bytes_per_param
        assert 0.8 * promised < facts.weights_bytes < 1.3 * promised, each.part.label
        assert facts.requests > 1
        assert facts.arguments["max_model_len"] == cell.serving.max_model_len == facts.max_model_len


CHECKPOINT = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {
    "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
    "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True},
}}, "ignore": ["lm_head"]}  # fmt: skip


def cell(model: str = "gemma-4-31b", precision: str = "bf16", **serving: object) -> Cell:
    return Cell(
        model=load_model(model),
        precision=load_precision(precision),
        technique=load_technique("ar"),
        engine=load_engine("vllm"),
        serving=Serving.model_validate({"max_model_len": 40960} | serving),
    )


def stored_in_fp8(folder: Path) -> Cell:
    """A local folder of an FP8-Dynamic checkpoint, as llm-compressor writes it."""
    shape = SHIPPED.document("shapes", "gemma-4-12b").data["config"]
    (folder / "config.json").write_text(json.dumps(shape | {"quantization_config": CHECKPOINT}), encoding="utf-8")
    model = load_model("gemma-4-12b").model_copy(update={"hub_id": str(folder)})
    return cell(precision="fp8").model_copy(update={"model": model})


PLANTED: dict[str, tuple[Callable[[Path], Cell], str, str]] = {
    "more requests than state blocks": (
        lambda _: cell("qwen3.6-27b", "fp8", gpu_memory_utilization=0.92), "max_num_seqs", "1024 (vLLM's default"
    ),
    "a precision that leaves dense layers as they are": (lambda _: cell(precision="int8"), "precision", "int8"),
    "no room for one request": (lambda _: cell(max_model_len=262144), "max_model_len", "262144"),
    "a context beyond the model's": (lambda _: cell(max_model_len=400960), "max_model_len", "400960"),
    "two quantizations": (stored_in_fp8, "quantization", "fp8"),
}  # fmt: skip


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> ByName:
    """All that the core asks in one go, as each go starts vLLM; then all others."""

    def planted(fault: str) -> list[Part]:
        return [Part(PLANTED[fault][0](tmp_path_factory.mktemp("m")), load_gpu("h100"), (), False)]

    @cache
    def in_one_go(wanted: tuple[str, ...]) -> dict[str, list[Rehearsed]]:
        parts = {name: planted(name) if name in PLANTED else parts_of(make_plan(name)) for name in wanted}
        found = iter(rehearse([part for each in parts.values() for part in each], SHIPPED, print))
        return {name: list(islice(found, len(each))) for name, each in parts.items()}

    core = (*EVERY_TIME, *PLANTED)
    return lambda name: in_one_go(core if name in core else OTHERS)[name]


@pytest.mark.core
@pytest.mark.parametrize("fault", PLANTED)
def test_what_would_fail_on_the_card_is_one_line(rehearsed: ByName, fault: str) -> None:
    _, argument, value = PLANTED[fault]
    found = next(each for each in rehearsed(fault)[0].found if each.is_fatal)
    assert (found.argument, found.value[: len(value)]) == (argument, value), found.line
    assert found.limit and found.remedy and "\n" not in found.line


def test_what_is_merely_tight_is_a_remark() -> None:
    """The 31B in 16 bits at the context of the post that `speed-bench` follows: 16 requests don't fit."""
    planned = next(each for each in make_plan("speed-bench").cells if each.cell.model.name == "gemma-4-31b")
    serving = planned.cell.serving.model_copy(update={"max_model_len": 32768})
    wide = planned.cell.model_copy(update={"serving": serving})
    (found,) = rehearse([Part(wide, planned.gpu, planned.steps, False)], SHIPPED, print)
    assert found.refusals == []
    assert [each.value for each in found.found if each.argument == "step load"] == ["16 requests at once"]


@pytest.mark.core
def test_another_engine_is_never_refused(rehearsed: ByName) -> None:
    part = rehearsed("no room for one request")[0].part
    other = part.cell.model_copy(update={"engine": load_engine("vllm-own")})
    (found,) = rehearse([part._replace(cell=other)], SHIPPED, print)
    assert found.refusals == []
    assert any("not the vLLM" in line for line in found.remarks)


def test_the_list_of_arguments_is_the_parsers() -> None:
    python = environments.python_of("engine-cpu")
    asked = json.dumps({"card": None, "cells": [], "lists_arguments": True})
    words = [str(python), "-P", "-m", "tasks.rehearsal.engine_side"]
    done = subprocess.run(
        words,
        input=asked,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    kept = json.loads((ROOT / "configs" / "vllm_arguments.json").read_text(encoding="utf-8"))
    assert kept == json.loads(done.stdout), f"of vLLM {PINNED}"
    assert set(PLACES) <= set(kept)
    assert given_by(["--tensor-parallel", "4"]) == {"tensor_parallel_size": "4"}
