"""What a cloud itself says of our machines, without SkyPilot."""

from __future__ import annotations

from flows.clusters.clouds.account import Account, NotAsked


def accounts() -> list[Account]:
    """Every cloud that can be asked without SkyPilot, each with this machine's credentials."""
    from flows.clusters.clouds.aws import AwsAccount  # boto3 takes a while to import
    from flows.clusters.clouds.gcp import GcpProject

    return [AwsAccount(), GcpProject()]


def terminate(cluster: str, cloud: str) -> bool:
    """End a cluster's machines by id; False: its cloud shows none, or not all. CloudError: some are still there."""
    for account in accounts():
        if account.cloud == cloud:
            try:
                sighting = account.look()
            except NotAsked:
                return False
            mine = [each for each in sighting.instances if each.cluster.startswith(f"{cluster}-")]
            account.terminate(mine)
            return bool(mine) and not sighting.problems
    return False
