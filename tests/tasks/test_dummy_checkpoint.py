"""A shape's folder: what an engine takes for a checkpoint, and the command that serves it."""

import json
from pathlib import Path

import pytest

from configs.cell import Cell
from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_shape, load_sweep
from tasks.dummy_checkpoint import SPACE, SPECIAL_TOKENS, as_json, learn_merges, shape_digest, write_shape
from tasks.engine.command import engine_command


def shipped() -> list[Cell]:
    return [planned.cell for planned in expand(load_sweep("shapes")).cells]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_folder_has_the_published_config_and_ids_that_its_tokenizer_has(tmp_path: Path) -> None:
    shape = load_shape("diffusiongemma-26b-a4b")
    folder = write_shape(shape, tmp_path)
    files = {file.name: json.loads(file.read_text()) for file in folder.iterdir()}
    config, vocab = files["config.json"], files["tokenizer.json"]["model"]["vocab"]
    assert config["architectures"] == ["DiffusionGemmaForBlockDiffusion"] and config["canvas_length"] == 256
    assert files["generation_config.json"]["sampler_config"]["entropy_bound"] == 0.1
    for part in (config, config["text_config"], files["generation_config.json"]):
        assert (part["pad_token_id"], part["eos_token_id"], part["bos_token_id"]) == (0, 1, 2)
    assert [vocab[token] for token in SPECIAL_TOKENS] == [0, 1, 2, 3]
    assert sorted(vocab.values()) == list(range(262144)), "every id that the model can draw has a text"


def test_a_folder_is_written_once_and_named_by_what_it_holds(tmp_path: Path) -> None:
    shape = load_shape("gemma-4-31b-assistant")
    folder = write_shape(shape, tmp_path)
    (folder / "seen").touch()
    assert (write_shape(shape, tmp_path) / "seen").exists()
    other = shape.model_copy(update={"config": shape.config | {"backbone_hidden_size": 1}})
    assert write_shape(other, tmp_path) != folder
    assert sorted(tmp_path.iterdir()) == sorted([folder, write_shape(other, tmp_path)]), "nothing half is left"


def test_the_tokenizer_cuts_english_into_words_and_pieces() -> None:
    merges = learn_merges((ROOT / "LICENSE").read_text())
    vocab = as_json(merges, 5000)["model"]["vocab"]
    assert {f"{SPACE}the", f"{SPACE}and", f"{SPACE}of"} <= set(vocab)
    assert all(left in vocab and right in vocab and left + right in vocab for left, right in merges)
    assert len(vocab) == 5000 and merges == learn_merges((ROOT / "LICENSE").read_text())


def test_the_command_of_a_replay_serves_the_shape_and_is_told_the_rates(tmp_path: Path) -> None:
    mtp = next(cell for cell in shipped() if (cell.technique.name, cell.k) == ("mtp", 4))
    command = engine_command(mtp, 1, tmp_path)
    argv = command.argv
    served, told = Path(argv[2]), json.loads(argv[argv.index("--speculative-config") + 1])
    assert json.loads((served / "config.json").read_text())["hidden_size"] == 5376
    assert argv[argv.index("--load-format") + 1] == "dummy" and "--diffusion-config" not in argv
    assert json.loads((Path(told.pop("model")) / "config.json").read_text())["model_type"] == "gemma4_assistant"
    rates = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.787, 0.589, 0.456, 0.346]}
    assert told == {"method": "mtp", "num_speculative_tokens": 4, **rates}
    assert command.model_revision == shape_digest(load_shape("gemma-4-31b"))
    assert command.draft_revision == shape_digest(load_shape("gemma-4-31b-assistant"))
    assert command.env["HF_HUB_OFFLINE"] == "1"


def test_the_command_of_a_diffusion_replay_is_told_canvas_and_steps(tmp_path: Path) -> None:
    diffusion = next(cell for cell in shipped() if cell.denoising_steps == 16)
    argv = engine_command(diffusion, 1, tmp_path).argv
    told = json.loads(argv[argv.index("--diffusion-config") + 1])
    assert told == {"canvas_length": 256, "max_denoising_steps": 16}
    narrower = engine_command(diffusion.model_copy(update={"canvas_length": 128}), 1, tmp_path).argv
    assert json.loads(narrower[-1]) == {"canvas_length": 128, "max_denoising_steps": 16}


def test_a_mixture_of_experts_drafts_with_the_newer_model_runner(tmp_path: Path) -> None:
    mtp = next(cell for cell in shipped() if cell.model.name == "gemma-4-26b-a4b-shape" and cell.k == 4)
    env = engine_command(mtp, 1, tmp_path).env
    assert (env["VLLM_USE_V2_MODEL_RUNNER"], env["VLLM_MOE_ROUTING_SIMULATION_STRATEGY"]) == ("1", "uniform_random")
    dense = next(cell for cell in shipped() if cell.model.name == "gemma-4-31b-shape")
    assert "VLLM_MOE_ROUTING_SIMULATION_STRATEGY" not in engine_command(dense, 1, tmp_path).env
