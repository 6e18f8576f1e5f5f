"""Which runs a store has. What lies among them and is none for this version is named, and the rest goes on."""

from __future__ import annotations

import re
import sys

from pydantic import ValidationError

from configs.step import VARIABLE as STEPS_VARIABLE
from warehouse.ledger.store import Store, StoreError

RUN_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")
"""What a run may be called: it becomes a folder name and part of a cluster name."""


OUT = "move its folder out of runs/"
"""What helps with whatever lies there and is no run of this version."""


class OddRun(StoreError):
    """What has a run's place in the store and is none for this version: a foreign folder, a copy, a newer version's."""

    def __init__(self, run_id: str, text: str) -> None:
        super().__init__(text)
        self.run_id = run_id


def unreadable(key: str, error: ValidationError) -> OddRun:
    """What to say of an object of a run that this version can't read."""
    _, run_id, *inside = key.split("/")
    first = error.errors(include_url=False)[0]
    where = ": ".join(filter(None, ("/".join(inside), ".".join(map(str, first["loc"])), first["msg"])))
    by_whom = f"by another version of specsweep, or with other steps in {STEPS_VARIABLE}, or is none"
    return OddRun(run_id, f"run {run_id!r} was written {by_whom} ({where}): use that version, or {OUT}")


def run_ids(store: Store) -> list[str]:
    """Names of the folders below `runs/`, sorted, whatever is in them; files beside them are nothing's."""
    return sorted({parts[1] for key in store.list("runs") if len(parts := key.split("/")) > 2})


def tell_skipped(odd: OddRun) -> None:
    """Say on stderr, in one line, that something was left out, why, and what to do."""
    print(f"sweep: skipped: {odd}", file=sys.stderr, flush=True)
