"""What the flow asks of a place to run: launch, look, take down."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class CellJob(NamedTuple):
    """One cell of one run, as a node is told about it; the rest is in the store."""

    store_url: str
    run_id: str
    cell_key: str


class LaunchFailed(Exception):
    """A cluster could not be started; the text says why and what to do."""


class Cluster(Protocol):
    """A place that runs one cell's node runner."""

    def launch(self, job: CellJob) -> None:
        """Start the node runner.

        Raises:
            LaunchFailed: it could not be started.
        """

    def exit_code(self) -> int | None:
        """The node runner's exit code; none while it runs. Negative: killed by that signal."""

    def log_tail(self, lines: int) -> list[str]:
        """The last lines that the node runner printed."""

    def down(self) -> None:
        """Take everything down. May be called at any time, more than once."""
