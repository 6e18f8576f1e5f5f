"""Instances of the lab's cloud, as its API describes them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple


class Instance(NamedTuple):
    """One instance, alive or terminated."""

    instance_id: str
    cluster: str
    """SkyPilot's name for the cluster on the cloud: the cluster's own name, and a hash of the user."""
    region: str
    zone: str
    state: str
    spot: bool
    launched_at: datetime

    @property
    def alive(self) -> bool:
        """Whether it would be billed."""
        return self.state in ("pending", "running")


def instances_of(ec2: Any, region: str) -> Iterator[Instance]:
    """Every instance of a region, including terminated ones.

    Args:
        ec2: a boto3 client of that region.
        region: its name.
    """
    for reservation in ec2.describe_instances()["Reservations"]:
        for each in reservation["Instances"]:
            yield _instance(each, region)


def _instance(each: dict[str, Any], region: str) -> Instance:
    tags = {tag["Key"]: tag["Value"] for tag in each.get("Tags", [])}
    return Instance(
        each["InstanceId"],
        tags.get("ray-cluster-name", ""),
        region,
        each["Placement"]["AvailabilityZone"],
        each["State"]["Name"],
        each.get("InstanceLifecycle") == "spot",
        each["LaunchTime"],
    )
