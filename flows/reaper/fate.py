"""Who owns what was found, and therefore whether it goes down. Pure."""

from __future__ import annotations

from typing import NamedTuple

from flows.clusters.names import PREFIX
from flows.reaper.books import Owner
from flows.reaper.found import STRAY, Found
from warehouse.clock import duration


class Fate(NamedTuple):
    """Whether a cluster goes down, whose it is, and why."""

    reap: bool
    owner: str
    why: str


NOBODY = "nobody"


def fate_of(found: Found, *, this_store: str, in_run: str | None, owner: Owner | None, now_s: float) -> Fate:
    """Decide about one cluster.

    Args:
        found: the cluster.
        this_store: `names.store_hash` of the store whose leases we can read.
        in_run: the run of this store that it was rented for; None if there is none.
        owner: who works with it now.
        now_s: now, in seconds since 1970.
    """
    if in_run is not None:
        if owner is not None and found.status == STRAY:
            return Fate(True, NOBODY, f"an earlier launch left it; {owner.doing}, elsewhere")
        if owner is not None:
            return Fate(False, owner.name, owner.doing)
        return Fate(True, NOBODY, f"nobody works on its cell of run {in_run}")
    if found.cluster.startswith(f"{PREFIX}{this_store}-"):
        return Fate(True, NOBODY, "no run of this store has its cell")
    whose = found.rented_by or "?"
    if found.expires_s is None:
        return Fate(False, whose, "of another store, and it does not say when it expires")
    left_s = found.expires_s - now_s
    if left_s > 0:
        return Fate(False, whose, f"of another store, expires in {duration(left_s)}")
    return Fate(True, whose, f"of another store, expired {duration(-left_s)} ago")
