"""Where and with what a step was measured: the columns that make a row believable a year later."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

from configs.checkout import git_head, has_changes
from configs.schema import PlannedCell
from tasks.client import Client, RequestFailed
from tasks.engine.command import EngineCommand

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
    return planned.gpu.price_spot_usd_h if planned.spot else planned.gpu.price_on_demand_usd_h


async def gather(planned: PlannedCell, command: EngineCommand, client: Client, config_hash: str) -> dict[str, Any]:
    """One `provenance` row, without its identity columns."""
    sha, dirty = git_state()
    return {
        "git_sha": sha,
        "git_dirty": dirty,
        "config_hash": config_hash,
        "argv": shlex.join(command.argv),
        "engine_version": await _engine_version(client),
        "model_revision": command.model_revision,
        "draft_revision": command.draft_revision,
        "host": platform.node(),
        "spot": os.environ.get("SPECSWEEP_SPOT", "1" if planned.spot else "0") == "1",
        "price_usd_h": price_usd_h(planned),
        "price_source": os.environ.get("SPECSWEEP_PRICE_SOURCE") or planned.gpu.price_source,
        "seed": 0,
        "weights": planned.cell.model.weights,
        **{column: os.environ.get(variable) for column, variable in PLACE_VARIABLES.items()},
        "cloud": os.environ.get(PLACE_VARIABLES["cloud"], "local"),
        **(_gpu() or {"gpu_name": _cpu_name()}),
    }


async def _engine_version(client: Client) -> str | None:
    try:
        return str(await client.text("/version"))[:200]
    except RequestFailed:
        return None  # an engine without /version can still be measured; the column is null


def _gpu() -> dict[str, Any] | None:
    """What the driver says about the first card; None on a machine without one."""
    if not shutil.which("nvidia-smi"):
        return None
    query = "name,uuid,driver_version,clocks.sm"
    text = _output(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"])
    fields = [field.strip() for field in text.splitlines()[0].split(",")] if text else []
    if len(fields) != 4:
        return None
    clock = fields[3]
    return {
        "gpu_name": fields[0],
        "gpu_uuid": fields[1],
        "gpu_driver": fields[2],
        "gpu_clock_mhz": float(clock) if clock.replace(".", "").isdigit() else None,
    }


def _cpu_name() -> str | None:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or None


def _output(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
