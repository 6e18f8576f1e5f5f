"""The control plane: moto's EC2, S3, IAM and STS, with a capacity table, inside the daemon's process.

moto knows neither full zones nor spot instances that are taken back. Its addresses could be somebody's, and two writers
can create one key. So four of its functions are replaced, and one of botocore's, which reads the same dates again and
again. The backend is read directly: asking over HTTP once a second would use the cores on which the engines are timed.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import random
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import botocore.utils
import yaml
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends, elastic_network_interfaces
from moto.ec2.models.instances import InstanceBackend, StateReason
from moto.ec2.responses.instances import InstanceResponse
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
from moto.s3.exceptions import S3ClientError
from moto.s3.models import S3Backend

from lab.bodies.metadata import ROLE
from lab.control.creates import create_one_at_a_time
from lab.paths import BUCKET, RECLAIM_TAG, REGIONS

_ALIVE = ("pending", "running")
_ACCOUNT = "123456789012"  # the account of moto's default credentials


INTERRUPTED = "Server.SpotInstanceTermination"  # EC2's code for a spot machine that it took back


class LiveInstance(NamedTuple):
    """An instance that is pending or running."""

    instance_id: str
    instance_type: str
    region: str
    zone: str
    private_ip: str
    public_ip: str
    authorized_keys: tuple[str, ...]
    first_boot: str  # shell script of the commands that cloud-init would run at the first boot
    ends_when_off: bool  # whether it is terminated when it powers itself off; else it is stopped, and its disk kept


class NoCapacity(EC2ClientError):
    """AWS's own answer for a full zone; it makes SkyPilot try the next one."""

    def __init__(self, instance_type: str, zone: str) -> None:
        super().__init__(
            "InsufficientInstanceCapacity",
            f"We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested "
            f"({zone}).",
        )


class ControlPlane:
    """moto on a port of its own."""

    def __init__(self, capacity: Path) -> None:
        """Start it and furnish the account; `capacity`: JSON, zone -> number of instances, read at every launch."""
        self.changed = threading.Event()  # set when instances were launched or terminated
        _mend_moto(capacity, self.changed)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        self.port: int = self._server.get_host_and_port()[1]
        _furnish(f"http://127.0.0.1:{self.port}")

    def machines(self) -> list[LiveInstance]:
        """All instances that should have a body."""
        return [
            _machine(instance, region)
            for region in REGIONS
            for instance in _backend(region).all_instances()
            if instance.state in _ALIVE
        ]

    def terminate(self, machine: LiveInstance) -> None:
        """Terminate an instance, as if the cloud had lost it."""
        _backend(machine.region).terminate_instances([machine.instance_id])

    def reclaim(self, machine: LiveInstance) -> None:
        """Take a spot instance back: it is not charged in its first hour."""
        _backend(machine.region).create_tags([machine.instance_id], {RECLAIM_TAG: "yes"})
        self.terminate(machine)

    def powered_off(self, machine: LiveInstance) -> None:
        """Do with an instance that has shut down what was said when it was launched, or since."""
        if machine.ends_when_off:
            self.terminate(machine)
        else:
            _backend(machine.region).stop_instances([machine.instance_id])


def _backend(region: str) -> Any:
    return ec2_backends[_ACCOUNT][region]


def _machine(instance: Any, region: str) -> LiveInstance:
    config = _cloud_config(instance.user_data)
    lines = (line if isinstance(line, str) else shlex.join(line) for line in config.get("runcmd") or [])
    is_spot = instance.lifecycle == "spot"  # a one-time request's machine can't be stopped
    return LiveInstance(
        instance.id,
        instance.instance_type,
        region,
        instance.placement.zone,
        instance.private_ip,
        instance.public_ip or instance.private_ip,
        tuple(key for user in config.get("users", []) for key in user.get("ssh_authorized_keys", [])),
        "".join(f"{line}\n" for line in lines),
        is_spot or instance.instance_initiated_shutdown_behavior == "terminate",
    )


@functools.lru_cache(64)
def _cloud_config(user_data: str | bytes | None) -> Mapping[str, Any]:
    """A `#cloud-config`, which comes base64-encoded once or twice; kept: each machine's is asked for every second."""
    text = (user_data or b"").decode() if isinstance(user_data, bytes) else str(user_data or "")
    for _ in range(3):
        if text.startswith("#cloud-config"):
            return dict(yaml.safe_load(text))
        text = base64.b64decode(text).decode()
    return {}


