"""Proof that a store honours create-only and tells the time, before anything is trusted to it.

Keys that may not delete are accepted.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from warehouse.ledger.store.protocol import Store, StoreAway, StoreError

RACERS = 8  # writers that race for one key; more than a run ever has on one key
RACES = 3  # keys that they race for: before the first one each opens its connection, and they don't arrive together
TOGETHER_S = 60.0  # within which all threads of a race have started

MOST_SKEW_S = 30.0
"""Of a store's clock, to this machine's and to the moments that it stamps its objects with. A cell counts as free after
60 s of silence; 30 s of skew leaves 30 s."""

LEAST_AGE_S = -2.0  # of a fresh object: both moments are told in whole seconds

STAY_REMEDY = "give the keys DeleteObject below probe/, a lifecycle rule there, or leave it: nothing else is deleted"
OTHER_REMEDY = "use AWS S3, gs://, Ceph, Cloudflare R2, MinIO or a local folder: results could be overwritten here"


class Check(NamedTuple):
    """One line of a doctor's report. A `remark` needs no fixing; of what is ok otherwise, no remedy is shown."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    remark: bool = False


def check_store(store: Store) -> list[Check]:
    """Race for, age and list probe objects, then remove them; on an error one failed check."""
    keys = _probe_keys()
    try:
        checks = _proof(store, keys)
        found = len(store.list(keys[0].rpartition("/")[0]))
        checks.append(Check("listing works", found == RACES, f"{found} of {RACES} probe objects listed"))
    except StoreError as error:
        _left_behind(store, keys)
        return [Check("store can be written and read", False, str(error), "fix the address or the credentials")]
    left = _left_behind(store, keys)
    return checks if left is None else [*checks, Check("probe objects stay", True, left, STAY_REMEDY, remark=True)]


def require_create_only(store: Store) -> str | None:
    """Refuse, as StoreError, a store on which two writers of one key can both win, or whose clock is off.

    Also one that can't be written. Returns a sentence about what stays behind where nothing may be deleted; None:
    nothing does.
    """
    keys = _probe_keys()
    try:
        for check in _proof(store, keys):
            if not check.ok:
                raise StoreError(f"{store.url}: {check.detail}; {check.remedy}")
    finally:
        left = _left_behind(store, keys)
    return left


def _probe_keys() -> list[str]:
    folder = f"probe/{uuid.uuid4().hex}"
    return [f"{folder}/race-{number}" for number in range(RACES)]


def _left_behind(store: Store, keys: Sequence[str]) -> str | None:
    """Remove probe objects; what stays where that is refused, as a sentence, None if nothing does."""
    try:
        for key in keys:
            store.delete(key)
    except StoreAway:
        return None  # whoever goes on with this store hears of it
    except StoreError as error:
        return f"{len(keys)} probe objects of a few bytes stay below {store.uri(keys[0].rpartition('/')[0])}: {error}"
    return None


def _proof(store: Store, keys: Sequence[str]) -> list[Check]:
    """What a flow depends on, the worst first: who wins a key, and what the store's clock says."""
    began_s = time.monotonic()
    winners = [_race(store, key) for key in keys]
    late = store.put_new(keys[-1], b"late")
    won = next((len(told) for told in winners if len(told) != 1), 1)
    is_kept = store.get(keys[-1]) in winners[-1]
    return [
        Check(
            "create-only is honoured",
            not late,
            "it ignores create-only writes (If-None-Match): a second writer silently replaced the first"
            if late
            else "a second create of the same key was refused",
            OTHER_REMEDY,
        ),
        Check(
            "a race has one winner",
            won == 1 and is_kept,
            f"{won} of {RACERS} writers of one key at once won{'' if is_kept else ', and the key has other bytes'}",
            OTHER_REMEDY,
        ),
        *_clock_checks(store, keys[-1], began_s),
    ]


def _race(store: Store, key: str) -> list[bytes]:
    """What those wrote who were told that they had created the key."""
    start = threading.Barrier(RACERS, timeout=TOGETHER_S)

    def write(number: int) -> bytes | None:
        data = f"racer {number}".encode()
        start.wait()
        return data if store.put_new(key, data) else None

    with ThreadPoolExecutor(RACERS) as pool:
        return [data for data in pool.map(write, range(RACERS)) if data is not None]


def _clock_checks(store: Store, key: str, began_s: float) -> list[Check]:
    """Of a key that was written since `began_s` (`time.monotonic`)."""
    age_s, skew_s = store.age_s(key), store.clock_skew_s()
    most_s = MOST_SKEW_S + time.monotonic() - began_s
    age = "not there" if age_s is None else f"{age_s:.0f} s old by the store's own clock"
    skew = f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's"
    return [
        Check(
            "the store's clock moves with its writes",
            age_s is not None and LEAST_AGE_S <= age_s <= most_s,
            f"a fresh object is {age} ({LEAST_AGE_S:.0f} to {MOST_SKEW_S:.0f} s are accepted)",
            "set the clocks of the store's servers, and of a proxy before them: live work would look silent",
        ),
        Check(
            "clocks agree",
            abs(skew_s) <= MOST_SKEW_S,
            f"the store's clock is {skew} (at most {MOST_SKEW_S:.0f} s are accepted)",
            "set this machine's clock (`timedatectl set-ntp true`), or the store's",
        ),
    ]
