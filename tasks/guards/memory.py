"""Guards over what an engine says of its memory."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.guards.finding import Finding
from warehouse.verdicts import Reason


def log_unread(unsaid: Sequence[str]) -> Finding | None:
    """A line that every start of such an engine writes, and that isn't there: its words have changed, or are unknown.

    Args:
        unsaid: figures that the log should have told, by name.
    """
    if not unsaid:
        return None
    sentence = f"the engine's log has no line that we know for {', '.join(unsaid)}: null, not nothing"
    return Finding(Reason.LOG_UNREAD, "suspect", sentence)
