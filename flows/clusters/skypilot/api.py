"""What SkyPilot's SDK is asked about clusters and offers: few calls, typed results.

This process reads offers from SkyPilot's own catalogue. That needs no API server and, once it has its catalogue and its
list of enabled clouds, no network. Whatever is asked has an end: NoAnswer.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from flows.clusters.answers import DOWN_S, LOOK_S, REQUEST_S, Answer, MayYetCome, NoAnswer, answered
from flows.clusters.protocol import PREFIX
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.server import ANSI, call, cancel_request, ensure_server, sdk, text_of
from warehouse.ledger.placement import Offer


class Rented(NamedTuple):
    """One cluster that SkyPilot knows. `price_usd_h` is its catalogue's; `detail` says why a cluster is in INIT."""

    name: str
    status: str
    launched_at_s: float | None
    cloud: str | None
    region: str | None
    zone: str | None
    spot: bool
    price_usd_h: float | None
    name_on_cloud: str | None
    detail: str


class Job(NamedTuple):
    """The newest job of a cluster. `status` is SkyPilot's JobStatus by name; None if the cluster has no job."""

    job_id: int | None
    status: str | None

    @property
    def over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.status in ("SUCCEEDED", "FAILED", "FAILED_SETUP", "FAILED_DRIVER", "CANCELLED")


def rented(names: list[str] | None = None, *, refresh: bool = False) -> list[Rented]:
    """Clusters that SkyPilot knows, all or by name; `refresh` asks the cloud."""
    sky = sdk()
    mode = sky.StatusRefreshMode.FORCE if refresh else sky.StatusRefreshMode.NONE
    records = call(lambda sky: sky.status(cluster_names=names, refresh=mode))
    return [_rented(record) for record in records if record.name.startswith(PREFIX)]


def take_down(name: str, *, purge: bool = False, is_ended: bool = False) -> bool:
    """Terminate a cluster; False if there was none. Safe to repeat, and for several callers at once.

    `is_ended`: its cloud has ended its machines. So nobody waits long, and a `down` without an answer is cancelled: it
    would take the next machine of this name. NoAnswer: SkyPilot does not say that it is down. MayYetCome: nor that it
    has heard of the cancel.
    """
    sky, requests = sdk(), list[Any]()
    try:
        call(lambda sky: sky.down(name, purge=purge), None, requests.append, REQUEST_S if is_ended else DOWN_S)
    except sky.exceptions.ClusterDoesNotExist:
        return False
    except NoAnswer as error:
        try:
            for request_id in requests if is_ended else []:
                cancel_request(request_id)
        except Exception as deaf:
            raise MayYetCome(f"{error}; its `down` may yet come: {text_of(deaf)}") from deaf
        raise
    return True


def running_launch(name: str, besides: Any = None) -> Any:
    """The request id of a cluster's launch that the server is at, or will be, `besides` one; None: of none."""
    requests = sdk().api_status(cluster_name=name)
    launches = [each.request_id for each in requests if each.name == "sky.launch"]
    return next((each for each in launches if each != besides), None)


def launch_again(name: str, task: Any, is_submitted: Callable[[], bool]) -> Any:
    """Send a launch whose answer nobody heard: the request to follow; None: its job `is_submitted` and not over."""
    if (taken := running_launch(name)) is not None:
        return taken
    if is_submitted():  # what the server has forgotten had come as far as the job
        return None
    again = sdk().launch(task, cluster_name=name)
    # A server that stood still may read the first one only now. Two never rent two machines: SkyPilot 0.14.1 launches
    # one of a name at a time and looks first what is up (`_locked_provision`; seen on the pocket cloud). But each
    # would queue a job there.
    if (first := running_launch(name, besides=again)) is None:
        return again
    cancel_request(again)
    return first


def newest_job(name: str) -> Job:
    """The newest job of a cluster, asked over ssh: a process or two on the node. ClusterDoesNotExist: it is gone."""
    # `job_status` can't say that there is none: SkyPilot 0.14 answers with number "None", which its own SDK can't read
    jobs = call(lambda sky: sky.queue(name, all_users=True))  # newest first
    return Job(jobs[0].job_id, str(jobs[0].status.value)) if jobs else Job(None, None)


def job_log(name: str, job_id: int | None, lines: int) -> list[str]:
    """The last lines of a job's log without colours and SkyPilot's `(task, pid=1234) `; None: of the newest job's."""
    ensure_server()
    stream = io.StringIO()
    sdk().tail_logs(name, job_id, follow=False, tail=lines, output_stream=stream)
    said = (ANSI.sub("", line) for line in stream.getvalue().splitlines() if line.strip())
    return [re.sub(r"^\([^()]*pid=\d+\)\s", "", line).rstrip() for line in said][-lines:]


def _rented(record: Any) -> Rented:
    resources = getattr(record.handle, "launched_resources", None)
    return Rented(
        name=record.name,
        status=str(record.status.value),
        launched_at_s=float(record.launched_at) if record.launched_at else None,
        cloud=None if resources is None or resources.cloud is None else str(resources.cloud).lower(),
        region=None if resources is None else resources.region,
        zone=None if resources is None else resources.zone,
        spot=bool(resources is not None and resources.use_spot),
        price_usd_h=_price_usd_h(resources),
        name_on_cloud=record.cluster_name_on_cloud or getattr(record.handle, "cluster_name_on_cloud", None),
        detail=text_of(Exception(record.init_status_reason or "")) if record.init_status_reason else "",
    )


