"""Where the parts of the Slurm machine lie, and the files that make it one."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

from flows.clusters.protocol import PREFIX
from lab.paths import FLEET_UID, LabPaths

CLUSTER, HOST, USER = "pocket", "slurmlab", "lab"
"""Names of the cluster, of its only machine, and of the user who is logged in there and runs its daemons."""

SPOT, URGENT = "spot", "urgent"  # partitions: a job of the second takes the GPUs from jobs of the first
ADDRESS = "10.77.0.1"
"""Of the machine, within its own network: Slurm's daemons start on no machine that has loopback only."""

GPUS = 2

SSH_PORT = 2222

FOLDERS = ("home", "run", "tmp", "log", "state", "spool")
"""Folders below the root; the user's. `run` and `tmp` are what the machine has at /run and /tmp, as `etc` at /etc."""

RUNTIME = Path("/tmp/runtime")
"""The baked runtime of SkyPilot as the machine sees it: on the same mount as the copies that jobs get of it."""

SLURM_CONF = f"""\
ClusterName={CLUSTER}
SlurmctldHost={HOST}({ADDRESS})
SlurmUser={USER}
SlurmdUser={USER}
StateSaveLocation={{root}}/state
SlurmdSpoolDir={{root}}/spool
SlurmctldPidFile={{root}}/run/slurmctld.pid
SlurmdPidFile={{root}}/run/slurmd.pid
AuthType=auth/munge
CredType=cred/munge
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
PrologSlurmctld=/etc/slurm/job_prolog
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=5,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={HOST} NodeAddr={ADDRESS} CPUs=16 RealMemory=65536 Gres=gpu:H100:{GPUS} State=UNKNOWN
PartitionName={SPOT} Nodes=ALL Default=YES MaxTime=1-00:00:00 PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName={URGENT} Nodes=ALL MaxTime=1-00:00:00 PriorityTier=100 PreemptMode=OFF State=UP
"""
"""More cores and memory than there are (config_overrides): nothing here computes, and two nodes must fit."""

GRES_CONF = f"NodeName={HOST} Name=gpu Type=H100 File=/dev/zero,/dev/full\n"
"""Two devices that every machine has stand for GPUs: Slurm counts them, and nobody opens them."""

JOB_PROLOG = f"""\
#!/bin/sh
# What this site spares SkyPilot from downloading for each job: uv, and its own Python packages. A preempted job leaves
# the second behind and loses the first, so each is looked for. Before the job, and not before each of its tasks: one
# that starts while the job removes its folder would make it again.
PATH=/usr/bin:/bin
home={{root}}/home/.sky_clusters/$SLURM_JOB_NAME
packages=/tmp/$SLURM_JOB_NAME/skypilot-runtime
case $SLURM_JOB_NAME in {PREFIX}*) ;; *) exit 0 ;; esac
mkdir -p "$home/.local/bin" "${{{{packages%/*}}}}"
[ -e "$home/.local/bin/uv" ] || ln -s {{baked}}/uv "$home/.local/bin/uv"
[ -e "$packages" ] || {{{{ cp -al {RUNTIME} "$packages.$$" && mv -T "$packages.$$" "$packages"; }}}}
"""

SSHD_CONFIG = f"""\
ListenAddress 127.0.0.1
Port {SSH_PORT}
HostKey {{root}}/state/host_key
PidFile {{root}}/run/sshd.pid
PasswordAuthentication no
UsePAM no
MaxSessions 200
MaxStartups 100:30:200
"""

SLURM_CLUSTERS = f"""\
Host {CLUSTER}
    HostName 127.0.0.1
    Port {SSH_PORT}
    User {USER}
    IdentityFile {{root}}/home/.ssh/id_ed25519
"""
"""The user's ~/.slurm/config."""


def write_files(places: LabPaths, baked: Path, envs: Path) -> None:
    """Make the machine's folders and files; `baked` has uv, wheels and SkyPilot's runtime, `envs` our environments."""
    root = places.root
    for name in FOLDERS:
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    _write_etc(root, baked)
    _write(root / "home/.slurm/config", SLURM_CLUSTERS.format(root=root))
    _write(root / "state/sshd_config", SSHD_CONFIG.format(root=root))
    (places.home / ".ssh").mkdir(mode=0o700)
    for key in (places.home / ".ssh" / "id_ed25519", root / "state" / "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = (places.home / ".ssh" / "id_ed25519.pub").read_text(encoding="ascii")
    _write(places.home / ".ssh" / "authorized_keys", public, 0o600)
    (places.home / ".cache" / "specsweep").mkdir(parents=True)
    (places.home / ".cache" / "specsweep" / "envs").symlink_to(envs)


def _write_etc(root: Path, baked: Path) -> None:
    """A copy of what everybody may read of the host's /etc, with our user, host and Slurm; pip and uv ask no index."""
    etc = root / "etc"
    # what only the host's root may read stays behind, hence no check
    subprocess.run(["cp", "--archive", "--no-preserve=ownership", "/etc", etc], stderr=subprocess.DEVNULL, check=False)
    users = Path("/etc/passwd").read_text(encoding="utf-8").splitlines()
    others = [line for line in users if line.split(":")[2] != str(FLEET_UID)]
    user = f"{USER}:x:{FLEET_UID}:{FLEET_UID}::{root}/home:/bin/bash"
    _write(etc / "passwd", "\n".join([user, *others]) + "\n")
    _write(etc / "hosts", f"127.0.0.1 localhost\n{ADDRESS} {HOST}\n")
    _write(etc / "slurm/slurm.conf", SLURM_CONF.format(root=root))
    _write(etc / "slurm/gres.conf", GRES_CONF)
    _write(etc / "slurm/cgroup.conf", "CgroupAutomount=no\n")
    _write(etc / "slurm/job_prolog", JOB_PROLOG.format(root=root, baked=baked), 0o755)
    _write(etc / "munge/munge.key", secrets.token_hex(64), 0o600)
    wheels = baked / "wheels"
    _write(etc / "uv/uv.toml", f'no-index = true\nfind-links = ["{wheels}"]\npython-downloads = "never"\n')
    _write(etc / "pip.conf", f"[global]\nno-index = true\nfind-links = {wheels}\n")


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # what was copied may be a link, or read-only
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
