"""The transformers engine's command: what drafts, by which Python, and one line where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.cell import Cell
from configs.expand import expand
from configs.load import load_engine, load_sweep, load_technique
from tasks.engine.command import engine_command, require_packages
from tasks.engine.program import EngineUnavailable, python_words
from tasks.transformers_engine.arguments import Arguments, parse

PYTHON = "/opt/venv/bin/python"


def cells() -> list[Cell]:
    """Those of the true models, on a Python of the user's own."""
    own = load_engine("transformers").model_copy(update={"command": (PYTHON,), "image": None})
    plan = expand(load_sweep("transformers"))
    return [planned.cell.model_copy(update={"engine": own}) for planned in plan.cells]


def parsed(cell: Cell, folder: Path) -> Arguments:
    argv = engine_command(cell, 8123, folder).argv
    assert argv[:3] == (PYTHON, "-m", "tasks.transformers_engine")
    return parse(argv[3:])


def test_the_server_understands_the_command_of_every_shipped_cell(tmp_path: Path) -> None:
    ar, mtp = (parsed(cell, tmp_path) for cell in cells())
    assert (ar.model, ar.k, ar.assistant_model) == ("google/gemma-4-31B-it", None, None)
    assert (mtp.assistant_model, mtp.num_assistant_tokens) == ("google/gemma-4-31B-it-assistant", 4)
    assert (mtp.served_model_name, mtp.reasoning_parser, mtp.port) == ("gemma-4-31b", "gemma4", 8123)
    assert ar._replace(assistant_model=mtp.assistant_model, num_assistant_tokens=4) == mtp, "and nothing else differs"


def test_prompt_lookup_drafts_without_a_second_checkpoint(tmp_path: Path) -> None:
    base = cells()[0]
    said = parsed(base.model_copy(update={"technique": load_technique("prompt-lookup"), "k": 5}), tmp_path)
    assert (said.k, said.prompt_lookup_num_tokens, said.max_matching_ngram_size) == (5, 5, 2)


def test_the_server_is_found_in_the_checkout_wherever_its_cell_has_its_folder(tmp_path: Path) -> None:
    env = engine_command(cells()[0], 1, tmp_path).env
    assert (Path(env["PYTHONPATH"]) / "tasks" / "transformers_engine" / "__main__.py").is_file()
    assert not [name for name in env if name.startswith("VLLM")]


def test_a_container_is_refused(tmp_path: Path) -> None:
    boxed = cells()[0].engine.model_copy(update={"command": ("docker", "run", "an/image")})
    with pytest.raises(EngineUnavailable, match="starts a container"):
        engine_command(cells()[0].model_copy(update={"engine": boxed}), 1, tmp_path)


def test_a_python_without_torch_is_told_before_anything_starts(tmp_path: Path, node_python: Path) -> None:
    engine = cells()[0].engine
    with pytest.raises(EngineUnavailable, match="has no torch and transformers: install it there"):
        require_packages(engine.model_copy(update={"command": (str(node_python),)}))
    with pytest.raises(EngineUnavailable, match="no '/nowhere/python'"):
        require_packages(engine.model_copy(update={"command": ("/nowhere/python",)}))


def test_without_a_name_the_python_of_the_paths_vllm_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load_engine("transformers")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert python_words(engine) == ("python3",)
    script = tmp_path / "vllm"
    script.write_text("#!/opt/image/bin/python3.12\nimport vllm\n", encoding="utf-8")
    script.chmod(0o755)
    assert python_words(engine) == ("/opt/image/bin/python3.12",)
