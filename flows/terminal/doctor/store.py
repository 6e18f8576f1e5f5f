"""The doctor's questions to a store: does it keep its promises, is its clock ours, can nodes reach it, with whose keys.

A runner creates, reads and lists below `runs/` of the store, and overwrites its heartbeat; it deletes nothing. Foreign
code runs beside it.
"""

from __future__ import annotations

import ipaddress
import json
import os
from urllib.parse import urlsplit

from configs.secrets import FOR_NODES
from flows.clusters.skypilot.carried import values_of
from warehouse.ledger.store import Store, StoreError, open_store
from warehouse.ledger.store.gs import GsStore
from warehouse.ledger.store.proof import Check, check_store
from warehouse.ledger.store.s3 import S3Store

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


NAME = "keys of nodes"


def node_keys(store: S3Store) -> Check:
    """Whose keys nodes get, and the policy for keys of their own."""
    kind = "GS" if isinstance(store, GsStore) else "AWS"
    names = (f"{kind}_ACCESS_KEY_ID", f"{kind}_SECRET_ACCESS_KEY")
    if all(os.environ.get(FOR_NODES + name) for name in names):
        return Check(NAME, True, f"their own, {FOR_NODES}{names[0]}")
    if values_of(names, store.url):
        detail = "nodes get the keys that you rent with, and foreign code runs there"
    else:
        detail = (
            "nodes get none of yours, and use their machine's role: SkyPilot's on AWS may do anything with EC2 and S3"
        )
    remedy = (
        f"for keys that can do no more than a node needs: {_policy(store)}; export them as {FOR_NODES}{names[0]}, ..."
    )
    return Check(NAME, True, detail, remedy, remark=True)


def _policy(store: S3Store) -> str:
    folder = f"{store.prefix}/runs/" if store.prefix else "runs/"
    if isinstance(store, GsStore):
        place = f'resource.name.startsWith("projects/_/buckets/{store.bucket}/objects/{folder}")'
        return (
            f"an HMAC key of a service account with `gcloud storage buckets add-iam-policy-binding gs://{store.bucket} "
            f"--role roles/storage.objectUser --condition 'title=runs,expression={place}' --member serviceAccount:...`"
        )
    return f"an IAM user with the policy {json.dumps(policy(store.bucket, folder))}"


def policy(bucket: str, folder: str) -> dict[str, object]:
    """An IAM policy that lets its user create and read objects of a bucket's folder, and see which there are.

    S3 says that an object isn't there, rather than that it may not be looked at, only to who may list. That question
    carries no prefix, hence `IfExists`: names of other keys can be seen, their contents not.
    """
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:PutObject", "s3:GetObject"],
                "Resource": f"arn:aws:s3:::{bucket}/{folder}*",
            },
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": f"arn:aws:s3:::{bucket}",
                "Condition": {"StringLikeIfExists": {"s3:prefix": f"{folder}*"}},
            },
        ],
    }
