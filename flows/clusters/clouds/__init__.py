"""What a cloud itself says of our machines, without SkyPilot."""

from __future__ import annotations

from flows.clusters.clouds.account import Account


def accounts() -> list[Account]:
    """Every cloud that can be asked without SkyPilot, each with this machine's credentials."""
    from flows.clusters.clouds.aws import AwsAccount  # boto3 takes a while to import
    from flows.clusters.clouds.gcp import GcpProject

    return [AwsAccount(), GcpProject()]
