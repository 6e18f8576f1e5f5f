"""Where and with what a step was measured: the columns that make a row believable a year later.

And whether the checkpoint that was really served has the format of its row's label.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from configs.cell import Cell, Draft, Model, argument
from configs.checkout import git_head, has_changes
from configs.schema import PlannedCell
from tasks.client import CLIENT_VERSION, Client, RequestFailed
from tasks.engine.command import EngineCommand, full_environment, is_on_hub
from tasks.engine.server import Engine
from tasks.host.hub import repository, resolved_commit
from tasks.place import gpu
from tasks.prompts import Prompt

LOAD_TOKENS = 256  # of the generation under which clocks are read: .3 s on the fastest card, a driver answers in .05 s


async def _machine_columns(served: Cell, env: Mapping[str, str], client: Client, said: str | None) -> dict[str, Any]:
    """The columns of `provenance` that say which machine the engine runs on; it `said` its version.

    Figures of two machines never become one; an upgraded driver or engine makes another machine. Where there is a card,
    the engine is asked for one short generation, and its clock is read meanwhile.
    """
    version = None if said is None else f"{served.engine.kind} {said}"
    found = None if served.engine.on_cpu else await asyncio.to_thread(gpu.cards)
    if not found:
        name = cpu_name()
        return {"machine": _machine(name or platform.machine(), version), "gpu_name": name}
    used = gpu.visible(found, env.get("CUDA_VISIBLE_DEVICES"))[: served.cards]
    uuids, driver = [card.uuid for card in used], f"driver {found[0].driver}" if found[0].driver else None
    return {
        "machine": _machine(*(sorted(uuids) or [f"cards {env.get('CUDA_VISIBLE_DEVICES')}"]), driver, version),
        "gpus": len(used) or None,
        "gpu_name": used[0].name if used else None,
        "gpu_uuid": ",".join(uuids) or None,
        "gpu_driver": found[0].driver,
        "gpu_clock_mhz": await _clock_under_load(uuids, client, min(LOAD_TOKENS, served.serving.max_model_len // 2)),
    }


def cpu_name() -> str | None:
    """The processor, as the kernel says."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or None


def _machine(*parts: str | None) -> str:
    return " ".join(part for part in (platform.node(), *parts) if part)


async def _clock_under_load(uuids: Sequence[str], client: Client, tokens: int) -> float | None:
    """SM clock in MHz while the engine generates, of the slowest card: median of what was read meanwhile.

    None: the generation failed, or was over before the driver had answered once. An idle card's clock says nothing.
    """
    body = client.request(Prompt("Tell a long story about a lighthouse."), tokens, fixed=True)
    generating = asyncio.create_task(client.complete(body))
    seen: list[float] = []
    try:
        while not generating.done():
            found = await asyncio.to_thread(gpu.cards) or []
            clocks = [card.clock_mhz for card in found if card.uuid in uuids and card.clock_mhz is not None]
            if clocks and not generating.done():
                seen.append(min(clocks))
            elif not found:
                break
        await generating
    except RequestFailed:
        return None  # a clock that nobody could read costs no step: what is measured next says what is wrong
    finally:
        generating.cancel()
    return median(seen) if seen else None


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
    """The `provenance` row of an engine start, as it begins: without identity columns and what only a step knows."""
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
        "api": "chat" if served.model.chat else "completions",
        "served_cell_key": served.cell_key,
        "engine_nice": engine.nice,
        "client_version": CLIENT_VERSION,
        **{column: os.environ.get(variable) for column, variable in PLACE_VARIABLES.items()},
        "cloud": os.environ.get(PLACE_VARIABLES["cloud"], "local"),
        **await _machine_columns(served, env, client, version),
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
    """Hub commit of what was served; of the demo family and of folders, what the plan says."""
    return resolved_commit(str(source.hub_id), planned, env) if is_on_hub(source) else planned


FORMAT_KEYS = ("quantization_config", "compression_config")
"""Where `config.json`, or its part for text, says how weights are kept (vLLM 0.32.0, transformers_utils/); the second
is older."""

BESIDE = "hf_quant_config.json"  # where ModelOpt said it before 0.31
PLAIN_BYTES = 2.0  # of a parameter in 16 bits


def unlike_its_label(cell: Cell, commit: str | None, env: Mapping[str, str]) -> str | None:
    """Why a served checkpoint isn't in its cell's precision; None: it is, or nobody can tell.

    A precision below 16 bits that is not made while loading (awq, gptq, nvfp4 ...) is the checkpoint's own. From a
    checkpoint in 16 bits an engine serves 16 bits without a word. `commit` is of its model on the hub, as far as it is
    known; `env` is the engine's, which has read it by now.
    """
    precision, model = cell.precision, cell.model
    made_while_loading = precision.quantization is not None or precision.dtype is not None
    is_overridden = argument(cell.engine_words, "hf_overrides") is not None
    if made_while_loading or is_overridden or precision.bytes_per_param >= PLAIN_BYTES or model.hub_id is None:
        return None
    is_local = model.hub_id.startswith("/")
    folder = Path(model.hub_id) if is_local else repository(model.hub_id, env) / f"snapshots/{commit}"
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # it isn't there, or is something else
    if not isinstance(config, dict) or (folder / BESIDE).is_file():
        return None
    parts = [part for part in (config, config.get("text_config")) if isinstance(part, dict)]
    if any(part.get(key) for part in parts for key in FORMAT_KEYS):
        return None
    return (
        f"{cell.label}: {model.hub_id} is no checkpoint in {precision.name}: its config.json has no {FORMAT_KEYS[0]}, "
        f"and 16 bits would have that label: name one in {precision.name} in the model's file, or the one that it has"
    )
