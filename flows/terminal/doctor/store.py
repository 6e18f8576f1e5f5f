"""The doctor's questions to a store: does it keep its promises, is its clock ours, can a rented node reach it."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from flows.terminal.doctor.keys import node_keys
from warehouse.store import Store, StoreError, open_store
from warehouse.store.proof import Check, check_store
from warehouse.store.s3 import S3Store

MOST_SKEW_S = 60.0
"""Largest difference between a store's clock and ours that passes; from 15 minutes on, signatures are refused."""


def store_checks(url: str) -> list[Check]:
    """Every check of one store; all their names begin with `store`."""
    try:
        store = open_store(url)
    except StoreError as error:
        return [Check("store", False, str(error), "use a folder, s3://bucket/prefix or gs://bucket/prefix")]
    checks = check_store(store)
    if all(check.ok for check in checks):
        checks += [check for check in (_skew(store), _reach(store)) if check is not None]
        checks += [node_keys(store)] if isinstance(store, S3Store) else []
    return [check._replace(name=f"store {store.url}: {check.name}") for check in checks]


def _skew(store: Store) -> Check | None:
    """How far its clock is from ours; None for a folder, whose clock is ours."""
    if not isinstance(store, S3Store):
        return None
    skew_s = store.clock_skew_s()
    ok = abs(skew_s) <= MOST_SKEW_S
    detail = f"the store's clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's"
    return Check("clocks agree", ok, detail, "" if ok else "set this machine's clock (`timedatectl set-ntp true`)")


def _reach(store: Store) -> Check | None:
    """A remark if no rented node can reach the store, else None."""
    if not isinstance(store, S3Store):
        detail, remedy = "a folder of this machine, for sweeps on this machine", "use s3:// or gs:// to rent nodes"
        return Check("reachable from nodes", True, detail, remedy, remark=True)
    if store.endpoint is not None and _is_loopback(urlsplit(store.endpoint).hostname or ""):
        detail = f"{store.endpoint} is this machine: no rented node can reach it (the pocket cloud's can)"
        return Check("reachable from nodes", True, detail, f"point {store.endpoint_variable} elsewhere", remark=True)
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
