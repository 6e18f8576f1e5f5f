"""Where and with what a step was measured: the columns that make a row believable a year later."""

from __future__ import annotations

import json
import os
import platform
import shlex
from collections.abc import Mapping
from typing import Any

from configs.cell import Cell, Draft, Model
from configs.checkout import git_head, has_changes
from configs.schema import PlannedCell
from tasks.client import CLIENT_VERSION, Client, RequestFailed
from tasks.engine.command import EngineCommand, full_environment
from tasks.engine.server import Engine
from tasks.place import machine_identity
from tasks.place.hub_commits import resolved_commit

PLACE_VARIABLES = {
    "cloud": "SPECSWEEP_CLOUD",
    "region": "SPECSWEEP_REGION",
    "zone": "SPECSWEEP_ZONE",
    "instance_type": "SPECSWEEP_INSTANCE_TYPE",
    "image_digest": "SPECSWEEP_IMAGE_DIGEST",
}
"""Columns that only the launcher of a node knows, and the environment variables in which it passes them on."""


def git_state() -> tuple[str | None, bool | None]:
    """Commit of this checkout and whether it has changes; on a node without git, what the launcher said, or None."""
    if head := git_head():
        return head, has_changes()
    sha = os.environ.get("SPECSWEEP_GIT_SHA")
    return sha, None if sha is None else os.environ.get("SPECSWEEP_GIT_DIRTY") == "1"


def price_usd_h(planned: PlannedCell) -> float | None:
    """US dollars an hour for this node: what the launcher pays (None: no price is known), else the catalogue's."""
    paid = os.environ.get("SPECSWEEP_PRICE_USD_H")
    if paid is not None:
        return float(paid) if paid else None
    a_card = planned.gpu.price_spot_usd_h if planned.spot else planned.gpu.price_on_demand_usd_h
    return None if a_card is None else a_card * planned.cell.cards


async def gather(
    planned: PlannedCell, served: Cell, command: EngineCommand, client: Client, config_hash: str, engine: Engine
) -> dict[str, Any]:
    """The `provenance` row of an engine start, as it begins: without identity columns and what only a step knows.

    Args:
        planned: the cell that is measured.
        served: the cell that the engine serves: the same, or its control.
        command: how the engine was started.
        client: of that engine.
        config_hash: of the run's plan.
        engine: which runs.
    """
    sha, dirty = git_state()
    env, version = full_environment(command), await _engine_version(client)
    return {
        "git_sha": sha,
        "git_dirty": dirty,
        "config_hash": config_hash,
        "argv": shlex.join(command.argv),
        "engine_version": version,
        "model_revision": _revision(served.model, command.model_revision, env),
        "draft_revision": None if served.draft is None else _revision(served.draft, command.draft_revision, env),
        "host": platform.node(),
        "spot": os.environ.get("SPECSWEEP_SPOT", "1" if planned.spot else "0") == "1",
        "price_usd_h": price_usd_h(planned),
        "price_source": os.environ.get("SPECSWEEP_PRICE_SOURCE") or planned.gpu.price_source,
        "weights": served.model.weights,
        "served_cell_key": served.cell_key,
        "engine_nice": engine.nice,
        "client_version": CLIENT_VERSION,
        **{column: os.environ.get(variable) for column, variable in PLACE_VARIABLES.items()},
        "cloud": os.environ.get(PLACE_VARIABLES["cloud"], "local"),
        **await machine_identity.of(served, env, client, version),
    }


async def _engine_version(client: Client) -> str | None:
    try:
        said = await client.text("/version")
    except RequestFailed:
        return None  # an engine without /version can still be measured; the column is null
    try:
        return str(json.loads(said)["version"])
    except (ValueError, KeyError, TypeError):
        return said[:200]


def _revision(source: Model | Draft, planned: str | None, env: Mapping[str, str]) -> str | None:
    """Hub commit of what was served; of the demo family, what the plan says."""
    return planned if source.hub_id is None else resolved_commit(source.hub_id, planned, env)