def _price_usd_h(resources: Any) -> float | None:
    if resources is None or resources.instance_type is None:
        return None
    try:
        return float(resources.get_cost(3600))
    except (ValueError, KeyError):
        return None  # a machine that the catalogue doesn't list (Slurm, Kubernetes) has no catalogue price


def offers(task: Any, tell: Callable[[str], None] = lambda _: None) -> list[Offer]:
    """Everything a `sky.Task` may be rented as, spot and on-demand, cheapest first; unpriced machines come first.

    Per cloud and entry of `any_of` it is the instance type that SkyPilot's optimizer would take. A task that says
    `use_spot: false` gets on-demand offers only. What costs more than `max_hourly_cost` is left out. `tell` gets why an
    enabled cloud has nothing. Raises sky.exceptions.CloudError: the catalogue is not here and can't be fetched.
    """
    sky_server.sdk()
    from sky import sky_logging

    def find() -> set[Offer]:
        with sky_logging.silent():  # else its progress is printed in the server's own encoding
            enabled = enabled_clouds()
            return {offer for wanted in task.resources for offer in _offers_of(wanted, enabled, tell)}

    return sorted(_looked("offers", find), key=lambda offer: (offer.price_usd_h or 0.0, not offer.spot, offer.where))


def enabled_clouds() -> list[Any]:
    """SkyPilot's `Cloud` objects with working credentials: from its cache, or by a check (seconds) if that is empty."""
    sky_server.sdk()
    from sky.check import get_cached_enabled_clouds_or_refresh
    from sky.clouds import CloudCapability
    from sky.utils import registry

    if os.environ.get("SKYPILOT_API_SERVER_ENDPOINT"):  # credentials lie with the server, not here
        names = sky_server.call(lambda sky: sky.enabled_clouds())
        return [registry.CLOUD_REGISTRY.from_str(name) for name in names]
    check = partial(get_cached_enabled_clouds_or_refresh, CloudCapability.COMPUTE)
    return list(_looked("enabled clouds", check))


def has_quota(offer: Offer) -> bool:
    """Whether the account may rent it at all; True where its cloud doesn't say. Raises what its library does."""
    sky = sky_server.sdk()
    from sky.utils.registry import CLOUD_REGISTRY

    cloud = CLOUD_REGISTRY.from_str(offer.cloud)
    place = {"cloud": cloud, "region": offer.region, "instance_type": offer.instance_type, "use_spot": offer.spot}
    return bool(_looked("quota", partial(cloud.check_quota_available, sky.Resources(**place))))


def _looked(what: str, look: Callable[[], Answer]) -> Answer:
    """What SkyPilot's own code finds in this process, which asks clouds without a limit. NoAnswer."""
    try:
        return answered(look, LOOK_S)
    except NoAnswer as error:
        raise NoAnswer(f"SkyPilot's {what}: {error}; see what `bin/sky check` waits for") from error


def _offers_of(wanted: Any, enabled: list[Any], tell: Callable[[str], None]) -> Iterator[Offer]:
    from sky.utils.resources_utils import make_launchables_for_valid_region_zones as make_launchables

    kinds = (False,) if wanted.use_spot_specified and not wanted.use_spot else (True, False)
    for cloud in enabled:
        if wanted.cloud is not None and not wanted.cloud.is_same_cloud(cloud):
            continue
        for spot in kinds:
            try:
                asked = wanted.copy(cloud=cloud, use_spot=spot)
                found = cloud.get_feasible_launchable_resources(asked, num_nodes=1)
            except ValueError as error:  # a field that this cloud does not have
                tell(f"{str(cloud).lower()}: {text_of(error)}")
                continue
            if not found.resources_list:
                other = ", ".join(found.fuzzy_candidate_list[:3]) or "none"
                none = f"no such machine within max_hourly_cost, similar: {other}"
                tell(f"{str(cloud).lower()}: {' '.join((found.hint or none).split())}")
                continue
            for exact in make_launchables(found.resources_list[0], override_optimize_by_zone=True):
                offer = _offer(exact)
                most_usd_h = math.inf if wanted.max_hourly_cost is None else wanted.max_hourly_cost
                if offer is not None and (offer.price_usd_h or 0.0) <= most_usd_h:
                    yield offer


def _offer(exact: Any) -> Offer | None:
    """One exact place; None where the catalogue lists the machine but no price of this kind."""
    from sky.catalog import common

    cloud, source, price = str(exact.cloud).lower(), "no catalogue price", None  # as of the user's own machines
    file = Path(common.get_catalog_path(f"{cloud}/vms.csv"))
    if file.exists():
        day = datetime.fromtimestamp(file.stat().st_mtime, UTC).date()  # SkyPilot fetches it anew every 7 hours
        source, price = f"SkyPilot catalogue {cloud}/vms.csv of {day.isoformat()}", float(exact.get_cost(3600))
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
