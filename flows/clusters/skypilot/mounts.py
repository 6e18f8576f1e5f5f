"""A mount of SkyPilot's that would show the user's keys is refused, before anything is rented.

For `mode: MOUNT_CACHED` SkyPilot 0.14.1 configures rclone by a command on the node. With AWS keys that don't expire it
writes them into that command (`sky/data/data_utils.py`, `should_use_env_auth_for_s3`): arguments of ssh and bash show
them, and a file keeps them there. With a role or a login of `aws sso` the node uses its own role.
"""

from __future__ import annotations

from typing import Any

from flows.clusters.skypilot.task_file import TaskFile

STATIC = ("env", "shared-credentials-file", "config-file")
"""What botocore calls the ways in which keys are found that SkyPilot would write down."""


def require_no_keys_in_mounts(file: TaskFile) -> None:
    """Refuse a cached mount of a task that may rent at AWS with keys that don't expire.

    Raises:
        TaskFileError: it has one; the text names the mount and the remedy.
    """
    for place, mount in (file.config.get("file_mounts") or {}).items():
        if _is_cached(mount) and _may_rent_at_aws(file.config["resources"]) and _are_keys_static():
            why = "SkyPilot would write your AWS keys, which don't expire, into command lines"
            remedy = f"{why}: rent with `aws sso login` or a role, or leave the mount out, as h100-spot does"
            raise file.wrong(f"file_mounts.{place}.mode", mount["mode"], remedy)


def _is_cached(mount: object) -> bool:
    return isinstance(mount, dict) and str(mount.get("mode")).upper() == "MOUNT_CACHED"


def _may_rent_at_aws(resources: dict[str, Any]) -> bool:
    places = [str(each.get("infra") or each.get("cloud") or "aws") for each in resources.get("any_of") or [resources]]
    return any(place.startswith(("aws", "*")) for place in places)


def _are_keys_static() -> bool:
    import boto3

    credentials = boto3.Session().get_credentials()
    return credentials is not None and credentials.method in STATIC
