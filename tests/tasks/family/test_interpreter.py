"""The Triton plug-in of the diffusion cell."""

import importlib.metadata
from pathlib import Path

from tasks.family.interpreter import write_backend


def test_the_backend_is_found_as_an_entry_point(tmp_path: Path) -> None:
    write_backend(tmp_path)
    (found,) = importlib.metadata.distributions(path=[str(tmp_path)])
    (entry,) = found.entry_points.select(group="triton.backends")
    assert (entry.name, entry.value) == ("cpu", "triton_cpu_interpreter")
    (plugin,) = found.entry_points.select(group="vllm.general_plugins")
    assert plugin.value == "triton_cpu_interpreter.empty_rows:register"


def test_its_sources_compile(tmp_path: Path) -> None:
    write_backend(tmp_path)
    for file in tmp_path.rglob("*.py"):
        compile(file.read_text(), str(file), "exec")


def test_the_environment_points_at_the_folder(tmp_path: Path) -> None:
    environment = write_backend(tmp_path / "plug-in")
    assert environment["PYTHONPATH"] == str(tmp_path / "plug-in")
    assert environment["TRITON_INTERPRET"] == "1"
