"""A SkyPilot task of sky/ (or a user's own YAML), and one cell's copy of it: one exact offer, labels, secrets.

What a cell's copy pins is not left to SkyPilot's optimizer: our policy alone decides where a cell runs. Secrets go to
its node as a file (`carried.py`); SkyPilot's own way for them leads through command lines.
"""

from __future__ import annotations

import copy
import getpass
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from configs.checkout import ROOT
from configs.secrets import hold, redacted
from flows.clusters.protocol import LABEL, CellJob, LaunchFailed
from flows.clusters.skypilot import home as sky_home
from flows.clusters.skypilot.carried import FOR_SKYPILOT, TIMED_CLOUDS
from flows.clusters.skypilot.server import sdk, text_of
from tasks.notice import TIME_TO_LIVE_VARIABLE
from warehouse.ledger.placement import Offer

FOLDER = ROOT / "sky"
RUN_LABEL, CELL_LABEL = f"{LABEL}-run", f"{LABEL}-cell"
OWNER_LABEL, EXPIRY_LABEL = f"{LABEL}-owner", f"{LABEL}-expires"
"""In addition to `LABEL`, whose value is the store's id. The expiry is in seconds since 1970: clouds refuse colons."""

FORWARDED = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION", "AWS_REGION", "HF_ENDPOINT")
"""Variables that a node needs to reach the same store and hub as this process; passed if they are set here."""

DOCKER = "docker:"  # SkyPilot's prefix of an `image_id` that is a container image
IMAGE_VARIABLE = "SPECSWEEP_IMAGE_DIGEST"  # tells the node which image it runs in, where it runs in one

BUILD_VARIABLE, NAMED_COMMIT = "SPECSWEEP_VLLM", re.compile(r"@[0-9a-f]{40}(#.*)?$")
"""The requirement that a node builds its engine from, and how one ends that names a commit."""


class TaskFileError(LaunchFailed):
    """A task can't be used; the text names the file, the field, its value and the remedy."""


class TaskFile(NamedTuple):
    """A task as written: its path and its parsed YAML."""

    path: Path
    config: dict[str, Any]

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Secrets that the task asks for."""
        return tuple(self.config.get("secrets") or {})

    @property
    def entries(self) -> list[tuple[str, dict[str, Any]]]:
        """What each entry of `any_of` or `ordered` says for itself, by its field; of a task without any: nothing."""
        resources = self.config["resources"]
        lists = {key: entries for key in ("any_of", "ordered") if isinstance(entries := resources.get(key), list)}
        return [
            (f"resources.{key}[{i}]", entry if isinstance(entry, dict) else {})
            for key, entries in lists.items()
            for i, entry in enumerate(entries)
        ] or [("resources", {})]

    @property
    def is_container(self) -> bool:
        """Whether its nodes run in a container image."""
        return str(self.config["resources"].get("image_id", "")).startswith(DOCKER)

    @property
    def clouds(self) -> frozenset[str]:
        """Clouds that its places name, in lower case; empty if any of them leaves it open."""
        places = [{**self.config["resources"], **entry} for _, entry in self.entries]
        named = {str(each.get("infra") or each.get("cloud") or "*").partition("/")[0].lower() for each in places}
        return frozenset() if "*" in named else frozenset(named)

    @property
    def allows_spot(self) -> bool:
        """Whether any place may be rented as spot: an entry's own word comes before that of all."""
        resources = self.config["resources"]
        return any({**resources, **entry}.get("use_spot") is not False for _, entry in self.entries)

    @property
    def idle_s(self) -> float:
        """Seconds without a job after which a cluster removes itself."""
        return float(self.config["resources"]["autostop"]["idle_minutes"]) * 60

    def wrong(self, field: str, value: object, remedy: str) -> TaskFileError:
        """An error about one field, on one line."""
        return TaskFileError(f"{_shown(self.path)}: {field} is {value!r}: {remedy}")


class Rental(NamedTuple):
    """What one cell's task needs in addition to the file. `offer` None leaves the choice to SkyPilot.

    `image`: the engine's, pinned as `name@sha256:...`; used if the task runs in a container. `expires_s`: seconds since
    1970 after which anybody may remove the cluster. `git_sha`, `git_dirty`: of this checkout; the node gets no .git.
    `unattended_h`: hours after which a machine that has a timer ends itself, if its flow is not heard of.
    """

    job: CellJob
    store_id: str
    offer: Offer | None
    image: str | None
    expires_s: float
    git_sha: str | None
    git_dirty: bool | None
    unattended_h: float | None = None


