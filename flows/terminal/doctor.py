"""`sweep doctor`: is everything here that a sweep needs, can the store be trusted, and what do SkyPilot's clouds offer?

A runner creates, reads and lists below `runs/` of the store, and overwrites its heartbeat; it deletes nothing. Foreign
code runs beside it. Nothing of SkyPilot is needed to measure here. What a certain sweep needs: `sweep_checks.py`.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from configs.evals.suites import SUITES, Framework
from configs.load import ConfigError, load_engine, load_gpu_of_card
from configs.secrets import FOR_NODES
from flows.clusters.skypilot.carried import values_of
from flows.clusters.skypilot.task_file import load_task
from flows.terminal.cloud_checks import Rented, sky_checks
from tasks.engine import program
from tasks.engine.machine import state_dir
from tasks.family.members import ON_REQUEST, RESTORE, SHIPPED, TRAIN, damage_of, folder_of, trained_dir
from tasks.host import environments
from tasks.host.hub import hub_cache, hub_home
from tasks.place import gpu
from warehouse.ledger.store import Store, StoreError, open_store
from warehouse.ledger.store.gs import GsStore
from warehouse.ledger.store.proof import Check, check_store
from warehouse.ledger.store.s3 import S3Store

ENGINE_DISK_GIB = 6.0  # for the engine's and the control side's environments, measured at 4 GiB, with some to spare
BUSY_MIB = 1024.0  # memory that is in use on an idle card: less than this is the driver's own and a desktop's
WEIGHTS_GIB = 70.0  # what the largest of the shipped models downloads, Qwen3.6 35B-A3B in 16 bits
OWN_ENGINE = "vllm-own"  # the shipped engine that serves with the vLLM of the PATH
TASK = "h100-spot"  # the task that is looked at where no sweep is named
_GATED = ", ".join(facts.title for facts in SUITES.values() if facts.gated)

SECRETS = {
    "HF_TOKEN": f"gated models and datasets ({_GATED}) can't be fetched without it",
    "AWS_ACCESS_KEY_ID": "nodes on other clouds need it for an s3:// store",
    "GS_ACCESS_KEY_ID": "a gs:// store needs it, with GS_SECRET_ACCESS_KEY",
}
"""Variables that the shipped tasks pass to nodes as secrets, and what for."""


def examine(store_url: str) -> list[Check]:
    """Every check of this machine, of one store, and of the clouds."""
    machine = [*_machine(), *serving_checks(), *_environments(), *_family()]
    return [*machine, *store_checks(store_url), *_secrets(), *sky_checks(Rented(load_task(TASK), store_url))]


def _machine() -> list[Check]:
    state_dir().mkdir(parents=True, exist_ok=True)
    free_gib = shutil.disk_usage(state_dir()).free / 2**30
    fits, free = free_gib >= ENGINE_DISK_GIB, f"{free_gib:.0f} GiB free in {state_dir().parent}"
    remedy = f"free {ENGINE_DISK_GIB:.0f} GiB or set XDG_CACHE_HOME"
    return [
        Check("Python 3.11 or newer", sys.version_info >= (3, 11), sys.version.split()[0], "install Python 3.11"),
        Check("free disk for environments", fits, free, remedy),
    ]


def _environments() -> list[Check]:
    checks = []
    wanted: tuple[environments.Name, ...] = ("control", "node", "engine-cpu", *get_args(Framework))
    for name in wanted:
        python = environments.python_of(name)
        first = "the first run with one of its evaluations" if name in get_args(Framework) else "`make demo`"
        remedy = f"`bin/environment {name}` makes it; {first} does so by itself"
        checks.append(Check(f"environment {name}", True, str(python or "not made yet"), remedy, remark=python is None))
    if environments.python_of("engine-cpu"):
        reason = environments.suffix_unavailable()
        checks.append(Check("suffix decoding (optional)", True, reason or "installed", remark=reason is not None))
    return checks


def _family() -> list[Check]:
    broken = [f"{name} {damage} in {folder_of(name)}" for name in SHIPPED if (damage := damage_of(folder_of(name)))]
    shipped = "; ".join(broken) or f"{', '.join(SHIPPED)}, as shipped"
    untrained = [name for name in ON_REQUEST if damage_of(folder_of(name))]
    trained = f"not trained yet: {', '.join(untrained)}" if untrained else str(trained_dir())
    return [
        Check("demo family", not broken, shipped, RESTORE),
        Check("demo family, on request", True, trained, TRAIN, remark=bool(untrained)),
    ]


def serving_checks() -> list[Check]:
    """What an engine on this machine would find: without a card it serves on the processor, or is rented one."""
    if not shutil.which("nvidia-smi"):
        none = Check("GPU", True, "none here: cells run on the processor, or on rented machines", remark=True)
        return [none, *_vllm(), _weights(needed=False)]
    found = gpu.cards()
    if not found:
        remedy = "run `nvidia-smi`: the driver doesn't match its kernel module, or the cards are not passed through"
        return [Check("GPU", False, "nvidia-smi is here but shows no card", remedy), *_vllm(), _weights(needed=False)]
    cuda, holders = gpu.cuda_version(), gpu.holders()
    return [*(_card(card, cuda, holders) for card in found), *_vllm(), _weights(needed=True)]


def _card(card: gpu.Card, cuda: str | None, holders: Sequence[gpu.Holder]) -> Check:
    said = [card.name, _memory(card), f"driver {card.driver}", f"CUDA up to {cuda or '?'}"]
    remedies = []
    if (used_mib := card.used_mib or 0.0) > BUSY_MIB:
        mine = [holder for holder in holders if holder.uuid == card.uuid]
        named = [f"{holder.name} (process {holder.pid}, {_gib(holder.used_mib)})" for holder in mine]
        # in a container the driver doesn't tell the processes outside
        said.append(f"{_gib(used_mib)} in use by {', '.join(named) or 'processes that the driver does not name'}")
        remedies.append("end what uses it, or no speed measured here is to be believed")
    try:
        said.append(f"`gpu: {load_gpu_of_card(card.name).name}`")
    except ConfigError:
        said.append("no file in configs/gpus")
        remedies.append("copy one of configs/gpus into gpus/ beside your sweep, with this card's figures and name")
    return Check(f"GPU {card.number}", True, ", ".join(said), "; ".join(remedies), remark=bool(remedies))


def _gib(mib: float | None) -> str:
    return "unknown memory" if mib is None else f"{mib / 1024:.1f} GiB"


def _memory(card: gpu.Card) -> str:
    if card.memory_mib is None:
        return "unknown memory"
    free_mib = card.memory_mib - (card.used_mib or 0.0)
    return f"{free_mib / 1024:.1f} of {card.memory_mib / 1024:.1f} GiB free"


def _vllm() -> list[Check]:
    """Versions of the engines that are here: ours for the processor, and the `vllm` that a sweep's own engine runs."""
    ours = environments.python_of("engine-cpu")
    said = [] if ours is None else [_version("vLLM of engine-cpu", ours)]
    name, command = "vLLM on the PATH", shutil.which("vllm")
    if command is None:
        return [*said, Check(name, True, "none: GPU cells run in the image, or where it is named", remark=True)]
    try:
        version = program.release([command])
    except program.EngineUnavailable as error:
        return [*said, Check(name, False, str(error))]  # it says the remedy
    own = load_engine(OWN_ENGINE)
    unknown = program.unknown_arguments((*own.args, *own.draft_args), version)
    remedy = f"it doesn't know {', '.join(unknown)} of `engine: {OWN_ENGINE}`: install a newer one"
    return [*said, Check(name, True, f"{version}, {command}", remedy, remark=bool(unknown))]


