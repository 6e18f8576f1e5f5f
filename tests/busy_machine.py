"""Reasons that a busy machine gives to an engine that is sound: nobody may accuse it, which is no lie found."""

from __future__ import annotations

KEPT_WAITING = frozenset({"client_starved", "client_limited", "unsteady"})
"""What short windows earn beside a neighbour, of an engine whose streams keep their deadlines whatever happens."""

BUSY_MACHINE = KEPT_WAITING | {"stream_mismatch", "stream_burst"}
"""Of an engine that waits for a processor itself, so that its streams stall."""
