"""Proof that a store honours create-only, before anything is trusted to it; keys that may not delete are accepted."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from warehouse.ledger.store.protocol import Store, StoreAway, StoreError

RACERS = 8  # writers that race for one key; more than a run ever has on one key

STAY_REMEDY = "give the keys DeleteObject below probe/, a lifecycle rule there, or leave it: nothing else is deleted"


class Check(NamedTuple):
    """One line of a doctor's report. A `remark` is worth knowing, but needs no fixing."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    remark: bool = False


def check_store(store: Store) -> list[Check]:
    """Write, re-create, race for, age and list probe objects, then remove them; on an error one failed check."""
    folder = f"probe/{uuid.uuid4().hex}"
    keys = [f"{folder}/once", f"{folder}/race"]
    try:
        checks = _second_write(store, keys[0])
        with ThreadPoolExecutor(RACERS) as pool:
            winners = sum(pool.map(lambda n: store.put_new(keys[1], f"racer {n}".encode()), range(RACERS)))
        checks.append(Check("a race has one winner", winners == 1, f"{winners} of {RACERS} writers won"))
        age_s, found = store.age_s(keys[0]), len(store.list(folder))
        age = "not there" if age_s is None else f"{age_s:.2f} s old"
        is_young = age_s is not None and -2 <= age_s < 60
        checks.append(Check("the store's clock moves with its writes", is_young, f"a fresh object is {age}"))
        checks.append(Check("listing works", found == 2, f"{found} of 2 probe objects listed"))
    except StoreError as error:
        _left_behind(store, keys)
        return [Check("store can be written and read", False, str(error), "fix the address or the credentials")]
    left = _left_behind(store, keys)
    return checks if left is None else [*checks, Check("probe objects stay", True, left, STAY_REMEDY, remark=True)]


def require_create_only(store: Store) -> str | None:
    """Refuse a store on which two writers of one key can both win (StoreError), or that can't be written.

    Returns a sentence about what stays behind where nothing may be deleted; None: nothing does.
    """
    key = f"probe/{uuid.uuid4().hex}/start"
    try:
        for check in _second_write(store, key):
            if not check.ok:
                raise StoreError(f"{store.url}: {check.detail}; {check.remedy}")
    finally:
        left = _left_behind(store, [key])
    return left


def _left_behind(store: Store, keys: Sequence[str]) -> str | None:
    """Remove probe objects; what stays where that is refused, as a sentence, None if nothing does."""
    try:
        for key in keys:
            store.delete(key)
    except StoreAway:
        return None  # whoever goes on with this store hears of it
    except StoreError as error:
        return f"{len(keys)} probe objects of a few bytes stay below {store.uri(keys[0].rsplit('/', 1)[0])}: {error}"
    return None


def _second_write(store: Store, key: str) -> list[Check]:
    first = store.put_new(key, b"first")
    second = store.put_new(key, b"second")
    kept = store.get(key)
    remedy = "use AWS S3, gs://, Ceph, Cloudflare R2, MinIO or a local folder: results could be overwritten here"
    return [
        Check("create works", first, "a new key was created" if first else "a new key was refused"),
        Check(
            "create-only is honoured",
            not second and kept == b"first",
            "a second create of the same key was refused"
            if not second
            else "it ignores create-only writes (If-None-Match): a second writer silently replaced the first",
            "" if not second else remedy,
        ),
    ]
