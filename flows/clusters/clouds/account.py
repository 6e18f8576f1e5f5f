"""Machines as a cloud itself knows them: what SkyPilot's own database has forgotten is billed all the same.

Every instance that SkyPilot makes has its cluster's name as a tag. The request that rents it writes the tag, so a
machine of ours without it can't exist. Our labels (`protocol.LABEL` and those of `task_file`) come in the same request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from configs.errors import SpecsweepError
from warehouse.ledger.placement import MachineEnd

CLUSTER_TAG = "skypilot-cluster-name"  # SkyPilot's: its value is the cluster's name and a hash of its user


class Instance(NamedTuple):
    """One machine. `cluster` is the tag's value; `state` is the cloud's word; `end` is None if it has not ended."""

    cloud: str
    region: str
    zone: str | None
    instance_id: str
    cluster: str
    state: str
    spot: bool
    launched_at_s: float | None
    labels: Mapping[str, str]
    end: MachineEnd | None = None

    @property
    def where(self) -> str:
        """Short name for people, e.g. `aws/us-east-1a`."""
        return f"{self.cloud}/{self.zone or self.region}"


class Sighting(NamedTuple):
    """What one cloud answered. `refused`: places closed to our credentials, where we can't have rented."""

    cloud: str
    instances: tuple[Instance, ...] = ()
    refused: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class NotAsked(SpecsweepError):
    """A cloud is not set up here; the text says what is missing."""


class CloudError(SpecsweepError):
    """A cloud did not do what was asked; the text says where and why."""


class Account(Protocol):
    """One cloud, with this machine's credentials."""

    @property
    def cloud(self) -> str:
        """SkyPilot's name for it, in lower case."""

    def look(self) -> Sighting:
        """Every machine of clusters with `protocol.PREFIX`; NotAsked: no credentials or libraries; or CloudError."""

    def terminate(self, instances: Sequence[Instance]) -> None:
        """Terminate machines of this cloud, gone ones too; CloudError names those that are still there."""

    def label(self, instances: Sequence[Instance], labels: Mapping[str, str]) -> None:
        """Add labels to machines of this cloud, gone ones too; CloudError names those without them."""
