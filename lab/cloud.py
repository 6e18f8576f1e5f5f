"""The door to a lab: starts it, stops it, shows what runs in it, and deals the blows of a real cloud.

lab = Lab(Path("/var/tmp/my-lab"))
lab.up(print)
subprocess.run([...], env=os.environ | lab.env)   # SkyPilot, our flows
lab.preempt("my-cluster")
lab.down()
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import boto3

from lab import leftovers
from lab.bake import baked, lab_folder
from lab.bodies.metadata import Announced
from lab.errors import LabError
from lab.paths import BUCKET, LONGEST_ROOT, MARK, RECLAIM_TAG, REGIONS, LabPaths, write_whole
from lab.requirements import why_not
from lab.startup import ACCESS_KEY, make_folders, make_home, start_daemon, user_hash, wait_ready, wait_until
from lab.weather.conditions import Conditions
from tasks.host.environment_install import Tell
from tasks.host.environments import ensure

STOP_S = 30.0  # how long the cloud's process may take to remove its bodies; then it is killed, and they with it
NOTICE_S = 120.0  # how long before EC2 takes a spot machine it says so
SKYPILOT_FILES = ("ray", "skypilot_graceful_shutdown.lock", "jobs_ha_recovery.log")  # in /tmp whatever TMPDIR says


@contextlib.contextmanager
def _holding(flag: Path, text: str) -> Iterator[None]:
    """Have the daemon hold what has this text, as it reads in the flag."""
    write_whole(flag, text)
    try:
        yield
    finally:
        flag.unlink(missing_ok=True)


class Lab:
    """One cloud, in one folder. Two labs in two folders do not know of each other."""

    def __init__(self, root: Path | None = None) -> None:
        """Choose the folder, on a real file system and with a short path (sockets); None: one in the user's cache."""
        self.paths = LabPaths((root or lab_folder() / "cloud").absolute())
        if len(str(self.paths.root)) > LONGEST_ROOT:
            raise LabError(
                f"the lab's folder {self.paths.root} has more than {LONGEST_ROOT} characters, which unix sockets "
                "can't bear. Remedy: a shorter one (--root)"
            )
        self._daemon: subprocess.Popen[bytes] | None = None
        self._clients: dict[tuple[str, str, str], Any] = {}

    @property
    def running(self) -> bool:
        """Whether the cloud's process is alive."""
        record = self._record()
        return bool(record) and record["pid"] in leftovers.processes(self.paths.root)

    def up(self, tell: Tell) -> None:
        """Start the cloud unless it is up; what an earlier one left, for example when it was killed, is removed first.

        Raises LabError: this machine can't run it, or it did not come up; InstallError: its environment can't be made.
        """
        if self.running:
            return
        self.paths.root.parent.mkdir(parents=True, exist_ok=True)
        if reason := why_not(self.paths.root.parent):
            raise LabError(f"the lab can't run here: {reason}")
        self.down()
        python = ensure("lab", tell=tell)
        layer = baked(ensure("uv", tell=tell), tell)
        tell("the cloud: starting")
        before = [name for name in SKYPILOT_FILES if Path("/tmp", name).exists()]
        make_folders(self.paths)
        make_home(self.paths, python)
        self._daemon = process = start_daemon(self.paths, python, layer)
        try:
            ports = wait_ready(self.paths, process)
        except BaseException:
            leftovers.kill(self.paths.root)
            self._reap()
            raise
        record = {"pid": process.pid, "before": before} | ports
        self.paths.record.write_text(json.dumps(record), encoding="utf-8")

    def down(self) -> None:
        """Remove everything, also what a killed lab left. Raises LabError: the folder holds what is no lab."""
        root, record = self.paths.root, self._record()
        if root.exists() and not self.paths.marker.exists() and any(root.iterdir()):
            raise LabError(f"{root} is not a lab's folder, it is left alone. Remedy: another one (--root)")
        pid = record.get("pid")
        if pid in leftovers.processes(root):
            leftovers.send([pid], signal.SIGTERM)
            wait_until(lambda: pid not in leftovers.processes(root), STOP_S)
        leftovers.kill(root)
        self._reap()
        leftovers.remove_tree(root)
        leftovers.remove_tree(Path("/tmp", f"sky_ssh_{user_hash(root)}"))
        for name in set(SKYPILOT_FILES) - set(record.get("before", SKYPILOT_FILES)):
            path = Path("/tmp", name)
            if not path.is_dir():
                path.unlink(missing_ok=True)
            elif not any(path.iterdir()):  # what is in it would be somebody else's
                path.rmdir()

    @property
    def env(self) -> dict[str, str]:
        """Variables for processes that use the lab's cloud. Raises LabError: the lab is not up."""
        record = self._demand_up()
        return {
            MARK: str(self.paths.root),
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{record['port']}",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": ACCESS_KEY,
            "AWS_DEFAULT_REGION": REGIONS[0],
            "SPECSWEEP_SKY_HOME": str(self.paths.home),
            "SKYPILOT_API_SERVER_LOCAL_PORT": str(record["api_port"]),
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            "SPT_NOENV": "1",  # otherwise process titles overwrite the marks that `down` looks for
            "TMPDIR": str(self.paths.scratch),
            "NO_PROXY": "127.0.0.1,localhost",
        }

    @property
    def behind_url(self) -> str:
        """The cloud's endpoint behind the door, where no fault is injected; for observers."""
        return f"http://127.0.0.1:{self._demand_up()['behind_port']}"

    @property
    def weather(self) -> Conditions:
        """What the cloud's door and machines suffer (`lab.weather.settings`). Raises LabError: the lab is not up."""
        self._demand_up()
        return Conditions(self.paths.weather)

    @property
    def store_url(self) -> str:
        """A store in the lab's cloud; it is gone with the lab."""
        return f"s3://{BUCKET}/results"

    def client(self, service: str, region: str = REGIONS[0]) -> Any:
        """A boto3 client behind the door, made once: a test that asks ten times a second would use up the ports."""
        url = self.behind_url
        if (url, service, region) not in self._clients:
            keys = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), ACCESS_KEY)
            self._clients[url, service, region] = boto3.client(service, region_name=region, endpoint_url=url, **keys)
        return self._clients[url, service, region]

    def instances(self) -> list[Instance]:
        """All instances of all regions, including terminated ones, oldest first."""
        found = [each for region in REGIONS for each in instances_of(self.client("ec2", region), region)]
        return sorted(found, key=lambda instance: instance.launched_at)

    def name_of(self, instance: Instance) -> str:
        """The name under which its cluster was launched, without what SkyPilot adds."""
        return instance.cluster.removesuffix(f"-{user_hash(self.paths.root)}")

    def preempt(self, name: str) -> list[str]:
        """Reclaim a cluster (also without the user's hash) or an instance; returns ids. Raises LabError: none lives."""
        doomed = self._living(name)
        for each in doomed:
            ec2 = self.client("ec2", each.region)
            if each.spot:  # the cloud's own doing, for which it does not charge in the first hour
                ec2.create_tags(Resources=[each.instance_id], Tags=[{"Key": RECLAIM_TAG, "Value": "yes"}])
            ec2.terminate_instances(InstanceIds=[each.instance_id])
        return [each.instance_id for each in doomed]

    def notice(self, name: str, in_s: float | None = NOTICE_S) -> list[str]:
        """Announce in a cluster's (or one instance's) metadata that it is reclaimed; returns the instances' ids.

        Without `in_s` it is only recommended to leave. Raises LabError: none lives, or one has no body yet.
        """
        warned, now_s = self._living(name), time.time()
        for each in warned:
            folder = self.paths.fleet / each.instance_id
            if not folder.exists():
                raise LabError(f"{each.instance_id} has not booted yet. Remedy: again in a second")
            said = Announced.read(folder)
            said = said._replace(risk_s=now_s) if in_s is None else said._replace(reclaim_s=now_s + in_s)
            said.write(folder)
        return [each.instance_id for each in warned]

    def _living(self, name: str) -> list[Instance]:
        alive = [each for each in self.instances() if each.alive]
        found = [each for each in alive if name in (each.instance_id, each.cluster, self.name_of(each))]
        if not found:
            raise LabError(f"no living instance of the lab is, or belongs to, {name!r}. Remedy: sweep cloud-lab status")
        return found

    def capacity(self, zone: str, count: int | None) -> None:
        """Limit the instances of a zone, 0: none, None: no limit. Raises LabError: the lab is not up."""
        self._demand_up()
        table = self.capacities()
        table.pop(zone, None)
        if count is not None:
            table[zone] = count
        write_whole(self.paths.capacity, json.dumps(table))

    def capacities(self) -> dict[str, int]:
        """How many instances each limited zone can hold; the other zones have no limit."""
        if not self.paths.capacity.exists():
            return {}
        return dict(json.loads(self.paths.capacity.read_text(encoding="utf-8")))

    @contextlib.contextmanager
    def boots_held(self) -> Iterator[None]:
        """Meanwhile new instances get no body: their ssh does not answer, as if they were slow to boot."""
        self._demand_up()
        self.paths.hold.touch()
        try:
            yield
        finally:
            self.paths.hold.unlink(missing_ok=True)

    def writes_held(self, part_of_key: str) -> contextlib.AbstractContextManager[None]:
        """Meanwhile writes of objects whose key contains this hang; then they fail, and living clients repeat them."""
        return _holding(self.paths.held_writes, part_of_key)

    def looks_held(self, cluster: str) -> contextlib.AbstractContextManager[None]:
        """Meanwhile EC2 does not answer who asks for machines by this full name: SkyPilot's launch, `down`, refresh."""
        return _holding(self.paths.held_looks, cluster)

    def processes(self) -> list[int]:
        """Ids of everything that runs for this lab: cloud, bodies, SkyPilot's API server."""
        return leftovers.processes(self.paths.root)

    def body_processes(self) -> list[int]:
        """Ids of the processes that run inside bodies."""
        return leftovers.body_processes(self.paths.root)

    def _reap(self) -> None:
        if self._daemon:
            self._daemon.wait()
            self._daemon = None

    def _demand_up(self) -> dict[str, Any]:
        record = self._record()
        if not record:
            raise LabError(f"no lab is up in {self.paths.root}. Remedy: sweep cloud-lab up")
        return record

    def _record(self) -> dict[str, Any]:
        if not self.paths.record.exists():
            return {}
        return dict(json.loads(self.paths.record.read_text(encoding="utf-8")))


class Instance(NamedTuple):
    """One instance, alive or terminated."""

    instance_id: str
    cluster: str  # SkyPilot's name for the cluster on the cloud: the cluster's own name, and a hash of the user
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
    """Every instance of a region, including terminated ones."""
    for reservation in ec2.describe_instances()["Reservations"]:
        for each in reservation["Instances"]:
            tags = {tag["Key"]: tag["Value"] for tag in each.get("Tags", [])}
            yield Instance(
                each["InstanceId"],
                tags.get("ray-cluster-name", ""),
                region,
                each["Placement"]["AvailabilityZone"],
                each["State"]["Name"],
                each.get("InstanceLifecycle") == "spot",
                each["LaunchTime"],
            )
