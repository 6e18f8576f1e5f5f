"""Where a step was measured, as its provenance says: the machine, its cards and price, and what was served."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from configs.cell import Cell, Precision
from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_sweep
from tasks.client import Client
from tasks.engine.command import engine_command, full_environment
from tasks.engine.server import Engine, EngineFailed, free_port
from tasks.host.hub import resolved_commit
from tasks.place import gpu, provenance
from tasks.place.provenance import price_usd_h, unlike_its_label
from tests.fake_run import FakeRun
from tests.loopback import Answering, serving

COMMIT, OTHER = "a" * 40, "b" * 40

FAKE_DRIVER = """#!/bin/sh
# a FAKE nvidia-smi: two cards, of which the second is another model; a card clocks up while a request is in flight
clock=300
[ "$(cat {most} 2>/dev/null)" ] && clock=1980
echo "0, GPU-aaaa, NVIDIA H100 80GB HBM3, 580.1, 81559, 10, 210"
echo "1, GPU-bbbb, NVIDIA H200, 580.1, 143771, 10, $clock"
"""


@pytest.fixture
def two_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "bin" / "nvidia-smi"
    driver.parent.mkdir()
    driver.write_text(FAKE_DRIVER.format(most=tmp_path / "most"))
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{driver.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_ENGINE_MOST", str(tmp_path / "most"))
    monkeypatch.setenv("FAKE_ENGINE_TOKEN_S", "0.002")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECSWEEP_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def gathered(run: FakeRun, folder: Path, served: Cell | None = None, **env: str) -> dict[str, Any]:
    """Provenance of a fake engine that serves the run's cell, or another one for it."""

    async def ask() -> dict[str, Any]:
        cell, port = served or run.planned.cell, free_port()
        command = engine_command(cell, port, folder)
        command = command._replace(env=command.env | env)
        engine = Engine(command, port, folder, 300)
        try:
            await engine.start(lambda _: None)
            async with Client(engine.base_url, cell.model, cell.technique) as client:
                return await provenance.gather(run.planned, cell, command, client, "0" * 16, engine)
        finally:
            engine.stop()

    return asyncio.run(ask())


def test_the_engines_cards_are_named_with_their_clock_under_load(tmp_path: Path, two_cards: None) -> None:
    place = gathered(FakeRun(tmp_path), tmp_path, CUDA_VISIBLE_DEVICES="1")
    assert (place["gpu_name"], place["gpu_uuid"], place["gpus"]) == ("NVIDIA H200", "GPU-bbbb", 1)
    assert place["machine"] == f"{place['host']} GPU-bbbb driver 580.1 vllm fake"
    assert place["gpu_clock_mhz"] == 1980, "while the engine generates: idle, this card has 300"
    (tmp_path / "most").unlink()
    idle = gathered(FakeRun(tmp_path / "idle"), tmp_path, FAKE_ENGINE="error")
    assert idle["gpu_clock_mhz"] is None and idle["gpu_name"] == "NVIDIA H100 80GB HBM3", "it costs no step"


def test_a_driver_or_an_engine_that_was_upgraded_makes_another_machine(tmp_path: Path, two_cards: None) -> None:
    """Speeds before and after are no pair: the upgrade may be all that differs."""
    before = gathered(FakeRun(tmp_path), tmp_path)["machine"]
    driver = tmp_path / "bin" / "nvidia-smi"
    driver.write_text(driver.read_text().replace("580.1", "590.2"))
    assert gathered(FakeRun(tmp_path / "later"), tmp_path)["machine"] != before


@pytest.mark.parametrize(
    ("said", "uuids"),
    [
        (None, ["GPU-aaaa", "GPU-bbbb"]),
        ("1,0", ["GPU-bbbb", "GPU-aaaa"]),
        ("GPU-bb", ["GPU-bbbb"]),
        ("1,7,0", ["GPU-bbbb"]),
        ("GPU-", []),
        ("", []),
        ("-1", []),
    ],
)
def test_visible_cards_are_those_that_cuda_shows(said: str | None, uuids: list[str], two_cards: None) -> None:
    assert [card.uuid for card in gpu.visible(gpu.cards() or [], said)] == uuids


