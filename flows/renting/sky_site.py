"""Renting through SkyPilot for one run: which offers its task allows, and a cluster for each of its cells."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from configs.schema import Cloud, Plan
from configs.visits import without
from flows.clock import StoppableClock
from flows.clusters.names import cluster_name
from flows.clusters.protocol import CellJob, Cluster
from flows.clusters.skypilot.carried import carried, give_time_to_live, values_of
from flows.clusters.skypilot.cluster import SkyCluster
from flows.clusters.skypilot.images import pinned_images
from flows.clusters.skypilot.launch_watch import LaunchBounds
from flows.clusters.skypilot.offers import offers
from flows.clusters.skypilot.task_file import Rental, load_task, require_no_keys_in_mounts, sky_task, task_for
from flows.forecast.budget import Purse
from flows.forecast.estimates import measuring_s, ready_s
from flows.renting.expiry import EXPIRES_AFTER_S
from flows.renting.site import PolicySite
from tasks.engine.machine import cell_workdir
from tasks.place.provenance import git_state
from warehouse.ledger.claims import Claims
from warehouse.ledger.commits import Ledger
from warehouse.ledger.owner import owner_name
from warehouse.ledger.placement import Offer, Placements


def sky_site(ledger: Ledger, plan: Plan, cloud: Cloud, clock: StoppableClock, purse: Purse) -> PolicySite:
    """The site of one run: what its task can rent, and where renting has failed so far.

    Raises:
        TaskFileError: the sweep's `cloud.task` can't be used.
        ImageNotFound: the engine's image can't be pinned.
    """
    file = load_task(cloud.task)
    require_no_keys_in_mounts(file)
    sha, dirty = git_state()
    images = pinned_images(ledger, plan, file)
    give_time_to_live(cloud.unattended_h * 3600)
    spot_wanted = {planned.cell.cell_key: planned.spot for planned in plan.cells}

    def known_offers() -> list[Offer]:
        found = offers(sky_task(file))
        if cloud.budget.is_set:  # a machine without a price can't be kept within a budget
            found = [offer for offer in found if offer.price_usd_h is not None]
        return found if any(spot_wanted.values()) else [offer for offer in found if not offer.spot]

    def make_cluster(cell_key: str, offer: Offer | None) -> Cluster:
        @contextmanager
        def task_of(job: CellJob) -> Iterator[Any]:
            expires_s = clock.now_s() + EXPIRES_AFTER_S
            rental = Rental(job, offer, images.get(cell_key), expires_s, sha, dirty, cloud.unattended_h)
            with carried(values_of(file.secret_names, job.store_url)) as mounts:
                yield task_for(file, rental, mounts)

        name = cluster_name(ledger.store.url, ledger.run_id, cell_key)
        log_path = cell_workdir(ledger.run_id, cell_key) / "launch.log"
        return SkyCluster(name, task_of, offer, log_path, lambda: clock.is_stopped, bounds_of(cell_key))

    def bounds_of(cell_key: str) -> LaunchBounds:
        claims = Claims(ledger, cell_key)
        over = lambda: purse.over_run() or purse.over_cell(cell_key)  # noqa: E731
        return LaunchBounds(cloud.launch_h, over, lambda: claims.is_managed_by(owner_name()))

    return PolicySite(
        offers=known_offers,
        make_cluster=make_cluster,
        cloud=cloud,
        history=[story for key in spot_wanted for story in Placements(ledger, key).stories()],
        now_s=clock.now_s,
        rng=random.Random(),
        waiting_s=_waiting_s(ledger, plan),
        places=plan.concurrency,
    )


def _waiting_s(ledger: Ledger, plan: Plan) -> dict[str, float]:
    committed = ledger.committed_steps()
    waiting: dict[str, float] = {}
    for planned in plan.cells:
        done = committed.get(planned.cell.cell_key, ())
        left = without(planned.starts, done)
        if left:
            waiting[planned.cell.cell_key] = ready_s(planned, left, rented=True) + measuring_s(planned, left)
    return waiting
