"""SkyPilot and its clouds as the doctor sees them: tools, server, credentials, what travels, offers and quota.

Nothing is started and nothing is rented. What a sweep lacks is a problem; where none was named, it is a remark.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from typing import Any, NamedTuple

import httpx

from configs.errors import SpecsweepError
from configs.schema import Plan
from flows.clusters.answers import LOOK_S, NoAnswer, answered
from flows.clusters.skypilot import home as sky_home
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.api import enabled_clouds, has_quota, offers
from flows.clusters.skypilot.carried import values_of
from flows.clusters.skypilot.remedies import explain
from flows.clusters.skypilot.task_file import TaskFile, require_no_keys_in_mounts, sky_task
from flows.clusters.skypilot.travelling import travelling
from flows.renting.sky_site import rentable
from warehouse.ledger.placement import Offer
from warehouse.ledger.store.proof import Check
from warehouse.report.display.figures import plural

SKYPILOT = "0.14.1"  # the version that flows/clusters/skypilot is written for and tested with
CLOUDS = ("AWS", "GCP")  # those of the shipped tasks are shown even if they are not set up, others only if they are
OTHER_CLOUDS = ("Kubernetes", "Slurm")
OFFERS_SHOWN = 3
REMOTE_SERVER = "SKYPILOT_API_SERVER_ENDPOINT"


ALWAYS = ("SkyPilot", "SkyPilot API server")  # checks whose problem is one though no sweep was named


class Rented(NamedTuple):
    """A task, and the sweep that rents with it; None: no sweep was named, and the task is an example."""

    file: TaskFile
    store_url: str
    plan: Plan | None = None

    @property
    def clouds(self) -> frozenset[str]:
        """Clouds that the sweep names, in lower case; empty if it takes any."""
        return frozenset() if self.plan is None else self.file.clouds


def problem(name: str, error_text: str) -> Check:
    """A line about what is missing, with the remedy behind `; remedy: ` of an error's text."""
    cause, _, remedy = error_text.partition("; remedy: ")
    return Check(name, False, cause, remedy)


def made(name: str, ask: Callable[[], str | Iterable[Check]]) -> list[Check]:
    """The lines of one check, of which an error of ours, SkyPilot's or a cloud's is one, too."""
    try:
        said = ask()
        return [Check(name, True, said)] if isinstance(said, str) else list(said)
    except Exception as error:
        if isinstance(error, SpecsweepError):
            return [problem(name, str(error))]
        if isinstance(error, _sky_failures()):
            return [problem(name, explain(sky_server.text_of(error)))]
        raise


def sky_checks(rented: Rented) -> Iterator[Check]:
    """Every check of SkyPilot and the clouds, in the order in which a new user needs them."""
    rows = {
        "ssh and rsync": _tools,
        "SkyPilot": _skypilot,
        "SkyPilot API server": _server,
        "clouds": _clouds,
        "what travels to nodes": _travels,
        "offers" if rented.plan else f"spot offers of {rented.file.path.stem}": _offers,
    }
    for name, ask in rows.items():
        for line in made(name, partial(ask, name, rented)):
            is_problem = rented.plan is not None or name in ALWAYS or line.ok
            yield line if is_problem else line._replace(ok=True, remark=True)


def _tools(name: str, rented: Rented) -> str | list[Check]:
    lacking = [tool for tool in ("ssh", "rsync") if shutil.which(tool) is None]
    if not lacking:
        return "installed; SkyPilot copies and starts with them"
    return [problem(name, explain(f"{lacking[0]}: not found"))]


def _skypilot(name: str, rented: Rented) -> list[Check]:
    found = metadata.version("skypilot")
    remedy = f"install {SKYPILOT} (`bin/environment control` does)"
    return [Check(name, found == SKYPILOT, f"version {found}", remedy)]


def _server(name: str, rented: Rented) -> str | list[Check]:
    """A remote one has to answer; ours is started by the first run."""
    url = sky_server.server_url()
    try:
        healthy = httpx.get(f"{url}/api/health", timeout=5).is_success
    except httpx.HTTPError:
        healthy = False
    if not healthy and os.environ.get(REMOTE_SERVER):
        return [problem(name, explain(f"Could not connect to SkyPilot API server at {url}"))]
    return f"answers at {url}" if healthy else "not started: the first run starts it"


