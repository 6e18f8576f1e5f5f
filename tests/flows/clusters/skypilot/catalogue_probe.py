"""Asks SkyPilot's own catalogue and optimizer about the tasks of sky/, offline, in a process and a home of its own.

Run as `python -m tests.flows.clusters.skypilot.catalogue_probe`, which prints one JSON document: SkyPilot
reads its home at import, so the process of the tests must not import it. Two of SkyPilot's own seams are
replaced, as its own tests do: which clouds are enabled, and AWS's names for zones, which only an account can tell.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from flows.clusters.protocol import CellJob
from flows.clusters.skypilot import home as sky_home
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.api import offers
from flows.clusters.skypilot.carried import ON_THE_NODE, carried, values_of
from flows.clusters.skypilot.task_file import FOLDER, ROOT, Rental, TaskFile, load_task, sky_task, task_for
from warehouse.ledger.placement import Offer

CATALOGUE = ROOT / "lab" / "catalogs"
IMAGE = "vllm/vllm-openai@sha256:" + "ab" * 32
JOB = CellJob("s3://bucket/prefix", "Nightly 2026-11-20T03:00", "0123456789abcdef")


@contextlib.contextmanager
def _clouds(*names: str) -> Iterator[None]:
    from sky.utils import registry

    enabled = [registry.CLOUD_REGISTRY.from_str(name) for name in names]
    with mock.patch("sky.check.get_cached_enabled_clouds_or_refresh", lambda *_, **__: enabled):
        yield


def _asked(file: TaskFile, **resources: Any) -> list[str]:
    changed = TaskFile(file.path, file.config | {"resources": file.config["resources"] | resources})
    return [f"{offer.where} {offer.price_usd_h}" for offer in offers(sky_task(changed))]


def _why_none(file: TaskFile) -> list[str]:
    """Why a cloud that is enabled has no offer for a task that leaves the cloud open."""
    told: list[str] = []
    resources = {name: value for name, value in file.config["resources"].items() if name != "any_of"}
    assert not offers(sky_task(TaskFile(file.path, file.config | {"resources": resources})), told.append)
    return told


def _chosen(task: Any) -> dict[str, Any]:
    sky = sky_server.sdk()
    with sky.Dag() as dag:
        dag.add(task)
    sky.optimizer.Optimizer.optimize(dag, minimize=sky.OptimizeTarget.COST, quiet=True)
    best = task.best_resources
    return {
        "cloud": str(best.cloud).lower(),
        "region": best.region,
        "zone": best.zone,
        "spot": best.use_spot,
        "instance_type": best.instance_type,
        "accelerators": best.accelerators,
        "price_usd_h": best.get_cost(3600),
    }


def _rented(file: TaskFile, offer: Offer) -> dict[str, Any]:
    from sky.utils import yaml_utils

    rental = Rental(JOB, "ab2" * 8, offer, IMAGE, 1_800_000_000.5, "c0ffee", True)
    with carried(values_of(file.secret_names, JOB.store_url)) as mounts:
        task = task_for(file, rental, mounts)
        resources = next(iter(task.resources))
        return {
            "name": task.name,
            "carried": Path(mounts[ON_THE_NODE]).read_text(),
            "resources": resources.to_yaml_config(),
            "envs": dict(task.envs),
            "secrets": sorted(task.secrets),
            "chosen": _chosen(task),
            "dump": str(yaml_utils.dump_yaml_str(task.to_yaml_config(use_user_specified_yaml=True))),
            "mounts": task.file_mounts,
            "shown": f"{task!r} {task.secrets!r}",
            "autostop": resources.autostop_config.to_yaml_config(),
        }


def _of_task(path: Path) -> dict[str, Any]:
    sky = sky_server.sdk()
    named = Path.home() / path.name  # as shipped, the one for a pull request names no commit
    named.write_text(path.read_text(encoding="utf-8").replace("@COMMIT", "@" + "ab" * 20), encoding="utf-8")
    file = load_task(str(named))
    found = offers(sky_task(file))
    tier = next(iter(sky_task(file).resources)).disk_tier
    return {
        "aws_disk_mib_s": sky.clouds.AWS._get_disk_specs(tier)["disk_throughput"],
        "chosen": _chosen(sky_task(file)),
        "offers": [offer.model_dump() for offer in found],
        "rented": _rented(file, found[-1]),
    }


def _remote_identities() -> dict[str, Any]:
    """What each request tells SkyPilot's server about whom a node is; of Azure the user's own configuration says it."""
    from sky.server.requests import payloads

    with mock.patch("sky.utils.annotations.is_on_api_server", False):  # as any call of the SDK does
        config = payloads.RequestBody().override_skypilot_config or {}
    return {cloud: settings.get("remote_identity") for cloud, settings in config.items() if isinstance(settings, dict)}


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        shutil.copytree(CATALOGUE, Path(home) / ".sky" / "catalogs")
        os.environ |= {sky_home.HOME_VARIABLE: home, "SPECSWEEP_STATE": f"{home}/state"}
        (Path(home) / ".sky" / "config.yaml").write_text("azure: {remote_identity: my-role}\naws: {vpc_name: mine}\n")
        sky_server.sdk()
        import pandas

        zones = pandas.read_csv(next((CATALOGUE / "v8" / "aws").glob("az_mappings-*.csv")))
        spot = load_task("h100-spot")
        # machines of one's own are in no catalogue: the optimizer would have to ask the cluster itself
        rented = [path for path in sorted(FOLDER.glob("*.yaml")) if path.stem != "slurm"]
        with mock.patch("sky.catalog.aws_catalog._get_az_mappings", lambda _: zones), _clouds("aws", "gcp"):
            document = {
                "tasks": {path.stem: _of_task(path) for path in rented},
                "capped": _asked(spot, max_hourly_cost=2.3),
                "on_demand_only": _asked(spot, use_spot=False),
                "remote_identity": _remote_identities(),
                "one_region": _asked(spot, any_of=[{"infra": "aws/us-east-2"}]),
            }
            with _clouds("aws"):
                document["aws_only"] = _asked(spot)
            with _clouds("gcp"):
                document["gcp_only"] = _chosen(sky_task(spot))
            with _clouds("lambda"):
                document["why_none"] = _why_none(spot)
            with _clouds():
                document["none"] = _asked(spot)
    print(json.dumps(document), file=sys.__stdout__)


if __name__ == "__main__":
    main()
