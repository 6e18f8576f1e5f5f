"""What Prefect shows of a run: form, names, tags, states and artifacts. It repeats the ledger and decides nothing."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from textwrap import indent
from typing import Annotated, cast
from uuid import UUID

from prefect import runtime
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, StateType
from pydantic import WithJsonSchema
from rich.console import Console, RenderableType

from configs.errors import shortened
from configs.load import names
from flows.cell import CellEnd, CellOutcome
from warehouse.ledger.commits import Commit, said
from warehouse.report.answer import Answer
from warehouse.report.display.figures import plural

SweepChoice = Annotated[
    str,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "title": "shipped", "enum": [*names("sweeps")]},
                {"type": "string", "title": "path to your own YAML"},
            ]
        }
    ),
]
"""A sweep: in Prefect's form a choice or a path; its server, which checks parameters by the form, takes any text."""

CELL_STATES: Mapping[CellEnd, tuple[StateType, str]] = {
    "measured": (StateType.COMPLETED, "Completed"),
    "rejected": (StateType.COMPLETED, "Rejected"),
    "failed": (StateType.FAILED, "Failed"),
    "stopped": (StateType.CANCELLED, "Cancelled"),
}
"""Type and name of the state in which a cell's task run ends."""


def run_name() -> str:
    """What the current flow run is called: its sweep, else its flow, and when it was scheduled."""
    name = runtime.flow_run.parameters.get("name") or runtime.flow_run.flow_name
    return f"{Path(name).stem} {runtime.flow_run.scheduled_start_time:%Y-%m-%d %H:%M} UTC"


def tag_run(*tags: str) -> None:
    """Add tags to the current flow run; it keeps its own, by which the automations know it."""
    every = [*dict.fromkeys([*runtime.flow_run.tags, *tags])]
    with get_client(sync_client=True) as client:
        client.update_flow_run(UUID(runtime.flow_run.id), tags=every)


def shown(what: str, show: Callable[[], object], tell: Callable[[str], None]) -> None:
    """Show something in Prefect, or tell that `what` ("the tags are") was not: what ails its server stops no node."""
    try:
        show()
    except Exception as error:
        tell(f"{what} not told: {shortened(f'{type(error).__name__}: {error}')}")


class ProgressBar:
    """The current flow run's bar, made as soon as Prefect can be told."""

    def __init__(self, run_id: str, tell: Callable[[str], None]) -> None:
        """Show an empty one; `tell` gets why a bar can't be shown."""
        self._run_id, self._tell = run_id, tell
        self._id: UUID | None = None
        self.show(0.0)

    def show(self, percent: float) -> None:
        """Fill it so far."""
        shown("the progress bar is", partial(self._show, percent), self._tell)

    def _show(self, percent: float) -> None:
        if self._id is None:
            about = f"run {self._run_id}"
            self._id = cast(UUID, create_progress_artifact(percent, key="progress", description=about))
        else:
            update_progress_artifact(self._id, progress=percent)


def cell_state(outcome: CellOutcome) -> State[CellOutcome]:
    """The state of a cell's task run, with the outcome as its result."""
    kind, name = CELL_STATES[outcome.ended]
    tried = plural(outcome.attempts, "attempt") if outcome.attempts else "begun by an earlier flow"
    message = outcome.reason or tried
    return State(type=kind, name=name, message=message, data=outcome)


def step_state(commit: Commit) -> State[str]:
    """The state of a committed step's task run: Completed, under the name of a verdict that isn't ok."""
    name = "Completed" if commit.verdict == "ok" else commit.verdict.title()
    message = f"{said(commit)}; {commit.wall_s:.1f} s, attempt {commit.attempt}"
    return State(type=StateType.COMPLETED, name=name, message=message, data=commit.verdict)


def show_results(run_id: str, rows: list[dict[str, str]], report: str) -> None:
    """Show a run's rows as a table, and its report as text, which needs no access to the page."""
    create_table_artifact(key="results", table=rows, description=f"run {run_id}")
    create_markdown_artifact(key="report", markdown=report, description=f"report after run {run_id}")


def report_text(found: Sequence[Answer], table: RenderableType, page: str) -> str:
    """A run's answers, its table as on a terminal of 80 columns, and the place of the page, as Markdown."""
    parts = []
    for answer in found:
        about = f"{answer.about}: " if answer.about else ""
        parts += [f"## {_plain(about + answer.verdict)}", _plain(answer.evidence)]
    terminal = Console(file=StringIO(), width=80, force_terminal=False, no_color=True)  # what is wider, Prefect cuts
    with terminal.capture() as drawn:
        terminal.print(table)
    host = "" if "://" in page else f" on {platform.node()}"
    return "\n\n".join([*parts, indent(drawn.get(), " " * 4), f"The page: `{page}`{host}"]) + "\n"


def _plain(text: str) -> str:
    """A text that Markdown shows as it is, on one line: names are the user's, and no markup."""
    return re.sub(r"[\\`*_\[\]<>|~#&]", r"\\\g<0>", " ".join(text.split()))
