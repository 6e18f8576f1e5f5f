"""The clouds that can be asked without SkyPilot."""

from __future__ import annotations

from flows.clusters.clouds.account import Account
from flows.clusters.clouds.aws import AwsAccount
from flows.clusters.clouds.gcp import GcpProject


def accounts() -> list[Account]:
    """Every cloud, each with this machine's credentials."""
    return [AwsAccount(), GcpProject()]
