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
    """Five hex digits that tell clusters of one store from those of another in the same account."""
    return _hex(store_url.rstrip("/"))[:5]


def cluster_name(store_url: str, run_id: str, cell_key: str) -> str:
    """`specsweep-<store>-<run and cell>`, 26 characters: GCP has room for 35, SkyPilot's user hash included."""
    return f"{PREFIX}{store_hash(store_url)}-{_hex(f'{run_id}/{cell_key}')[:10]}"


def _hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
