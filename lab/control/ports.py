"""A port for SkyPilot's API server that stays free until it starts, perhaps minutes later."""

from __future__ import annotations

import random
import socket

CANDIDATES = range(20000, 30000)  # below the ports that Linux takes for outgoing connections (32768 and up)


def api_port() -> int:
    """A free port whose companion, the server's queue, is free too; labs started side by side choose differently."""
    for port in random.sample(CANDIDATES, len(CANDIDATES)):
        if _is_free(port) and _is_free(queue_port(port)):
            return port
    raise OSError(f"no port of {CANDIDATES} is free on 127.0.0.1")


def reserved(port: int) -> socket.socket:
    """Keep `port` out of those that Linux gives to outgoing connections, for as long as this socket is open.

    A server that sets SO_REUSEADDR can listen there all the same; SkyPilot's API server starts long after this choice.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", port))
    return holder


def queue_port(port: int) -> int:
    """Where a server on `port` has its request queue (sky/server/requests/queues/mp_queue.py of SkyPilot 0.14.1)."""
    return 50000 + (11 + port - 46580) % 10000


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
