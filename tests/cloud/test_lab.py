"""The pocket cloud itself: what it leaves, what a body can do to its host, capacity, reclaim, a real `sky launch`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from configs.checkout import ROOT
from configs.load import load_engine
from lab import leftovers
from lab.cloud import Lab
from lab.errors import LabError
from lab.paths import FLEET_UID
from lab.startup import user_hash
from tasks.engine.command import compile_cache
from tasks.host.environment_spec import user_cache
from tests.cloud.checks import SHORT, BodyShell, nothing_left, run_sky, server_log, silent, wait_until
from tests.command_lines import command_of

pytestmark = [pytest.mark.cloud, pytest.mark.lab]

Boot = Callable[..., BodyShell]


@pytest.fixture
def planted() -> Iterator[Path]:
    folder = compile_cache(load_engine("vllm-cpu")).with_name(f"planted-{os.getpid()}")
    file = folder / "modelinfos" / "model.json"
    file.parent.mkdir(parents=True)
    file.write_text("known\n")
    file.chmod(0o600)
    yield file
    shutil.rmtree(folder)


class Traces(NamedTuple):
    processes: list[int]
    mounts: list[str]
    sockets: list[str]
    files: list[Path]

    @classmethod
    def of(cls, lab: Lab) -> Traces:
        root = str(lab.paths.root)
        lines = {name: Path(f"/proc/{name}").read_text().splitlines() for name in ("self/mountinfo", "net/unix")}
        paths = (lab.paths.root, Path("/tmp", f"sky_ssh_{user_hash(lab.paths.root)}"))
        return cls(
            sorted({*leftovers.processes(lab.paths.root), *touching(root)}),
            [line for line in lines["self/mountinfo"] if root in line],
            [line for line in lines["net/unix"] if root in line],
            [path for path in paths if path.exists()],
        )


def touching(root: str) -> set[int]:
    """Processes with an open file, or their folder, below a root: SkyPilot's executors overwrite their environment."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):  # gone, or somebody else's
                links = [process / "cwd", *(process / "fd").iterdir()]
                if any(str(link.readlink()).startswith(root) for link in links):
                    found.add(int(process.name))
    return found


def outside_files() -> set[Path]:
    """What SkyPilot was seen to leave on its hosts, and all files of the user that bodies run as."""
    left = re.compile(r"sky.*|ray|jobs_ha_recovery\.log|uv-.*\.lock|[0-9a-f]{32}")
    folders = (Path("/tmp"), SHORT, Path("/dev/shm"))
    found = {path for folder in folders for path in folder.iterdir()}
    own = {path for path in found if path.exists() and path.stat().st_uid == FLEET_UID}
    return own | {path for path in found if path.parent == folders[0] and left.fullmatch(path.name)}


@contextlib.contextmanager
def leaving_nothing() -> Iterator[None]:
    """What is done within leaves the host's mounts and files as they were."""
    before, mounts = outside_files(), Path("/proc/self/mountinfo").read_text()
    yield
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert outside_files() <= before


def status_of(pid: int) -> str:
    """What the kernel tells of a process; nothing, if it has ended."""
    try:
        return Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_down_leaves_nothing(new_lab: Callable[..., Lab], tmp_path: Path) -> None:
    with leaving_nothing():
        lab = new_lab(up=True)
        body = BodyShell.launch(lab, "us-east-1a", tmp_path).wait_booted()
        body.bash("nohup sleep 1000 >/dev/null 2>&1 & echo in a session of its own: $!")
        up = Traces.of(lab)
        assert up.processes and up.sockets and up.files
        assert not up.mounts, "a mount of the lab is seen outside its namespaces"
        lab.down()
    assert Traces.of(lab) == Traces([], [], [], [])


