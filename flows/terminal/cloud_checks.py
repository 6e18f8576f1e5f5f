"""SkyPilot and its clouds as the doctor sees them: tools, keys, the server, credentials, offers and quota.

Nothing is started and nothing is rented. For a sweep that rents, what is missing is a problem, else a remark.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path

import httpx

from configs.evals.suites import SUITES
from flows.clusters.answers import LOOK_S, NoAnswer, answered
from flows.clusters.skypilot import home as sky_home
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.api import enabled_clouds, has_quota, offers, recheck
from flows.clusters.skypilot.carried import values_of
from flows.clusters.skypilot.remedies import explain
from flows.clusters.skypilot.task_file import TaskFile, load_task, sky_task
from flows.clusters.skypilot.travelling import refusal, travelling
from tasks.host.hub import hub_home
from warehouse.ledger.placement import Offer
from warehouse.ledger.store.proof import Check
from warehouse.report.display.figures import plural

SKYPILOT = "0.14.1"  # the version that flows/clusters/skypilot is written for and tested with
CLOUDS = ("AWS", "GCP")  # those of the shipped tasks are shown even if they are not set up, others only if they are
OTHER_CLOUDS = ("Kubernetes", "Slurm")
TASK = "h100-spot"  # the task that is looked at where no sweep is named
OFFERS_SHOWN = 3
AT_ONCE = 8  # questions to a cloud about quota
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


def problem(name: str, error_text: str) -> Check:
    """A check that fails, with the remedy behind `; remedy: ` of an error's text."""
    cause, _, remedy = error_text.partition("; remedy: ")
    return Check(name, False, cause, remedy)


def sky_checks(store_url: str) -> list[Check]:
    """Every check of SkyPilot and the clouds, in the order in which a new user needs them."""
    checks = [tools(is_needed=False), skypilot(), *_secrets(), server(), *_clouds(), _offers()]
    return [*checks, travels(load_task(TASK), store_url)]


def tools(*, is_needed: bool) -> Check:
    """The programs that SkyPilot copies and starts with."""
    lacking = [tool for tool in ("ssh", "rsync") if shutil.which(tool) is None]
    if not lacking:
        return Check("ssh and rsync", True, "installed; SkyPilot copies and starts with them")
    remedy = explain(f"{lacking[0]}: not found").partition("; remedy: ")[2]
    return Check("ssh and rsync", not is_needed, f"{' and '.join(lacking)} missing", remedy, remark=not is_needed)


def skypilot() -> Check:
    """SkyPilot's version."""
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


def server() -> Check:
    """SkyPilot's API server: a remote one has to answer, ours is started by the first run."""
    url, name = sky_server.server_url(), "SkyPilot API server"
    try:
        healthy = httpx.get(f"{url}/api/health", timeout=5).is_success
    except httpx.HTTPError:
        healthy = False
    if healthy:
        return Check(name, True, f"answers at {url}")
    if os.environ.get(REMOTE_SERVER):
        return problem(name, explain(f"Could not connect to SkyPilot API server at {url}"))
    return Check(name, True, "not started: the first run starts it")


def _clouds() -> list[Check]:
    if os.environ.get(REMOTE_SERVER):
        return [_remote_clouds()]
    found = _looked_at((*CLOUDS, *OTHER_CLOUDS))
    return [check for name, check in found.items() if name in CLOUDS or not check.remark]


def _remote_clouds() -> Check:
    try:
        names = ", ".join(sorted(str(cloud) for cloud in enabled_clouds()))
    except sky_server.SkyUnavailable as error:
        return remark("clouds", f"not asked: {error}")
    return Check("clouds", bool(names), f"the API server has {names or 'none'} enabled")


def _looked_at(names: Collection[str]) -> dict[str, Check]:
    sky_server.sdk()
    from sky import sky_logging

    with sky_logging.silent(), ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(_cloud, names), strict=True))


def _cloud(name: str) -> Check:
    from sky.clouds import CloudCapability
    from sky.utils import registry

    cloud = registry.CLOUD_REGISTRY.from_str(name)
    try:
        works, reason = answered(partial(cloud.check_credentials, CloudCapability.COMPUTE), LOOK_S)
    except NoAnswer as error:
        works, reason = False, str(error)
    if works:
        return Check(f"cloud {cloud}", True, "enabled")
    # SkyPilot gives a sentence, or one per Kubernetes context
    said = "; ".join(map(str, reason.values())) if isinstance(reason, dict) else str(reason or "no reason given")
    cause, _, remedy = explain(said).partition("; remedy: ")
    if str(cloud).lower() not in (*sky_home.WITH_A_ROLE, "slurm") and not os.environ.get(sky_home.HOME_VARIABLE):
        own = f"a home with no other key: {sky_home.HOME_VARIABLE}, see docs/cloud.md, SkyPilot's home"
        remedy = f"its nodes end themselves with your key, so give SkyPilot {own}"
    return remark(f"cloud {cloud}", f"not enabled: {cause}", remedy)


