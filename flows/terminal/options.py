"""What several commands share: their options, the terminal, and how a JSON document is printed."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console

SweepName = Annotated[str, typer.Argument(help="a sweep of configs/sweeps/, or a path to your own YAML")]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", help=r"folder, s3://bucket/prefix or gs://bucket/prefix  \[default: SPECSWEEP_STORE, else results/]"
    ),
]
RunOption = Annotated[
    str | None, typer.Option("--run-id", help=r"which run  \[default: made from the plan; the same plan continues it]")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON document instead of tables")]

PIPE_COLUMNS = 130
"""Width of the output where there is no terminal to ask."""


def terminal() -> Console:
    """The terminal; a pipe or a file gets lines wide enough for the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_COLUMNS)


def print_json(document: dict[str, Any]) -> None:
    """Print what `--json` promises: one document, on one line."""
    print(json.dumps(document, ensure_ascii=False))