@pytest.mark.parametrize("again", ["down", "up"])
def test_what_a_killed_cloud_leaves_is_removed(new_lab: Callable[..., Lab], tmp_path: Path, again: str) -> None:
    lab = new_lab(up=True)
    body = BodyShell.launch(lab, "us-east-1a", tmp_path).wait_booted()
    assert lab.body_processes()
    cloud = json.loads(lab.paths.record.read_text(encoding="utf-8"))["pid"]
    os.kill(cloud, signal.SIGKILL)  # all bodies descend from it, and have to go with it
    wait_until(lambda: not lab.processes(), "the bodies die with the cloud")
    assert not lab.running
    folder = lab.paths.fleet / body.instance_id
    assert folder.exists()

    if again == "up":
        lab.up(silent)
        assert lab.running and lab.instances() == []
        assert not folder.exists()
    lab.down()
    assert Traces.of(lab) == Traces([], [], [], [])


def test_down_twice_and_down_of_nothing(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab()
    lab.down()
    lab.up(silent)
    lab.up(silent)  # up already: nothing happens
    lab.down()
    lab.down()
    with pytest.raises(LabError, match=r"no lab is up in .*sweep cloud-lab up"):
        lab.instances()


def test_a_folder_that_is_no_labs_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for act in (Lab(tmp_path).down, lambda: Lab(tmp_path).up(silent)):
        with pytest.raises(LabError, match=r"is not a lab's folder.*--root"):
            act()
    assert precious.read_text() == "mine"


def test_a_body_cannot_harm_its_host(lab: Lab, boot: Boot) -> None:
    body = boot().wait_booted()
    refused = (
        "touch /usr/x", f"touch {ROOT}/lab/x", "rm /dev/null", "mv /dev/null /dev/x", "touch /dev/x",
        "mknod /tmp/null c 1 3", "mount -o remount,bind,rw /", "mount -o remount,rw /", "umount /tmp",
        "umount -l /home", "mount -t tmpfs none /usr", "nsenter --target 1 --mount true",
        "unshare -Urm mount -o remount,bind,rw /", "unshare -Urm umount -l /tmp", "chroot / umount /tmp",
        f"ls {lab.paths.home}", "cat /etc/shadow", "kill -9 1",
    )  # fmt: skip
    script = "; ".join(f"if {command}; then echo ALLOWED: {command}; fi" for command in refused)
    printed = body.bash(f"{{ {script}; }} 2>/dev/null; stat -c %F /dev/null; echo written > /dev/null")
    # `kill -9 1` succeeds as a call: the first process of a namespace can't be killed from inside
    assert printed.replace("ALLOWED: kill -9 1", "").strip() == "character special file"
    assert body.bash("echo still here") == "still here"
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_body_has_no_power_over_mounts(boot: Boot) -> None:
    body = boot().wait_booted()
    sys_admin = 1 << 21
    for process in ("self", "1"):
        status = body.bash(f"cat /proc/{process}/status")
        masks = re.findall(r"^Cap(?:Prm|Eff|Bnd):\s+([0-9a-f]+)$", status, re.MULTILINE)
        assert len(masks) == 3 and not any(int(mask, 16) & sys_admin for mask in masks)


def test_a_body_runs_as_somebody_who_is_not_root_outside(lab: Lab, boot: Boot) -> None:
    body = boot().wait_booted()
    assert body.bash("id -u") == "0"
    owners = {Path(f"/proc/{pid}").stat().st_uid for pid in lab.body_processes()}
    assert owners == {FLEET_UID if os.geteuid() == 0 else os.geteuid()}


def test_a_body_has_no_network_but_its_own(boot: Boot) -> None:
    body = boot().wait_booted()
    links = body.bash("ip -oneline link").splitlines()
    assert [line.split()[1] for line in links] == ["lo:"]
    # TEST-NET-1 (RFC 5737), nobody's: no packet could leave anyway
    assert body.ssh("timeout 2 bash -c 'exec 3<>/dev/tcp/192.0.2.1/80'").returncode != 0


def test_a_body_knows_where_it_is(boot: Boot) -> None:
    body = boot("us-east-2b").wait_booted()
    base = "http://169.254.169.254/latest"
    ask = (
        "import sys, urllib.request as u; "
        f"token = u.urlopen(u.Request('{base}/api/token', method='PUT')).read().decode(); "
        f"print(u.urlopen('{base}/meta-data/' + sys.argv[1]).read().decode())"
    )
    command = f"$PYTHON -c {shlex.quote(ask)}"
    assert body.bash(f"{command} placement/availability-zone") == "us-east-2b"
    assert body.bash(f"{command} instance-id") == body.instance_id


def test_a_body_reads_in_its_metadata_that_it_is_taken_back_and_then_is(
    lab: Lab, boot: Boot, node_python: Path
) -> None:
    body = boot().wait_booted()
    base, code = "http://169.254.169.254", body.bring("tasks", "configs", "warehouse")
    look = f"import sys; sys.path.insert(0, '{code}'); import tasks.notice as n; print(n.Metadata('{base}').look())"
    google = f"curl --silent --header 'Metadata-Flavor: Google' {base}/computeMetadata/v1/instance/preempted"
    both = f"{node_python} -c {shlex.quote(look)} && {google}"
    assert body.bash(both) == "None\nFALSE"
    assert lab.notice(body.instance_id, in_s=None) == [body.instance_id]
    said = body.bash(both)
    assert "EC2 recommends to rebalance" in said and said.endswith("FALSE")
    lab.notice(body.instance_id, in_s=3600.0)
    said = body.bash(both)
    assert '"action": "terminate"' in said and said.endswith("TRUE")
    lab.notice(body.instance_id, in_s=0.0)
    wait_until(lambda: not any(each.alive for each in lab.instances()), "it is taken back")
    assert body.described()["StateReason"]["Code"] == "Server.SpotInstanceTermination"


def test_a_body_sees_the_environments_and_makes_none(boot: Boot, node_python: Path) -> None:
    body = boot().wait_booted()
    printed = body.bash(body.bring("bin", "configs", "tasks", "requirements") + "/bin/environment node")
    assert Path(printed).parts[-3:] == node_python.parts[-3:]
    assert body.bash(f"{printed} -c 'import pyarrow; print(pyarrow.__name__)'") == "pyarrow"
    assert body.ssh(f"touch {printed}.new").returncode != 0


def test_a_body_reaches_the_store_and_shares_a_lock_with_its_neighbours(lab: Lab, boot: Boot) -> None:
    first, second = boot("us-east-1a"), boot("us-west-2a")
    put = (
        "import boto3; boto3.client('s3').put_object(Bucket='specsweep-lab', Key='from-body', Body=b'yes', "
        "IfNoneMatch='*')"
    )
    code = first.wait_booted().bring("bin", "configs", "tasks", "requirements")
    python = first.bash(f"{code}/bin/environment node")
    first.bash(f"{python} -c {shlex.quote(put)}")
    assert lab.client("s3").get_object(Bucket="specsweep-lab", Key="from-body")["Body"].read() == b"yes"
    assert first.ssh(f"{python} -c {shlex.quote(put)}").returncode != 0  # create only if absent

    first.bash('nohup flock "$SPECSWEEP_SPEED_LOCK" sleep 1000 >/dev/null 2>&1 & echo started')
    locked = 'flock --nonblock --conflict-exit-code 7 "$SPECSWEEP_SPEED_LOCK" true'
    second.wait_booted()
    wait_until(lambda: second.ssh(f"bash --login -c {shlex.quote(locked)}").returncode == 7, "the lock is held")
    first.terminate()
    wait_until(lambda: second.ssh(f"bash --login -c {shlex.quote(locked)}").returncode == 0, "the lock is free")


def test_a_full_zone_refuses_and_says_so(lab: Lab, boot: Boot) -> None:
    lab.capacity("us-east-1a", 1)
    boot("us-east-1a")
    with pytest.raises(Exception, match=r"InsufficientInstanceCapacity.*us-east-1a"):
        boot("us-east-1a")
    boot("us-east-1b")  # another zone has room
    lab.capacity("us-east-1a", None)
    boot("us-east-1a")
    assert sorted(each.zone for each in lab.instances() if each.alive) == ["us-east-1a", "us-east-1a", "us-east-1b"]


def test_a_reclaimed_instance_dies_with_all_it_ran(lab: Lab, boot: Boot) -> None:
    body = boot().wait_booted()
    body.bash("nohup setsid sleep 1000 >/dev/null 2>&1 & echo started")
    assert lab.preempt(body.instance_id) == [body.instance_id]
    wait_until(lambda: not lab.body_processes(), "no process is left")
    assert body.ssh("true").returncode == 255
    assert not any(each.alive for each in lab.instances())
    assert body.described()["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    with pytest.raises(LabError, match=f"no living instance .*{body.instance_id}"):
        lab.preempt(body.instance_id)


def test_a_held_boot_comes_later(lab: Lab, boot: Boot) -> None:
    with lab.boots_held():
        body = boot()
        assert body.ssh("true").returncode == 255
        assert [each.state for each in lab.instances() if each.alive] == ["running"]
        assert not lab.body_processes()
    body.wait_booted()


def test_a_body_that_dies_loses_its_instance(lab: Lab, boot: Boot) -> None:
    body = boot().wait_booted()
    first = [pid for pid in lab.body_processes() if re.search(r"^NSpid:.*\t1$", status_of(pid), re.MULTILINE)]
    assert len(first) == 1, "process 1 inside it"
    os.kill(first[0], signal.SIGKILL)
    wait_until(lambda: not any(each.alive for each in lab.instances()), "the instance is gone")
    assert f"{body.instance_id} died" in lab.paths.log.read_text()


def test_it_begins_with_what_engines_here_know_of_models(
    new_lab: Callable[..., Lab], tmp_path: Path, planted: Path
) -> None:
    lab = new_lab(up=True)
    body = BodyShell.launch(lab, "us-east-1a", tmp_path).wait_booted()
    seen = f"~/.cache/specsweep/{planted.relative_to(user_cache())}"
    assert body.bash(f"cat {seen}; echo more >> {seen}; cat {seen}").split() == ["known", "known", "more"]
    assert planted.read_text() == "known\n", "what it adds is its own"


def test_two_labs_do_not_know_of_each_other(boot: Boot, new_lab: Callable[..., Lab], tmp_path: Path) -> None:
    body = boot().wait_booted()
    other = new_lab(up=True)
    assert other.instances() == []
    BodyShell.launch(other, "us-east-1a", tmp_path).wait_booted()
    other.down()
    assert body.bash("echo unharmed") == "unharmed"


TASK = """
name: trivial
resources: {accelerators: "H100:1", use_spot: true, any_of: [{infra: aws/us-east-1}, {infra: aws/us-east-2}]}
run: echo hello from $(hostname) as $(id -un)
"""


@pytest.mark.slow(150)
def test_skypilot_launches_where_there_is_room_and_down_leaves_nothing(
    new_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    """A night launches too, and also notices a machine's loss. Here what SkyPilot leaves on its host is looked for."""
    task = tmp_path / "task.yaml"
    task.write_text(TASK)
    with leaving_nothing():
        lab = new_lab(up=True)
        lab.capacity("us-east-1a", 0)  # the cheapest of the catalogue
        launched = run_sky(lab, "launch", "-y", "-c", "one", str(task))
        assert launched.returncode == 0, f"{launched.stdout}{launched.stderr}\n{server_log(lab)}"
        assert re.search(r"hello from ip-172-\d+-\d+-\d+ as root", launched.stdout)
        (instance,) = [each for each in lab.instances() if each.alive]
        assert (instance.zone, instance.spot) == ("us-east-1b", True)
        assert run_sky(lab, "down", "-y", "one").returncode == 0
        nothing_left(lab)
        up = Traces.of(lab)
        assert any(command_of(pid).startswith("SkyPilot:executor") for pid in up.processes)
        semaphores = leftovers.semaphores(lab.processes())
        assert up.sockets and up.files and semaphores
        assert not up.mounts, "a mount of the lab is seen outside its namespaces"
        lab.down()
    assert Traces.of(lab) == Traces([], [], [], [])
    assert semaphores.isdisjoint(entry.inode() for entry in os.scandir("/dev/shm"))
