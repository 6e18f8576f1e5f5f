"""Which machine it was: host, cards or processor, driver and the engine's version.

Figures of two machines never become one; a driver or an engine that was upgraded between two visits makes another one.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from configs.cell import Cell
from tasks.client import Client, RequestFailed
from tasks.place import gpu
from tasks.prompts import Prompt

LOAD_TOKENS = 256
"""Output of the generation under which clocks are read: .3 s on the fastest card, and the driver answers in .05 s."""


async def of(served: Cell, env: Mapping[str, str], client: Client, engine_version: str | None) -> dict[str, Any]:
    """The columns of `provenance` that say which machine the engine runs on.

    Args:
        served: what it serves.
        env: the engine's environment.
        client: of the engine; asked for one short generation, where there is a card to look at meanwhile.
        engine_version: as the engine says; None: it doesn't.
    """
    version = None if engine_version is None else f"{served.engine.kind} {engine_version}"
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
