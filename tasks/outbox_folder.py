"""The folder of an outbox on a node: where it lies, how much may wait in it, what an earlier runner left there."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from configs.errors import SpecsweepError
from warehouse.store import Store
from warehouse.store.local import LocalStore

BOUND_VARIABLE = "SPECSWEEP_OUTBOX_MB"
"""Environment variable: how much may wait on the node's disk, 10^6 bytes. With more, measuring waits for the store."""

BOUND_MB = 1000.0
"""Unless that variable says otherwise: days of the longest evaluations that we have."""

COMMIT = "/commit.json"


def outbox_folder(workdir: Path, store: Store) -> Path:
    """Where letters to a store wait, in a cell's folder on this machine."""
    return workdir / f"outbox-{hashlib.sha256(store.url.encode()).hexdigest()[:12]}"


def send_left(store: Store, folder: Path) -> None:
    """Send what an earlier runner of the cell left on this disk, commits last: none names what is not there.

    It does no harm where somebody else has measured the cell since: their commits stand.
    """
    left = LocalStore(folder)
    for key in sorted(left.list(""), key=lambda key: (key.endswith(COMMIT), key)):
        data = left.get(key)
        if data is not None:
            store.put_new(key, data)
            left.delete(key)


def bound_mb() -> float:
    """How much may wait, 10^6 bytes.

    Raises:
        SpecsweepError: what the variable says is no amount.
    """
    said = os.environ.get(BOUND_VARIABLE, "")
    try:
        most_mb = float(said or BOUND_MB)
    except ValueError:
        most_mb = -1.0
    if not 0 <= most_mb < float("inf"):
        raise SpecsweepError(f"{BOUND_VARIABLE}={said!r}: give 10^6 bytes, such as {BOUND_MB:.0f}")
    return most_mb
