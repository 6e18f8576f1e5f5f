"""What clusters are called: the same cell of the same run of the same store always gets the same name.

A name is how a flow that starts again finds what an earlier one rented, and how the reaper knows whose a cluster is.
"""

from __future__ import annotations

import hashlib

PREFIX = "specsweep-"
"""Beginning of every cluster's name."""

LABEL = "specsweep"
"""Label of everything rented: its value is the store's hash."""


def store_hash(store_url: str) -> str:
    """Four hex digits that tell clusters of one store from those of another in the same account."""
    return hashlib.sha256(store_url.rstrip("/").encode()).hexdigest()[:4]


def cluster_name(store_url: str, run_id: str, cell_key: str) -> str:
    """At most 30 characters, so that no cloud shortens it: `specsweep-<store>-<run>-<cell>`."""
    run = hashlib.sha256(run_id.encode()).hexdigest()[:6]
    return f"{PREFIX}{store_hash(store_url)}-{run}-{cell_key[:8]}"
