"""The doctor's word on the keys that nodes get: whose they are, and a policy with which theirs can do little.

A runner creates, reads and lists below `runs/` of the store, and overwrites its heartbeat; it deletes nothing. Foreign
code runs beside it.
"""

from __future__ import annotations

import json
import os

from configs.secrets import FOR_NODES
from flows.clusters.skypilot.carried import values_of
from warehouse.store.gs import GsStore
from warehouse.store.proof import Check
from warehouse.store.s3 import S3Store

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
