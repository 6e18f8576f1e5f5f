"""EC2 instances of our SkyPilot clusters, in every region that the account has enabled."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from flows.clusters.answers import REQUEST_S, NoAnswer, answered, asked
from flows.clusters.clouds.account import CLUSTER_TAG, CloudError, Instance, NotAsked, Sighting
from flows.clusters.protocol import PREFIX
from warehouse.ledger.placement import MachineEnd, Offer

BILLED_STATES = ("pending", "running", "stopping", "stopped")  # a stopped instance still pays for its disk
REFUSALS = ("UnauthorizedOperation", "AccessDenied", "AuthFailure", "OptInRequired")  # codes of a closed region
ENDED_STATES = ("shutting-down", "terminated")  # states in which a machine no longer costs anything
INTERRUPTED = "Server.SpotInstanceTermination"  # state reason of a spot machine that EC2 took back; it has no date

ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
"""In the state transition reason of a machine that was terminated, e.g. `User initiated (2026-11-21 20:00:00 GMT)`."""

FIRST_REGION = "us-east-1"  # asked for the list of regions when the user's configuration names none
CLOCKS_AGREE_S = 5.0  # how long before our request a machine may have been launched, by EC2's clock
LISTED_S = 3000.0  # AWS lists a terminated machine for an hour; what is that young and isn't listed never was
REGION_S = 150.0  # for the machines of a region: three tries of boto3, each of 10 s to connect and 30 s to read
FAILURES = (ClientError, BotoCoreError, NoAnswer)


class AwsAccount:
    """The account for which boto3 finds credentials."""

    cloud = "aws"

    def __init__(self) -> None:
        self._keys: Any = None
        self._clients: dict[str, Any] = {}

    def look(self) -> Sighting:
        """Instances of every enabled region (see `Account.look`)."""
        session, credentials = signed_in()
        if credentials is None:
            raise NotAsked("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or `aws configure`")
        with closing(_client(session, session.region_name or FIRST_REGION)) as client:
            try:
                regions = sorted(region["RegionName"] for region in client.describe_regions()["Regions"])
            except (ClientError, BotoCoreError) as error:
                raise CloudError(f"aws: its regions can't be listed ({error}): allow ec2:DescribeRegions") from error
        if (keys := credentials.get_frozen_credentials()) != self._keys:
            self._keys, self._clients = keys, {}
        for region in regions:  # made once: each takes 40 ms of CPU. In one thread: sessions are not thread-safe
            if region not in self._clients:
                self._clients[region] = _client(session, region)
        asking = {region: asked(partial(_in_region, self._clients[region])) for region in regions}
        wait(asking.values(), REGION_S)  # one that hangs hides no other
        answers = [each.result() if each.done() else _mute(region) for region, each in asking.items()]
        refused = tuple(where for answer in answers for where in answer.refused)
        if len(refused) == len(regions):
            raise CloudError(f"aws: no region may be looked into ({refused[0]}): allow ec2:DescribeInstances")
        return Sighting(
            self.cloud,
            instances=tuple(instance for answer in answers for instance in answer.instances),
            refused=refused,
            problems=tuple(problem for answer in answers for problem in answer.problems),
        )

    def terminate(self, instances: Sequence[Instance]) -> None:
        """Terminate by id (see `Account.terminate`)."""
        _each(instances, lambda client, instance_id: client.terminate_instances(InstanceIds=[instance_id]))

    def label(self, instances: Sequence[Instance], labels: Mapping[str, str]) -> None:
        """Tag by id (see `Account.label`)."""
        tags = [{"Key": name, "Value": value} for name, value in labels.items()]
        _each(instances, lambda client, instance_id: client.create_tags(Resources=[instance_id], Tags=tags))


def _each(instances: Sequence[Instance], do: Callable[[Any, str], object]) -> None:
    """Do something to each machine by its id, to all at once; one that EC2 does not know any more is fine."""
    session, _ = signed_in()

    def one(client: Any, instance_id: str) -> None:
        with closing(client):
            do(client, instance_id)

    asking = [(each, asked(partial(one, _client(session, each.region), each.instance_id))) for each in instances]
    wait([answer for _, answer in asking], REQUEST_S)
    failed = []
    for instance, answer in asking:
        error = answer.exception() if answer.done() else NoAnswer(f"no answer within {REQUEST_S:.0f} s")
        is_gone = isinstance(error, ClientError) and _code(error).startswith("InvalidInstanceID")
        if error is not None and not is_gone:
            failed.append(f"{instance.where} {instance.instance_id}: {error}")
    if failed:
        raise CloudError("; ".join(failed))


def machines_of(cluster: str, offer: Offer | None) -> ClusterInstances | None:
    """The machines of a cluster that was rented by an offer; None if its cloud is not asked: only AWS is, with keys."""
    if offer is None or offer.cloud != "aws" or not offer.region:
        return None
    with suppress(CloudError):  # SkyPilot needs the keys, too, and says what is wrong with them
        session, credentials = signed_in()
        return None if credentials is None else ClusterInstances(cluster, offer.region, _client(session, offer.region))
    return None


class ClusterInstances:
    """The machines of one cluster in one region, terminated ones too, which AWS lists for about an hour."""

    def __init__(self, cluster: str, region: str, client: Any) -> None:
        self._region, self._client = region, client
        self._filters = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [f"{cluster}-*"]}]

    def known(self) -> dict[str, Instance] | None:
        """Machines by instance id; None if the cloud did not say."""
        try:
            answer = answered(partial(self._client.describe_instances, Filters=self._filters), REQUEST_S)
        except FAILURES:
            return None  # nothing is known now; the caller goes on without this witness
        found = (each for reservation in answer["Reservations"] for each in reservation["Instances"])
        return {each["InstanceId"]: _instance(self._region, each) for each in found}

    def terminate(self, since_s: float = 0.0) -> bool:
        """Terminate those that are billed, and say whether all that were rented have ended.

        False: EC2 can't be asked, or shows none that was up or launched since then (seconds since 1970). So one may
        still come.
        """
        known = self.known()
        alive = [name for name, each in (known or {}).items() if each.state in BILLED_STATES]
        try:
            if alive:
                answered(partial(self._client.terminate_instances, InstanceIds=alive), REQUEST_S)
        except FAILURES:
            return False
        return any(
            each.instance_id in alive or (each.launched_at_s or 0.0) >= since_s - CLOCKS_AGREE_S
            for each in (known or {}).values()
        )

    def end_when_off(self, instance_ids: Sequence[str]) -> bool:
        """Have machines terminated, not stopped, when they power themselves off; False: the account may not say so."""
        try:
            for instance_id in instance_ids:
                wanted = {"Attribute": "instanceInitiatedShutdownBehavior", "Value": "terminate"}
                answered(partial(self._client.modify_instance_attribute, InstanceId=instance_id, **wanted), REQUEST_S)
        except FAILURES:
            return False
        return True

    def last_end(self, asked_s: float) -> MachineEnd | None:
        """How the newest machine launched since then ended, or that none was (`is_of_none`); None: not known."""
        known = self.known()
        if known is None:
            return None
        launched = {(each.launched_at_s or 0.0): each.end for each in known.values()}
        newest_s = max(launched, default=0.0)
        if newest_s >= asked_s - CLOCKS_AGREE_S:
            return launched[newest_s]
        # our clock may be ahead of EC2's: then a machine of ours was there since, if not launched since. One that ended
        # before we asked is the cell's last machine, whose place this one was to take
        were_there = [end for end in launched.values() if end is None or (end.at_s or 0.0) >= asked_s]
        is_listed = time.time() - asked_s < LISTED_S
        return MachineEnd(asked_s, launched_at_s=asked_s) if is_listed and not were_there else None


def signed_in() -> tuple[Any, Any]:
    """A session of boto3 and its credentials, None if it has none. CloudError: they can't be had."""
    try:
        session = boto3.Session()
        return session, answered(session.get_credentials, REQUEST_S)  # a program of the user's may have to be run
    except FAILURES as error:
        raise CloudError(f"aws: its credentials can't be had ({error}): log in again, or mend AWS's config") from error