def _clouds(name: str, rented: Rented) -> Iterator[Check]:
    """One line each; of those that a sweep names, one has to be enabled."""
    sky_server.sdk()
    from sky.utils.registry import CLOUD_REGISTRY

    from sky import sky_logging

    if os.environ.get(REMOTE_SERVER):
        names = {str(cloud) for cloud in enabled_clouds()}
        wanted = {str(CLOUD_REGISTRY.from_str(each)) for each in rented.clouds}
        has_one = bool(names & wanted if wanted else names)
        remedy = f"`sky check` where that server runs, for {' or '.join(sorted(wanted)) or 'any cloud'}"
        said = f"the API server has {', '.join(sorted(names)) or 'none'} enabled"
        yield Check(name, has_one, said, remedy)
        return
    with sky_logging.silent(), ThreadPoolExecutor() as pool:
        asked = sorted(rented.clouds) or dict.fromkeys([*CLOUDS, *OTHER_CLOUDS, *map(str, enabled_clouds())])
        clouds = [CLOUD_REGISTRY.from_str(each) for each in asked]
        whys = list(pool.map(_why_not, clouds))
    for cloud, why in zip(clouds, whys, strict=True):
        if why is None:
            yield Check(f"cloud {cloud}", True, "enabled")
        elif rented.clouds or str(cloud) in CLOUDS:
            yield problem(f"cloud {cloud}", f"not enabled: {why}")._replace(ok=None in whys, remark=None in whys)


def _why_not(cloud: Any) -> str | None:
    """Why a cloud isn't enabled, with the remedy; None: it is."""
    from sky.clouds import CloudCapability

    look: Callable[[], Any] = partial(cloud.check_credentials, CloudCapability.COMPUTE)
    try:
        works, reason = answered(look, LOOK_S)
    except NoAnswer as error:
        works, reason = False, str(error)
    if works:
        return None
    # SkyPilot gives a sentence, or one per Kubernetes context
    said = "; ".join(map(str, reason.values())) if isinstance(reason, dict) else str(reason or "no reason given")
    if str(cloud).lower() in (*sky_home.WITH_A_ROLE, "slurm") or os.environ.get(sky_home.HOME_VARIABLE):
        return explain(said)
    return (
        f"{explain(said).partition('; remedy: ')[0]}; remedy: its nodes end themselves with your key, so give SkyPilot "
        f"a home with no other: {sky_home.HOME_VARIABLE}, see docs/cloud.md, SkyPilot's home"
    )


def _travels(name: str, rented: Rented) -> list[Check]:
    """What of the user's goes to nodes: secrets by name, and files that SkyPilot would copy."""
    require_no_keys_in_mounts(rented.file)
    names = ", ".join(values_of(rented.file.secret_names, rented.store_url)) or "none"
    keys = travelling(rented.clouds)
    detail = f"secrets, in a file that is read and removed: {names}; files with a key: {'; '.join(keys) or 'none'}"
    remedy = f"{sky_server.server_url()} may copy keys of its own home" if os.environ.get(REMOTE_SERVER) else ""
    return [Check(name, True, detail, remedy, remark=bool(keys or remedy))]


def _offers(name: str, rented: Rented) -> Iterator[Check]:
    plan = rented.plan
    if plan is not None and plan.cloud is not None:
        found = rentable(rented.file, plan, plan.cloud)
    else:
        found = [offer for offer in offers(sky_task(rented.file)) if offer.spot]
    if not found:
        yield problem(name, "none: no cloud is enabled that has one; remedy: set up one of the task's, as above")
        return
    prices = ["unpriced" if each.price_usd_h is None else f"{each.price_usd_h:.2f} USD/h" for each in found]
    shown = [f"{each.where} {each.instance_type} {price}" for each, price in zip(found, prices, strict=True)]
    yield Check(name, True, f"{'; '.join(shown[:OFFERS_SHOWN])} ({plural(len(found), 'zone')})")
    if plan is not None:
        yield from made("quota", partial(_quota, found))


def _quota(found: Sequence[Offer]) -> str | list[Check]:
    """Whether the account may rent any of these offers, as far as their clouds say."""
    places = {(each.cloud, each.region, each.instance_type, each.spot): each for each in found}
    without = [each for each in places.values() if not has_quota(each)]
    if not without:
        return f"no cloud says that there is none, in {plural(len(places), 'place')}"
    first, some = without[0], len(without) < len(places)
    kind = f"{first.instance_type} {'spot' if first.spot else 'on-demand'}"
    line = problem("quota", explain(f"Found no quota for {kind} instances in region {first.region}"))
    detail = f"none in {len(without)} of {plural(len(places), 'place')}, as for {first.where}"
    return [line._replace(detail=detail, ok=some, remark=some)]


def _sky_failures() -> tuple[type[Exception], ...]:
    """What asking SkyPilot raises if credentials or the catalogue can't be had."""
    from botocore.exceptions import BotoCoreError, ClientError

    errors = sky_server.sdk().exceptions
    of_sky = (errors.CloudError, errors.CloudUserIdentityError, errors.NoCloudAccessError)
    return (*of_sky, BotoCoreError, ClientError, OSError, RuntimeError, ValueError)
