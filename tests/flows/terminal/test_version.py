"""`sweep --version`."""

from __future__ import annotations

import tomllib

from typer.testing import CliRunner

from configs.checkout import ROOT
from flows.terminal.cli import app


def test_the_command_says_the_version_of_its_checkout() -> None:
    done = CliRunner().invoke(app, ["--version"], catch_exceptions=False)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert done.exit_code == 0
    assert project["version"] in done.output