def load_task(name_or_path: str) -> TaskFile:
    """Read a task, by its name in sky/ or its path; TaskFileError if there is none, or a field is wrong."""
    path = FOLDER / f"{name_or_path}.yaml"
    if name_or_path.endswith((".yaml", ".yml")) or os.sep in name_or_path:
        path = Path(name_or_path).expanduser()
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml")))
        raise TaskFileError(f"cloud.task is {name_or_path!r}: no such file; use one of {known}, or a path")
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # no UTF-8, or a date that no calendar has
        raise TaskFileError(f"{_shown(path)}: is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise TaskFileError(f"{_shown(path)}: is no SkyPilot task: a mapping with resources, setup and run is expected")
    file = TaskFile(path, config)
    _check(file)
    return file


def sky_task(file: TaskFile) -> Any:
    """The `sky.Task` as the file has it, with every place that it allows; TaskFileError if SkyPilot refuses it."""
    return _task(file, copy.deepcopy(file.config))


def task_for(file: TaskFile, rental: Rental, mounts: Mapping[str, str]) -> Any:
    """The `sky.Task` of one cell, on one offer; TaskFileError: SkyPilot refuses it, or no node can reach the store."""
    shares_files = rental.offer is not None and rental.offer.cloud in ("slurm", "ssh")
    if "://" not in rental.job.store_url and not shares_files:
        raise TaskFileError(
            f"the store {rental.job.store_url!r} is a folder of this machine, which a node of {_shown(file.path)} "
            "can't reach: use --store s3://bucket/prefix or gs://bucket/prefix"
        )
    config = copy.deepcopy(file.config)
    config["workdir"] = str(ROOT)
    config["name"] = f"{config.get('name') or 'cell'}-{rental.job.cell_key[:8]}"
    config["envs"] = {**(config.get("envs") or {}), **_envs(rental)}
    config["file_mounts"] = {**(config.get("file_mounts") or {}), **mounts}
    return _task(file, config, rental)


def _check(file: TaskFile) -> None:
    resources = file.config.get("resources")
    if not isinstance(resources, dict):
        raise file.wrong("resources", resources, "say what to rent, e.g. resources: {accelerators: H100:1}")
    autostop = resources.get("autostop")
    found = autostop if isinstance(autostop, dict) else {}
    idle = found.get("idle_minutes")
    if type(idle) is not int or idle <= 0 or found.get("down") is not True:
        remedy = "write autostop: {idle_minutes: 10, down: true}, so that a forgotten cluster removes itself"
        raise file.wrong("resources.autostop", autostop, remedy)
    if file.config.get("num_nodes", 1) != 1:
        raise file.wrong("num_nodes", file.config["num_nodes"], "a cell runs on one node; leave it out")
    if not file.config.get("run"):
        raise file.wrong("run", file.config.get("run"), "write run: exec bin/node run")
    envs = file.config.get("envs") or {}
    if not isinstance(envs, dict):
        raise file.wrong("envs", envs, "list them as NAME: value")
    build = str(envs.get(BUILD_VARIABLE) or "")
    if "git+" in build and not NAMED_COMMIT.search(build):
        remedy = "let it end in @ and the 40 hex digits of a commit: what else git names may be other code tomorrow"
        raise file.wrong(f"envs.{BUILD_VARIABLE}", build, remedy)
    secrets = file.config.get("secrets") or {}
    if not isinstance(secrets, dict):
        raise file.wrong("secrets", secrets, "list them as NAME: null")
    for name, value in secrets.items():
        if value is not None:  # the value itself must not be shown
            raise file.wrong(f"secrets.{name}", "...", "leave it null and set the variable where the sweep is started")


def _pinned(task: Any, rental: Rental) -> Any:
    """The task's entry that allows the offer, with the exact place, the labels and the exact image."""
    from sky.utils import registry

    offer, entry = rental.offer, next(iter(task.resources))
    exact: dict[str, Any] = {}
    if offer is not None:

        def allows(entry: Any) -> bool:
            cloud = None if entry.cloud is None else str(entry.cloud).lower()
            pairs = ((cloud, offer.cloud), (entry.region, offer.region), (entry.zone, offer.zone))
            return all(wanted in (None, offered) for wanted, offered in pairs)

        entry = next(filter(allows, task.resources), entry)
        exact = {
            "cloud": registry.CLOUD_REGISTRY.from_str(offer.cloud),
            "region": offer.region,
            "zone": offer.zone,
            "instance_type": offer.instance_type,
            "use_spot": offer.spot,
        }
    if rental.image and entry.extract_docker_image() is not None:
        exact["image_id"] = DOCKER + rental.image
    job = rental.job
    labels = {
        LABEL: rental.store_id,
        RUN_LABEL: _label_value(job.run_id),
        CELL_LABEL: job.cell_key,
        OWNER_LABEL: _label_value(f"{getpass.getuser()}-{platform.node()}"),
        EXPIRY_LABEL: str(int(rental.expires_s)),
    }
    return entry.copy(labels=(entry.labels or {}) | labels, **exact)


def _label_value(text: str) -> str:
    """The text as every cloud accepts it: GCP allows 63 lower-case letters, digits, `_` and `-`."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower())[:63].strip("-")


def _envs(rental: Rental) -> dict[str, str]:
    job, offer = rental.job, rental.offer
    known: dict[str, str | None] = {
        "SPECSWEEP_STORE": job.store_url,
        "SPECSWEEP_RUN": job.run_id,
        "SPECSWEEP_CELL": job.cell_key,
        "SPECSWEEP_OWNER": _label_value(getpass.getuser()),
        "SPECSWEEP_GIT_SHA": rental.git_sha,
        "SPECSWEEP_GIT_DIRTY": None if rental.git_dirty is None else str(int(rental.git_dirty)),
    }
    if offer is not None:
        price = offer.price_usd_h
        known |= {
            "SPECSWEEP_CLOUD": offer.cloud,
            "SPECSWEEP_REGION": offer.region,
            "SPECSWEEP_ZONE": offer.zone,
            "SPECSWEEP_INSTANCE_TYPE": offer.instance_type,
            "SPECSWEEP_SPOT": str(int(offer.spot)),
            "SPECSWEEP_PRICE_USD_H": "" if price is None else str(price),  # empty: rented, and nobody knows its price
            "SPECSWEEP_PRICE_SOURCE": offer.price_source,
        }
    if offer is not None and offer.cloud in TIMED_CLOUDS and rental.unattended_h is not None:
        known[TIME_TO_LIVE_VARIABLE] = str(rental.unattended_h * 3600)
    known |= {name: os.environ.get(name) for name in FORWARDED}
    return {name: value for name, value in known.items() if value is not None}


def _task(file: TaskFile, config: dict[str, Any], rental: Rental | None = None) -> Any:
    """SkyPilot's own reading of the config. Of secrets it gets those that it needs itself, and not in its text."""
    sky = sdk()
    config.pop("secrets", None)
    if isinstance(mounts := config.get("file_mounts"), dict):
        config["file_mounts"] = {place: _of_the_user(source) for place, source in mounts.items()}
    names = [name for name in file.secret_names if name.startswith(FOR_SKYPILOT)]
    secrets = {name: os.environ[name] for name in names if os.environ.get(name)}
    hold(secrets)
    try:
        task = sky.Task.from_yaml_config(config)
        if rental is not None:
            resources = _pinned(task, rental)
            task.set_resources(resources)
            image = resources.extract_docker_image()
            task.update_envs({IMAGE_VARIABLE: image} if image and "@sha256:" in image else {})
        task.update_secrets(secrets)
    except (ValueError, TypeError, AssertionError) as error:
        raise TaskFileError(f"{_shown(file.path)}: SkyPilot refuses it: {redacted(text_of(error))}") from None
    return task


def _of_the_user(source: Any) -> Any:
    """A mount's source with the user's home for `~`, which SkyPilot would take for its own."""
    if isinstance(source, dict):
        return {field: _of_the_user(value) if field == "source" else value for field, value in source.items()}
    if isinstance(source, list):
        return [_of_the_user(each) for each in source]
    is_users = isinstance(source, str) and source.partition("/")[0] == "~"
    return f"{sky_home.user_home()}{source[1:]}" if is_users else source


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def require_no_keys_in_mounts(file: TaskFile) -> None:
    """Refuse, as TaskFileError, a cached mount of a task that may rent at AWS with keys that don't expire."""
    from flows.clusters.clouds.aws import signed_in

    mounts = file.config.get("file_mounts") or {}
    modes = {place: mount.get("mode") for place, mount in mounts.items() if isinstance(mount, dict)}
    cached = [place for place, mode in modes.items() if str(mode).upper() == "MOUNT_CACHED"]
    if not cached or (file.clouds and "aws" not in file.clouds):
        return
    _, credentials = signed_in()
    # botocore's words for the ways in which keys are found that SkyPilot would write down
    if credentials is not None and credentials.method in ("env", "shared-credentials-file", "config-file"):
        why = "SkyPilot would write your AWS keys, which don't expire, into command lines"
        remedy = f"{why}: rent with `aws sso login` or a role, or leave the mount out, as h100-spot does"
        raise file.wrong(f"file_mounts.{cached[0]}.mode", modes[cached[0]], remedy)
