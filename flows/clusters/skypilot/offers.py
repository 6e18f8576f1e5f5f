"""What can be rented for a task, cheapest first: every zone of every cloud that the task allows and the user has.

Asked of SkyPilot's own catalogue, in this process: no API server and, once SkyPilot has its catalogue and its list of
enabled clouds, no network.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.clusters.skypilot import server as sky_server
from warehouse.ledger.placement import Offer

UNPRICED = "no catalogue price"
"""Source of an offer's price on clouds whose machines are the user's own (Slurm, Kubernetes, ssh)."""


def offers(task: Any) -> list[Offer]:
    """Everything a `sky.Task` may be rented as, spot and on-demand, cheapest first; unpriced machines come first.

    Per cloud and entry of `any_of` it is the instance type that SkyPilot's optimizer would take. A task that says
    `use_spot: false` gets on-demand offers only. What costs more than `max_hourly_cost` is left out.

    Raises:
        sky.exceptions.CloudError: the catalogue is not here and can't be fetched.
    """
    sky_server.sdk()
    from sky import sky_logging

    with sky_logging.silent():  # else its progress is printed in the server's own encoding
        enabled = enabled_clouds()
        found = {offer for wanted in task.resources for offer in _offers_of(wanted, enabled)}
    return sorted(found, key=lambda offer: (offer.price_usd_h or 0.0, not offer.spot, offer.where))


def enabled_clouds() -> list[Any]:
    """SkyPilot's `Cloud` objects with working credentials: from its cache, or by a check (seconds) if that is empty."""
    sky_server.sdk()
    from sky.check import get_cached_enabled_clouds_or_refresh
    from sky.clouds import CloudCapability
    from sky.utils import registry

    if os.environ.get("SKYPILOT_API_SERVER_ENDPOINT"):  # credentials lie with the server, not here
        names = sky_server.call(lambda sky: sky.enabled_clouds())
        return [registry.CLOUD_REGISTRY.from_str(name) for name in names]
    return list(get_cached_enabled_clouds_or_refresh(CloudCapability.COMPUTE))


def _offers_of(wanted: Any, enabled: list[Any]) -> Iterator[Offer]:
    from sky.utils import resources_utils

    kinds = (False,) if wanted.use_spot_specified and not wanted.use_spot else (True, False)
    for cloud in enabled:
        if wanted.cloud is not None and not wanted.cloud.is_same_cloud(cloud):
            continue
        for spot in kinds:
            asked = wanted.copy(cloud=cloud, use_spot=spot)
            feasible = cloud.get_feasible_launchable_resources(asked, num_nodes=1).resources_list
            for exact in (
                resources_utils.make_launchables_for_valid_region_zones(feasible[0], override_optimize_by_zone=True)
                if feasible
                else ()
            ):
                offer = _offer(exact)
                most_usd_h = math.inf if wanted.max_hourly_cost is None else wanted.max_hourly_cost
                if offer is not None and (offer.price_usd_h or 0.0) <= most_usd_h:
                    yield offer


def _offer(exact: Any) -> Offer | None:
    """One exact place; None where the catalogue lists the machine but no price of this kind."""
    cloud = str(exact.cloud).lower()
    source = _source(cloud)
    price = None if source == UNPRICED else float(exact.get_cost(3600))
    if price is not None and not math.isfinite(price):
        return None
    return Offer(
        cloud=cloud,
        region=exact.region,
        zone=exact.zone,
        instance_type=exact.instance_type,
        spot=exact.use_spot,
        price_usd_h=None if price is None else round(price, 6),
        price_source=source,
    )


def _source(cloud: str) -> str:
    """The file of the catalogue and its date; SkyPilot fetches it anew every 7 hours."""
    from sky.catalog import common

    file = Path(common.get_catalog_path(f"{cloud}/vms.csv"))
    if not file.exists():
        return UNPRICED
    day = datetime.fromtimestamp(file.stat().st_mtime, UTC).date()
    return f"SkyPilot catalogue {cloud}/vms.csv of {day.isoformat()}"
