"""A user's own sweep in a temporary folder, and ways to spoil it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from configs.load import ConfigError, load_sweep

Write = Callable[..., str]

SWEEP = """\
name: mine
engine: vllm-cpu
gpu: cpu
suite: tiny-quick
serving: {max_model_len: 2048}
cells:
  - {model: tiny-gemma4, precision: bf16, technique: ar}
  - {model: tiny-gemma4, precision: bf16, technique: mtp, k: 4, draft: {family_member: mtp}}
"""
"""A sweep without a fault; its two cells are on lines 7 and 8."""


@pytest.fixture
def sweep_text() -> str:
    return SWEEP


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file below the current (temporary) folder and give its path."""
    monkeypatch.chdir(tmp_path)

    def write_file(text: str, name: str = "mine.yaml") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return f"./{name}"

    return write_file


@pytest.fixture
def refused(write: Write) -> Write:
    """What is said of a sweep that can't be loaded, in one line; `beside`: further files by their names."""

    def said(text: str, beside: dict[str, str] | None = None) -> str:
        for name, content in (beside or {}).items():
            write(content, name)
        with pytest.raises(ConfigError) as caught:
            load_sweep(write(text))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return said