def _client(session: Any, region: str) -> Any:
    config = Config(connect_timeout=10, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 3})
    return session.client("ec2", region_name=region, config=config)


def _mute(region: str) -> Sighting:
    return Sighting("aws", problems=(f"aws/{region}: no answer within {REGION_S:.0f} s",))


def _in_region(client: Any) -> Sighting:
    region = client.meta.region_name
    filters = [
        {"Name": f"tag:{CLUSTER_TAG}", "Values": [f"{PREFIX}*"]},
        {"Name": "instance-state-name", "Values": list(BILLED_STATES)},
    ]
    with closing(client):
        try:
            pages = list(client.get_paginator("describe_instances").paginate(Filters=filters))
        except ClientError as error:
            said = f"aws/{region}: {_code(error)}"
            return Sighting("aws", refused=(said,)) if _code(error) in REFUSALS else Sighting("aws", problems=(said,))
        except BotoCoreError as error:
            return Sighting("aws", problems=(f"aws/{region}: {error}",))
    found = (each for page in pages for reservation in page["Reservations"] for each in reservation["Instances"])
    return Sighting("aws", instances=tuple(_instance(region, each) for each in found))


def _instance(region: str, record: dict[str, Any]) -> Instance:
    tags = {tag["Key"]: tag["Value"] for tag in record.get("Tags", [])}
    return Instance(
        cloud="aws",
        region=region,
        zone=record.get("Placement", {}).get("AvailabilityZone"),
        instance_id=record["InstanceId"],
        cluster=tags[CLUSTER_TAG],
        state=record["State"]["Name"],
        spot=record.get("InstanceLifecycle") == "spot",
        launched_at_s=_launched_at_s(record),
        labels=tags,
        end=_end(record) if record["State"]["Name"] in ENDED_STATES else None,
    )


def _end(record: dict[str, Any]) -> MachineEnd:
    said = ENDED_AT.search(record.get("StateTransitionReason", ""))
    at_s = None if said is None else datetime.fromisoformat(f"{said[1]}+00:00").timestamp()
    interrupted = record.get("StateReason", {}).get("Code") == INTERRUPTED
    return MachineEnd(at_s, interrupted, _launched_at_s(record))


def _launched_at_s(record: dict[str, Any]) -> float | None:
    return record["LaunchTime"].timestamp() if "LaunchTime" in record else None


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