def _version(name: str, python: Path) -> Check:
    """The installed version, read without importing vLLM, which takes ten seconds."""
    argv = [str(python), "-c", "import importlib.metadata as m; print(m.version('vllm'))"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return Check(name, False, f"{python}: {last}", "install vLLM anew into that environment")
    return Check(name, True, done.stdout.strip())


def _weights(*, needed: bool) -> Check:
    folder = hub_cache(os.environ)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free_gib = shutil.disk_usage(there).free / 2**30
    is_small = needed and free_gib < WEIGHTS_GIB
    remedy = f"models of up to {WEIGHTS_GIB:.0f} GiB are shipped: free some, or set HF_HOME"
    return Check("disk for weights", True, f"{free_gib:.0f} GiB free in {folder}", remedy, remark=is_small)


def store_checks(url: str, *, for_nodes: bool | None = None) -> list[Check]:
    """Every check of one store; all their names begin with `store`. `for_nodes`: whether rented ones use it."""
    try:
        store = open_store(url)
    except StoreError as error:
        return [Check("store", False, str(error), "use a folder, s3://bucket/prefix or gs://bucket/prefix")]
    checks = check_store(store)
    if all(check.ok for check in checks) and for_nodes is not False:
        checks += [check for check in [_reach(store, for_nodes or False)] if check is not None]
        checks += [node_keys(store)] if isinstance(store, S3Store) else []
    return [check._replace(name=f"store {store.url}: {check.name}") for check in checks]


def _secrets() -> list[Check]:
    aws_file = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser()
    checks = []
    for name, purpose in SECRETS.items():
        said, remedy = f"not set: {purpose}", f"export {name}=..."
        if os.environ.get(name):
            said, remedy = "set", ""
        elif name.startswith("AWS") and aws_file.exists():
            said, remedy = f"not set; the keys in {aws_file} go to nodes", ""
        elif name == "HF_TOKEN" and (token := hub_home(os.environ) / "token").exists():
            said = f"not set; engines of this machine find the one in {token}"
            remedy = f"export {name}=... for rented nodes and gated datasets"
        checks.append(Check(f"secret {name}", True, said, remedy, remark=bool(remedy)))
    return checks


def _reach(store: Store, is_needed: bool) -> Check | None:
    """What to know if no rented node can reach the store, else None."""
    name = "reachable from nodes"
    if not isinstance(store, S3Store):
        detail, remedy = "a folder of this machine, for sweeps on this machine", "use s3:// or gs:// to rent nodes"
        return Check(name, not is_needed, detail, remedy, remark=not is_needed)
    if store.endpoint is not None and _is_loopback(urlsplit(store.endpoint).hostname or ""):
        detail = f"{store.endpoint} is this machine: no rented node can reach it (the pocket cloud's can)"
        return Check(name, True, detail, f"point {store.endpoint_variable} elsewhere", remark=True)
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def node_keys(store: S3Store) -> Check:
    """Whose keys nodes get, and the policy for keys of their own."""
    kind = "GS" if isinstance(store, GsStore) else "AWS"
    names = (f"{kind}_ACCESS_KEY_ID", f"{kind}_SECRET_ACCESS_KEY")
    if all(os.environ.get(FOR_NODES + name) for name in names):
        return Check("keys of nodes", True, f"their own, {FOR_NODES}{names[0]}")
    if values_of(names, store.url):
        detail = "nodes get the keys that you rent with, and foreign code runs there"
    else:
        detail = (
            "nodes get none of yours, and use their machine's role: SkyPilot's on AWS may do anything with EC2 and S3"
        )
    remedy = (
        f"for keys that can do no more than a node needs: {_policy(store)}; export them as {FOR_NODES}{names[0]}, ..."
    )
    return Check("keys of nodes", True, detail, remedy, remark=True)


def _policy(store: S3Store) -> str:
    folder = f"{store.prefix}/runs/" if store.prefix else "runs/"
    if isinstance(store, GsStore):
        place = f'resource.name.startsWith("projects/_/buckets/{store.bucket}/objects/{folder}")'
        return (
            f"an HMAC key of a service account with `gcloud storage buckets add-iam-policy-binding gs://{store.bucket} "
            f"--role roles/storage.objectUser --condition 'title=runs,expression={place}' --member serviceAccount:...`"
        )
    return f"an IAM user with the policy {json.dumps(policy(store.bucket, folder))}"


def policy(bucket: str, folder: str) -> dict[str, object]:
    """An IAM policy that lets its user create and read objects of a bucket's folder, and see which there are.

    S3 says that an object isn't there, rather than that it may not be looked at, only to who may list. That question
    carries no prefix, hence `IfExists`: names of other keys can be seen, their contents not.
    """
    allow, arn = {"Effect": "Allow"}, f"arn:aws:s3:::{bucket}"
    objects = {**allow, "Action": ["s3:PutObject", "s3:GetObject"], "Resource": f"{arn}/{folder}*"}
    below = {"StringLikeIfExists": {"s3:prefix": f"{folder}*"}}
    listing = {**allow, "Action": "s3:ListBucket", "Resource": arn, "Condition": below}
    return {"Version": "2012-10-17", "Statement": [objects, listing]}
