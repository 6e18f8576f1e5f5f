"""The doctor's questions to SkyPilot: is it there, which clouds does it reach, what do they offer. Starts no server.

Nothing here is needed to measure on this machine, so a cloud that is not set up is a remark, not a problem.
"""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import httpx

from configs.evals.suites import SUITES
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.api import enabled_clouds, offers
from flows.clusters.skypilot.remedies import explain
from flows.clusters.skypilot.task_file import load_task, sky_task
from tasks.host.hub import hub_home
from warehouse.ledger.store.proof import Check

SKYPILOT = "0.14.1"  # the version that flows/clusters/skypilot is written for and tested with
CLOUDS = ("AWS", "GCP")  # those of the shipped tasks are shown even if they are not set up, others only if they are

OTHER_CLOUDS = ("Kubernetes", "Slurm")

TASK = "h100-spot"  # the task whose offers are shown

OFFERS_SHOWN = 3

_GATED = ", ".join(facts.title for facts in SUITES.values() if facts.gated)

SECRETS = {
    "HF_TOKEN": f"gated models and datasets ({_GATED}) can't be fetched without it",
    "AWS_ACCESS_KEY_ID": "nodes on other clouds need it for an s3:// store",
    "GS_ACCESS_KEY_ID": "a gs:// store needs it, with GS_SECRET_ACCESS_KEY",
}
"""Variables that the shipped tasks pass to nodes as secrets, and what for."""

REMOTE_SERVER = "SKYPILOT_API_SERVER_ENDPOINT"


def remark(name: str, detail: str, remedy: str = "") -> Check:
    """A check that passes: worth knowing, but nothing has to be fixed."""
    return Check(name, True, detail, remedy, remark=True)


def sky_checks() -> list[Check]:
    """Every check of SkyPilot and the clouds, in the order in which a new user needs them."""
    return [_tools(), _version(), *_secrets(), _server(), *_clouds(), _offers()]


def _tools() -> Check:
    lacking = [tool for tool in ("ssh", "rsync") if shutil.which(tool) is None]
    if lacking:
        return remark("ssh and rsync", f"{' and '.join(lacking)} missing", explain(f"{lacking[0]}: not found"))
    return Check("ssh and rsync", True, "installed; SkyPilot copies and starts with them")


def _version() -> Check:
    found = metadata.version("skypilot")
    remedy = "" if found == SKYPILOT else f"install {SKYPILOT} (`bin/environment control` does)"
    return Check("SkyPilot", found == SKYPILOT, f"version {found}", remedy)


def _secrets() -> list[Check]:
    aws_file = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser()
    checks = []
    for name, purpose in SECRETS.items():
        if os.environ.get(name):
            checks.append(Check(f"secret {name}", True, "set"))
        elif name.startswith("AWS") and aws_file.exists():
            checks.append(Check(f"secret {name}", True, f"not set; the keys in {aws_file} go to nodes"))
        elif name == "HF_TOKEN" and (token := hub_home(os.environ) / "token").exists():
            detail = f"not set; engines of this machine find the one in {token}"
            checks.append(remark(f"secret {name}", detail, f"export {name}=... for rented nodes and gated datasets"))
        else:
            checks.append(remark(f"secret {name}", f"not set: {purpose}", f"export {name}=..."))
    return checks


def _server() -> Check:
    url, name = sky_server.server_url(), "SkyPilot API server"
    try:
        healthy = httpx.get(f"{url}/api/health", timeout=5).is_success
    except httpx.HTTPError:
        healthy = False
    if healthy:
        return Check(name, True, f"answers at {url}")
    if os.environ.get(REMOTE_SERVER):
        error = f"Could not connect to SkyPilot API server at {url}"
        cause, _, remedy = explain(error).partition("; remedy: ")
        return Check(name, False, cause, remedy)
    return Check(name, True, "not started: the first run starts it")


def _clouds() -> list[Check]:
    if os.environ.get(REMOTE_SERVER):
        try:
            names = ", ".join(sorted(str(cloud) for cloud in enabled_clouds()))
        except sky_server.SkyUnavailable as error:
            return [remark("clouds", f"not asked: {error}")]
        return [Check("clouds", bool(names), f"the API server has {names or 'none'} enabled")]
    from sky import sky_logging

    with sky_logging.silent(), ThreadPoolExecutor() as pool:
        found = dict(zip((*CLOUDS, *OTHER_CLOUDS), pool.map(_cloud, (*CLOUDS, *OTHER_CLOUDS)), strict=True))
    return [check for name, check in found.items() if name in CLOUDS or not check.remark]


def _cloud(name: str) -> Check:
    from sky.clouds import CloudCapability
    from sky.utils import registry

    works, reason = registry.CLOUD_REGISTRY.from_str(name).check_credentials(CloudCapability.COMPUTE)
    if works:
        return Check(f"cloud {name}", True, "enabled")
    # SkyPilot gives a sentence, or one per Kubernetes context
    said = "; ".join(map(str, reason.values())) if isinstance(reason, dict) else str(reason or "no reason given")
    cause, _, remedy = explain(said).partition("; remedy: ")
    return remark(f"cloud {name}", f"not enabled: {cause}", remedy)


def _offers() -> Check:
    name = f"spot offers of {TASK}"
    try:
        found = [offer for offer in offers(sky_task(load_task(TASK))) if offer.spot]
    except _failures() as error:
        cause, _, remedy = explain(sky_server.text_of(error)).partition("; remedy: ")
        return remark(name, cause, remedy)
    if not found:
        return remark(name, "none: no cloud is enabled that has one", "set up AWS or GCP as said above")
    prices = ["unpriced" if each.price_usd_h is None else f"{each.price_usd_h:.2f} USD/h" for each in found]
    shown = [f"{each.where} {each.instance_type} {price}" for each, price in zip(found, prices, strict=True)]
    return Check(name, True, f"{'; '.join(shown[:OFFERS_SHOWN])} ({len(found)} zones)")


def _failures() -> tuple[type[Exception], ...]:
    """What asking for offers raises if credentials or the catalogue can't be had."""
    from botocore.exceptions import BotoCoreError, ClientError

    errors = sky_server.sdk().exceptions
    of_sky = (errors.CloudError, errors.CloudUserIdentityError, errors.NoCloudAccessError, sky_server.SkyUnavailable)
    return (*of_sky, BotoCoreError, ClientError, OSError, RuntimeError)