def test_a_model_on_two_cards_uses_two(tmp_path: Path, two_cards: None) -> None:
    run = FakeRun(tmp_path)
    cell = run.planned.cell
    served = cell.model_copy(update={"engine": cell.engine.model_copy(update={"args": ("--tensor_parallel_size=2",)})})
    place = gathered(run, tmp_path, served)
    assert (place["gpus"], place["gpu_uuid"]) == (2, "GPU-aaaa,GPU-bbbb")


@pytest.mark.parametrize(
    ("head", "version"),
    [
        ("| NVIDIA-SMI 580.95.05   Driver Version: 580.95.05   CUDA Version: 13.0 |", "13.0"),
        ("| NVIDIA-SMI 610.57.04   KMD Version: 610.57.04   CUDA UMD Version: 13.3 |", "13.3"),
        ("| NVIDIA-SMI 580.95.05   Driver Version: 580.95.05   CUDA Version: N/A |", None),
    ],
)
def test_both_spellings_of_cuda_are_read(head: str, version: str | None, tmp_path: Path, two_cards: None) -> None:
    (tmp_path / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\necho '{head}'\n")
    assert gpu.cuda_version() == version


@pytest.mark.slow(4)
def test_a_machine_without_a_card_is_its_host_and_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    run = FakeRun(tmp_path)
    first, again = gathered(run, tmp_path), gathered(run, tmp_path)
    assert first["machine"] == again["machine"] == f"{first['host']} {first['gpu_name']} vllm fake"
    assert first.get("gpus") is None and first.get("gpu_clock_mhz") is None


def test_a_control_is_served_under_its_own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    run = FakeRun(tmp_path, "mtp ar")
    control = run.cells[1].cell
    place = gathered(run, tmp_path, control)
    assert place["served_cell_key"] == control.cell_key != run.planned.cell.cell_key
    assert (place["engine_version"], place.get("seed"), place["draft_revision"]) == ("fake", None, None)


def write_cache(home: Path, hub_id: str, refs: Mapping[str, str], *snapshots: str) -> None:
    folder = home / "hub" / f"models--{hub_id.replace('/', '--')}"
    for name, commit in refs.items():
        (folder / "refs").mkdir(parents=True, exist_ok=True)
        (folder / "refs" / name).write_text(commit)
    for commit in snapshots:
        (folder / "snapshots" / commit).mkdir(parents=True)


def test_the_hubs_main_is_recorded_as_the_commit_that_was_served(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, "mtp")
    write_cache(tmp_path / "hf", "some/model", {"main": COMMIT}, COMMIT, OTHER)
    write_cache(tmp_path / "hf", "some/draft", {}, OTHER)
    place = gathered(run, tmp_path, HF_HOME=str(tmp_path / "hf"))
    assert (place["model_revision"], place["draft_revision"]) == (COMMIT, OTHER)
    env = {"HF_HOME": str(tmp_path)}
    assert resolved_commit("some/model", None, env) is None, "the cache does not tell it"
    write_cache(tmp_path, "some/model", {"v2": OTHER}, COMMIT, OTHER)
    assert resolved_commit("some/model", None, env) is None, "two snapshots, and nothing says which one is main"
    assert resolved_commit("some/model", "v2", env) == OTHER
    assert resolved_commit("some/model", COMMIT, env) == COMMIT


def test_another_server_on_the_port_is_not_our_engine(tmp_path: Path) -> None:
    class Stranger(Answering):
        def do_GET(self) -> None:
            self.reply(200, b'{"data": [{"id": "somebody-else"}]}')

    with serving(Stranger) as address:
        port = int(address.split(":")[1])
        engine = Engine(engine_command(FakeRun(tmp_path).planned.cell, port, tmp_path), port, tmp_path, 300)
        try:
            with pytest.raises(EngineFailed, match="Address already in use"):
                asyncio.run(engine.start(lambda _: None))
        finally:
            engine.stop()


def test_the_log_of_an_earlier_start_stays(tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_text("the first start\n")
    (tmp_path / "engine-1.log").write_text("one before\n")
    port = free_port()
    engine = Engine(engine_command(FakeRun(tmp_path).planned.cell, port, tmp_path), port, tmp_path, 300)
    try:
        asyncio.run(engine.start(lambda _: None))
    finally:
        engine.stop()
    assert (tmp_path / "engine-1.log").read_text() == "one before\n"
    assert (tmp_path / "engine-2.log").read_text() == "the first start\n"
    assert "fake_engine.py" in engine.log_path.read_text() and engine.log_path.name == "engine.log"


def test_an_engine_compiles_once_for_all_runners_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And another one for itself."""
    run = FakeRun(tmp_path, "ar mtp")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    roots = []
    for number, planned in enumerate(run.cells):
        monkeypatch.setenv("SPECSWEEP_STATE", str(tmp_path / "state" / str(number)))  # two workers, a card each
        roots.append(full_environment(engine_command(planned.cell, 1, tmp_path / str(number)))["VLLM_CACHE_ROOT"])
    assert roots[0] == roots[1] and Path(roots[0]).is_relative_to(tmp_path / "cache")
    cell = run.planned.cell
    patched = cell.model_copy(update={"engine": cell.engine.model_copy(update={"command": (sys.executable, "mine")})})
    assert full_environment(engine_command(patched, 1, tmp_path))["VLLM_CACHE_ROOT"] != roots[0]


def test_a_techniques_arguments_follow_the_engines_and_make_another_cell(tmp_path: Path) -> None:
    cell = FakeRun(tmp_path).planned.cell
    named = cell.technique.model_copy(update={"engine_args": ("--attention-backend=TRITON_ATTN",)})
    other = cell.model_copy(update={"technique": named})
    assert engine_command(other, 1, tmp_path).argv == (*engine_command(cell, 1, tmp_path).argv, *named.engine_args)
    assert other.cell_key != cell.cell_key
    assert "engine_args" not in cell.canonical_json(), "cells of before there were any keep their keys"


@pytest.mark.parametrize(("paid", "price"), [("2.25", 2.25), ("", None)])
def test_what_was_paid_counts(paid: str, price: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = expand(load_sweep("full")).cells[0]
    monkeypatch.delenv("SPECSWEEP_PRICE_USD_H", raising=False)
    assert price_usd_h(planned) == planned.gpu.price_spot_usd_h is not None
    monkeypatch.setenv("SPECSWEEP_PRICE_USD_H", paid)
    assert price_usd_h(planned) == price


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
    wanted = "fake-model awq ar: some/model is no checkpoint in awq: its config.json has no quantization_"
    assert said is not None and said.startswith(wanted) and "\n" not in said
    (tmp_path / "config.json").write_text("{}")
    own = cell.model_copy(update={"model": cell.model.model_copy(update={"hub_id": str(tmp_path)})})
    assert unlike_its_label(in_precision(own, bytes_per_param=0.52), None, {}) is not None, "nor is one's own"


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
def test_a_format_that_is_said_or_unknown_is_measured(
    tmp_path: Path, cell: Cell, precision: dict[str, object], files: dict[str, object]
) -> None:
    for name, content in files.items():
        keep(tmp_path, content if isinstance(content, str) else json.dumps(content), name)
    assert unlike_its_label(in_precision(cell, **precision), COMMIT, {"HF_HOME": str(tmp_path)}) is None


@pytest.mark.slow(8)
def test_such_a_cell_is_rejected_before_anything_is_measured(tmp_path: Path, node_python: Path) -> None:
    (tmp_path / "precisions").mkdir()
    (tmp_path / "precisions" / "bf16.yaml").write_text("name: bf16\nbytes_per_param: 0.52\n")  # as AWQ has
    run = FakeRun(tmp_path)
    keep(tmp_path / "hf", "{}")
    code, said = run.finish(node_python, HF_HOME=str(tmp_path / "hf"))
    assert code == 3 and "fake-model bf16 ar: some/model is no checkpoint" in said, said
    commit = run.ledger.read_commit(run.key, "smoke")
    assert run.prompts_sent() == [] and commit is not None and commit.verdict == "rejected"
