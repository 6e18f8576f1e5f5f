"""Renting through SkyPilot for one run: offers that its task allows, its image, and a cluster for each cell.

An image's tag is looked up once per run, so all nodes get the same: the registry's HTTP API v2 (OCI distribution
specification, "Pulling manifests"). A registry that asks for a token says where to get one in its WWW-Authenticate
header, also for public images.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import httpx

from configs.schema import Cloud, Plan
from configs.visits import without
from flows.clock import StoppableClock
from flows.clusters.protocol import CellJob, Cluster, LaunchFailed, cluster_name
from flows.clusters.skypilot.api import offers
from flows.clusters.skypilot.carried import carried, give_time_to_live, values_of
from flows.clusters.skypilot.cluster import SkyCluster
from flows.clusters.skypilot.launch_watch import LaunchBounds
from flows.clusters.skypilot.task_file import (
    Rental,
    TaskFile,
    load_task,
    require_no_keys_in_mounts,
    sky_task,
    task_for,
)
from flows.clusters.skypilot.travelling import travelling
from flows.forecast.budget import Purse
from flows.forecast.estimates import measuring_s, ready_s
from flows.renting.expiry import EXPIRES_AFTER_S
from flows.renting.site import NothingToRent, PolicySite
from tasks.engine.machine import cell_workdir
from tasks.place.provenance import git_state
from warehouse.ledger.claims import Claims
from warehouse.ledger.commits import Ledger
from warehouse.ledger.owner import owner_name
from warehouse.ledger.placement import Offer, Placements
from warehouse.ledger.store.identity import store_id


def sky_site(ledger: Ledger, plan: Plan, cloud: Cloud, clock: StoppableClock, purse: Purse) -> PolicySite:
    """The site of one run.

    Raises:
        TaskFileError: its `cloud.task` can't be used.
        ImageNotFound: its engine's image can't be pinned.
        KeysWouldTravel: SkyPilot would copy keys to nodes that don't need them.
    """
    file = load_task(cloud.task)
    require_no_keys_in_mounts(file)
    sha, dirty = git_state()
    own_id = store_id(ledger.store)
    images = pinned_images(ledger, plan, file)
    travelling(file.clouds)  # refuses what nodes don't need
    give_time_to_live(cloud.unattended_h * 3600)
    spot_wanted = {planned.cell.cell_key: planned.spot for planned in plan.cells}

    def make_cluster(cell_key: str, offer: Offer | None) -> Cluster:
        @contextmanager
        def task_of(job: CellJob) -> Iterator[Any]:
            expires_s = clock.now_s() + EXPIRES_AFTER_S
            rental = Rental(job, own_id, offer, images.get(cell_key), expires_s, sha, dirty, cloud.unattended_h)
            with carried(values_of(file.secret_names, job.store_url)) as mounts:
                yield task_for(file, rental, mounts)

        def over() -> str | None:
            return purse.over_run() or purse.over_cell(cell_key)

        claims = Claims(ledger, cell_key)
        bounds = LaunchBounds(cloud.launch_h, over, lambda: claims.is_managed_by(owner_name()))
        name = cluster_name(own_id, ledger.run_id, cell_key)
        log_path = cell_workdir(ledger.run_id, cell_key) / "launch.log"
        return SkyCluster(name, task_of, offer, log_path, lambda: clock.is_stopped, bounds)

    return PolicySite(
        offers=partial(rentable, file, plan, cloud),
        make_cluster=make_cluster,
        cloud=cloud,
        history=[story for key in spot_wanted for story in Placements(ledger, key).stories()],
        now_s=clock.now_s,
        rng=random.Random(),
        waiting_s=_waiting_s(ledger, plan),
        places=plan.concurrency,
    )


def rentable(file: TaskFile, plan: Plan, cloud: Cloud) -> list[Offer]:
    """Offers that a run may take: none without a price where there is a budget, nor spot where no cell wants it.

    Raises NothingToRent where it is known why there is none; NoAnswer: SkyPilot does not answer.
    """
    why: list[str] = []
    found = offers(sky_task(file), why.append)
    if not found and why:
        said = "; ".join(dict.fromkeys(why))
        raise NothingToRent(f"no enabled cloud has what {file.path} asks for: {said}; remedy: change that there")
    priced = [offer for offer in found if offer.price_usd_h is not None or not cloud.budget.is_set]
    if found and not priced:
        raise NothingToRent(
            f"{found[0].where} has no price, so no budget can be kept; remedy: leave cloud.budget out of the sweep"
        )
    return priced if any(planned.spot for planned in plan.cells) else [offer for offer in priced if not offer.spot]


def _waiting_s(ledger: Ledger, plan: Plan) -> dict[str, float]:
    committed = ledger.committed_steps()
    waiting: dict[str, float] = {}
    for planned in plan.cells:
        if left := without(planned.starts, committed.get(planned.cell.cell_key, ())):
            waiting[planned.cell.cell_key] = ready_s(planned, left, rented=True) + measuring_s(planned, left)
    return waiting


def pinned_images(ledger: Ledger, plan: Plan, file: TaskFile) -> dict[str, str]:
    """Cell key to `name@sha256:...`, for cells whose engine has an image; empty if the task uses no container."""
    if not file.is_container:
        return {}
    wanted = {planned.cell.cell_key: planned.cell.engine.image for planned in plan.cells}
    digests = {image: _pinned(ledger, image) for image in set(wanted.values()) if image}
    return {key: digests[image] for key, image in wanted.items() if image}


def _pinned(ledger: Ledger, image: str) -> str:
    """The image and digest that the run recorded first, by any of its flows."""
    key = f"{ledger.root}/images/{hashlib.sha256(image.encode()).hexdigest()[:16]}.txt"
    known = ledger.store.get(key)
    if known is None:
        ledger.store.put_new(key, pinned_image(image).encode())
        known = ledger.store.get(key)
    assert known is not None, "created just now, by us or by somebody else"
    return known.decode()


DOCKER_HUB = "registry-1.docker.io"  # the registry of images whose name has no host

MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""A list of platforms is asked for first: its digest pins the image for every kind of node."""

