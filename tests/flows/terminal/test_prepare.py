"""What `sweep run` makes on this machine before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from configs.expand import expand
from configs.load import load_sweep
from flows.terminal.prepare import prepare
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
    full = expand(load_sweep("full"), recipe="r")
    prepare(full if rented else full.model_copy(update={"cloud": None}), Console(quiet=True))
    assert made == ["node", *frameworks]
