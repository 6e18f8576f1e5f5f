"""How long the wire waits: for a connection, for the next byte, for a whole answer, and before one goes stale."""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx

REUSE_S = 3.0
"""Longest idle time after which a kept-alive connection is used again. uvicorn, and so vLLM, closes it after 5 s
(`timeout_keep_alive`), and no request must be sent into a closing one."""

MOST_HEAD_BYTES = 1 << 20
"""An answer's head may be this large; a longer one is a server that never comes to the point."""

PROGRESS_BYTES = 64
"""Bytes of a body that are progress, together: less than an event of a stream, which has its choice, its delta and its
usage. A server that dribbles a byte now and then, or a header, makes no token."""


class Patience(NamedTuple):
    """Bounds on one request, in seconds; None: no bound."""

    connect_s: float = 10.0
    """Until the connection is open: on loopback a listening server takes none."""
    quiet_s: float | None = 300.0
    """Without progress: a whole head, then `PROGRESS_BYTES` of the body each time. Before the head it is a sign that
    the server works on it (`Transport.still_working`). The prefill of a full context takes less on any GPU worth
    renting."""
    whole_s: float | None = None
    """From the request's turn to the answer's last byte, however steadily it trickles."""
    turn_s: float = 0.0
    """Its turn comes with the first byte of its body, or at the latest so long after sending for each request then in
    flight, itself among them. The prompts of those before it are read first."""

    def as_extensions(self) -> dict[str, Any]:
        """For a request's `extensions`."""
        return {"patience": self}


PATIENCE = Patience()
"""Where nobody asks for another."""


def patience_of(request: httpx.Request) -> Patience:
    """The bounds that a request brings; else those of httpx's own timeout, whose `read` is the quiet time."""
    own = request.extensions.get("patience")
    if isinstance(own, Patience):
        return own
    timeout = request.extensions.get("timeout") or {}
    connect_s = timeout.get("connect")
    return Patience(PATIENCE.connect_s if connect_s is None else connect_s, timeout.get("read"))