TIMEOUT_S = 20.0


class ImageNotFound(LaunchFailed):
    """An image can't be pinned; the text says which, why and what to do."""


class ImageName(NamedTuple):
    """An image's parts; `repository` as the registry knows it (Docker Hub's own images live under `library/`)."""

    name: str
    registry: str
    repository: str
    tag: str
    digest: str | None


def parse_image(image: str) -> ImageName:
    """Split `[host[:port]/]repository[:tag][@digest]`. Raises ImageNotFound: it is not an image name."""
    rest, _, digest = image.removeprefix("docker:").partition("@")
    head, slash, tail = rest.rpartition("/")
    last, _, tag = tail.partition(":")
    name = f"{head}{slash}{last}"
    if not re.fullmatch(r"[\w.\-:/]+", name) or (digest and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest)):
        raise ImageNotFound(f"image {image!r} is no image name: write repository:tag or repository@sha256:...")
    host, slash, repository = name.partition("/")
    if not slash or not (("." in host) or (":" in host) or host == "localhost"):
        host, repository = DOCKER_HUB, name if "/" in name else f"library/{name}"
    return ImageName(name, host, repository, tag or "latest", digest or None)


def pinned_image(image: str) -> str:
    """The image as `name@sha256:...`, unasked if it names its digest; ImageNotFound: its registry can't say."""
    parts = parse_image(image)
    if parts.digest is not None:
        return f"{parts.name}@{parts.digest}"
    try:
        with httpx.Client(timeout=TIMEOUT_S, follow_redirects=True) as client:
            answer = _manifest(client, parts)
        digest = answer.headers.get("Docker-Content-Digest", "")
        if answer.status_code == 200 and digest.startswith("sha256:"):
            return f"{parts.name}@{digest}"
        why = "names no digest" if answer.status_code == 200 else f"answers {answer.status_code}"
    except httpx.HTTPError as error:
        why = f"does not answer ({error or type(error).__name__})"
    raise ImageNotFound(
        f"image {image!r} can't be pinned: {parts.registry} {why}; check its name and tag, or write it as "
        "repository@sha256:... in the engine's file, which asks no registry"
    )


def _manifest(client: httpx.Client, parts: ImageName) -> httpx.Response:
    scheme = "http" if re.match(r"(localhost|127\.0\.0\.1)(:|$)", parts.registry) else "https"
    url = f"{scheme}://{parts.registry}/v2/{parts.repository}/manifests/{parts.tag}"
    headers = {"Accept": ", ".join(MANIFESTS)}
    answer = client.head(url, headers=headers)
    if answer.status_code != 401:
        return answer
    token = _token(client, answer.headers.get("WWW-Authenticate", ""))
    return client.head(url, headers=headers | {"Authorization": f"Bearer {token}"}) if token else answer


def _token(client: httpx.Client, challenge: str) -> str | None:
    """An anonymous token, from where the challenge says; None if it asks for anything else, or refuses."""
    scheme, _, fields = challenge.partition(" ")
    asked = dict(re.findall(r'(\w+)="([^"]*)"', fields))
    realm = asked.pop("realm", None)
    if scheme.lower() != "bearer" or realm is None:
        return None
    answer = client.get(realm, params=asked)
    if answer.status_code != 200:
        return None
    document = answer.json()
    token = document.get("token") or document.get("access_token")
    return None if token is None else str(token)