def _mend_moto(capacity: Path, changed: threading.Event) -> None:
    launch: Callable[..., Any] = InstanceBackend.run_instances
    terminate: Callable[..., Any] = InstanceBackend.terminate_instances

    def run_instances(self: Any, image_id: str, count: int, *rest: Any, **options: Any) -> Any:
        zone = _zone(self, options)
        room = json.loads(capacity.read_text(encoding="utf-8")) if capacity.exists() else {}
        used = sum(each.state in _ALIVE and each.placement.zone == zone for each in self.all_instances())
        if zone in room and used + int(count) > room[zone]:
            raise NoCapacity(options.get("instance_type", ""), zone)
        reservation = launch(self, image_id, count, *rest, **options)
        changed.set()
        return reservation

    def terminate_instances(self: Any, instance_ids: list[str]) -> Any:
        try:
            return terminate(self, instance_ids)
        finally:
            for instance in self.all_instances():
                if instance.id in instance_ids and any(each["key"] == RECLAIM_TAG for each in instance.get_tags()):
                    # as EC2 says it of one that it took back: another reason than `User initiated`, and no date
                    instance._reason = INTERRUPTED
                    instance.state_reason = StateReason(f"{INTERRUPTED}: Spot instance termination", INTERRUPTED)
            changed.set()

    create_one_at_a_time()
    InstanceBackend.run_instances = run_instances  # type: ignore[method-assign]
    InstanceBackend.terminate_instances = terminate_instances  # type: ignore[method-assign]
    # RFC 2544's range for benchmarks: nobody's public address, should anything ever connect to one
    vars(elastic_network_interfaces)["random_public_ip"] = _benchmark_address
    # a listing's dates were read from text for each object, a third of its time, and listings are most of what is asked
    vars(botocore.utils)["parse_timestamp"] = functools.lru_cache(4096)(botocore.utils.parse_timestamp)


def _benchmark_address() -> str:
    return f"198.18.{random.randrange(256)}.{random.randrange(1, 255)}"


def _zone(backend: Any, options: dict[str, Any]) -> str:
    """Where a launch would go: the zone asked for, that of its subnet, or moto's default."""
    if options.get("placement"):
        return str(options["placement"])
    cards = options.get("nics") or []
    cards = list(cards.values()) if isinstance(cards, dict) else cards
    named = (card.get("SubnetId") or card.get("subnet_id") for card in cards if card)
    subnet = options.get("subnet_id") or next(named, None)
    return str(backend.get_subnet(subnet).availability_zone) if subnet else f"{backend.region_name}a"


def _furnish(endpoint: str) -> None:
    """Add what a real account has and moto's lacks (internet gateways, SkyPilot's role), and a bucket.

    SkyPilot's own policy for the role has no `Version`: moto refuses it, and the first launch loses 30 s and a zone.
    """
    os.environ["AWS_ENDPOINT_URL"] = endpoint
    for region in REGIONS:
        ec2 = boto3.client("ec2", region_name=region)
        vpc = ec2.describe_vpcs(Filters=[{"Name": "isDefault", "Values": ["true"]}])["Vpcs"][0]["VpcId"]
        gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
        main = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "association.main", "Values": ["true"]}]
        table = ec2.describe_route_tables(Filters=main)["RouteTables"][0]["RouteTableId"]
        ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    iam = boto3.client("iam")
    iam.create_instance_profile(InstanceProfileName=ROLE)
    iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}))
    iam.add_role_to_instance_profile(InstanceProfileName=ROLE, RoleName=ROLE)
    boto3.client("s3").create_bucket(Bucket=BUCKET)


_TICK_S = 0.05


class SlowDown(S3ClientError):
    """S3's own word for `try again`: a client that still lives repeats the write."""

    code = 503  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__("SlowDown", "Please reduce your request rate.")


def hold_writes(flag: Path) -> None:
    """While the flag file exists, writes whose key contains its text hang; then they fail, unwritten."""
    put: Callable[..., Any] = S3Backend.put_object

    def put_object(self: Any, bucket_name: str, key_name: str, *rest: Any, **options: Any) -> Any:
        if not _is_held(flag, key_name):
            return put(self, bucket_name, key_name, *rest, **options)
        while _is_held(flag, key_name):
            time.sleep(_TICK_S)
        raise SlowDown

    S3Backend.put_object = put_object  # type: ignore[method-assign]


def hold_looks(flag: Path) -> None:
    """While the flag file exists, nobody who names its text in a question for machines is answered."""
    describe: Callable[[Any], Any] = InstanceResponse.describe_instances

    def describe_instances(self: Any) -> Any:
        while _is_held(flag, str(self.querystring)):
            time.sleep(_TICK_S)
        return describe(self)

    InstanceResponse.describe_instances = describe_instances  # type: ignore[method-assign]


def _is_held(flag: Path, asked: str) -> bool:
    try:
        held = flag.read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return bool(held) and held in asked
