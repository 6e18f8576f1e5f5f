"""The server's command line says what drafts, or that it contradicts itself."""

from __future__ import annotations

import pytest

from tasks.transformers_engine.arguments import parse

BASE = ("--model", "m", "--served-model-name", "n", "--max-model-len", "64")


@pytest.mark.parametrize(
    ("more", "k"),
    [
        ((), None),
        (("--assistant-model", "d", "--num-assistant-tokens", "4"), 4),
        (("--prompt-lookup-num-tokens", "10"), 10),
    ],
)
def test_k_is_that_of_whatever_drafts(more: tuple[str, ...], k: int | None) -> None:
    assert parse([*BASE, *more]).k == k


@pytest.mark.parametrize(
    "more",
    [
        ("--assistant-model", "d"),
        ("--num-assistant-tokens", "4"),
        ("--assistant-model", "d", "--num-assistant-tokens", "4", "--prompt-lookup-num-tokens", "4"),
        ("--num-assistant-tokens", "0", "--assistant-model", "d"),
        ("--reasoning-parser", "nobody's"),
        ("--speculative-config", "{}"),
    ],
)
def test_what_contradicts_itself_does_not_start(more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*BASE, *more])
    assert "error:" in capsys.readouterr().err
