"""What `sweep run` makes on this machine before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from configs.expand import expand
from configs.load import load_sweep
from flows.plans import make_plan
from flows.terminal import run as preparing
from flows.terminal.run import prepare
from tasks.host import environments


@pytest.mark.parametrize(("rented", "frameworks"), [(False, ["hret", "inspect", "lm-eval"]), (True, [])])
def test_frameworks_are_made_where_the_evaluations_run(
    monkeypatch: pytest.MonkeyPatch, rented: bool, frameworks: list[str]
) -> None:
    made: list[str] = []

    def fake_ensure(name: environments.Name, tell: object = None) -> Path:
        del tell
        made.append(name)
        return Path("python")

    monkeypatch.setattr(environments, "ensure", fake_ensure)
    full = expand(load_sweep("full"))
    prepare(full if rented else full.model_copy(update={"cloud": None}), Console(quiet=True))
    assert made == ["node", *frameworks]


@pytest.mark.parametrize(("sweep", "trained"), [("tiny-quick", []), ("demo-diffusion", ["diffusion"])])
def test_only_a_model_that_is_not_shipped_is_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sweep: str, trained: list[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environments, "ensure", lambda name, tell=None: Path("python"))
    monkeypatch.setattr(preparing, "train", lambda members, console: asked.extend(members))
    prepare(make_plan(sweep), Console(quiet=True))
    assert asked == trained