def clouds_of(file: TaskFile) -> list[Check]:
    """The clouds that a task names: one of them has to be enabled."""
    if os.environ.get(REMOTE_SERVER):
        return [_remote_clouds()]
    if not file.clouds:
        names = ", ".join(sorted(str(cloud) for cloud in enabled_clouds()))
        none = problem("clouds", explain("No cloud is enabled"))
        return [Check("clouds", True, f"enabled: {names}") if names else none]
    found = _looked_at(sorted(file.clouds))
    works = [name for name, check in found.items() if not check.remark]
    if works:  # what SkyPilot has kept may be older than the credentials
        recheck(works)
        return list(found.values())
    return [check._replace(ok=False, remark=False) for check in found.values()]


def _offers() -> Check:
    name = f"spot offers of {TASK}"
    try:
        found = [offer for offer in offers(sky_task(load_task(TASK))) if offer.spot]
    except sky_failures() as error:
        cause, _, remedy = explain(sky_server.text_of(error)).partition("; remedy: ")
        return remark(name, cause, remedy)
    if not found:
        return remark(name, "none: no cloud is enabled that has one", "set up AWS or GCP as said above")
    return Check(name, True, said_of(found))


def said_of(found: Sequence[Offer]) -> str:
    """The cheapest offers with their prices, and how many zones there are."""
    prices = ["unpriced" if each.price_usd_h is None else f"{each.price_usd_h:.2f} USD/h" for each in found]
    shown = [f"{each.where} {each.instance_type} {price}" for each, price in zip(found, prices, strict=True)]
    return f"{'; '.join(shown[:OFFERS_SHOWN])} ({plural(len(found), 'zone')})"


def quota_for(found: Sequence[Offer]) -> Check:
    """Whether the account may rent any of these offers, as far as their clouds say."""
    places = list({(each.cloud, each.region, each.instance_type, each.spot): each for each in found}.values())

    def answer(offer: Offer) -> bool | None:
        try:
            return has_quota(offer)
        except sky_failures():
            return None  # the cloud can't be asked; the launch will tell

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(answer, places))
    said = Counter(answers)
    without = [f"{each.where} {each.instance_type}" for each, has in zip(places, answers, strict=True) if has is False]
    detail = f"none in {said[False]} of {len(places)} places" + (f", as {without[0]}" if without else "")
    if said[None]:
        detail += f"; {said[None]} could not be asked about"
    told = explain(f"Found no quota for {places[0].instance_type} spot instances in region {places[0].region}")
    remedy = told.partition("; remedy: ")[2] if without else ""
    is_ok = len(without) < len(places)
    return Check("quota", is_ok, detail, remedy, remark=is_ok and bool(without or said[None]))


def travels(file: TaskFile, store_url: str) -> Check:
    """What of the user's goes to the nodes of a task: secrets by name, and files that SkyPilot would copy."""
    name = "what travels to nodes"
    names = ", ".join(values_of(file.secret_names, store_url)) or "none"
    secrets = f"secrets, in a file that is read and removed: {names}"
    try:
        found = travelling(file.clouds or {str(cloud).lower() for cloud in enabled_clouds()})
    except sky_failures() as error:
        return remark(name, f"{secrets}; files: not asked, {explain(sky_server.text_of(error))}")
    if found is None:
        return remark(name, f"{secrets}; files: what keys the API server at {sky_server.server_url()} has in its home")
    if said := refusal(found):
        return problem(name, said)
    keys = [f"{', '.join(each.key)} to {cloud}, to end themselves" for cloud, each in found.items() if each.key]
    return Check(name, True, f"{secrets}; files: {'; '.join(keys) or 'none'}", remark=bool(keys))


def sky_failures() -> tuple[type[Exception], ...]:
    """What asking SkyPilot raises if credentials or the catalogue can't be had."""
    from botocore.exceptions import BotoCoreError, ClientError

    errors = sky_server.sdk().exceptions
    of_sky = (errors.CloudError, errors.CloudUserIdentityError, errors.NoCloudAccessError, sky_server.SkyUnavailable)
    return (*of_sky, BotoCoreError, ClientError, OSError, RuntimeError, ValueError)
