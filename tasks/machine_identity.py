"""Which machine it was: the host and its cards, or its processor. Figures of two machines never become one."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from configs.cell import Cell
from tasks import gpu
from tasks.client import Client
from tasks.engine.command import EngineCommand
from tasks.prompts import Prompt

CPU_ENVIRONMENT = "engine-cpu"
"""Our engine that uses no card, even where there is one."""

LOAD_TOKENS = 256
"""Output of the generation under which clocks are read: .3 s on the fastest card, and the driver answers in .05 s."""


async def of(served: Cell, command: EngineCommand, env: Mapping[str, str], client: Client) -> dict[str, Any]:
    """The columns of `provenance` that say which machine the engine runs on.

    Args:
        served: what it serves.
        command: how it was started.
        env: its environment.
        client: of the engine; asked for one short generation, where there is a card to look at meanwhile.

    Raises:
        RequestFailed: the engine doesn't answer.
    """
    on_cpu = served.engine.environment == CPU_ENVIRONMENT
    found = None if on_cpu else await asyncio.to_thread(gpu.cards)
    if not found:
        name = cpu_name()
        return {"machine": _machine([name or platform.machine()]), "gpu_name": name}
    used = gpu.visible(found, env.get("CUDA_VISIBLE_DEVICES"))[: command.cards]
    uuids = [card.uuid for card in used]
    return {
        "machine": _machine(sorted(uuids) or [f"cards {env.get('CUDA_VISIBLE_DEVICES')}"]),
        "gpus": len(used) or None,
        "gpu_name": used[0].name if used else None,
        "gpu_uuid": ",".join(uuids) or None,
        "gpu_driver": found[0].driver,
        "gpu_clock_mhz": await _clock_under_load(uuids, client),
    }


def cpu_name() -> str | None:
    """The processor, as the kernel says."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or None


def _machine(parts: Sequence[str]) -> str:
    return " ".join((platform.node(), *parts))


async def _clock_under_load(uuids: Sequence[str], client: Client) -> float | None:
    """SM clock in MHz while the engine generates, of the slowest card: median of what was read meanwhile.

    None: the generation was over before the driver had answered once. An idle card's clock would say nothing.
    """
    body = client.request(Prompt("Tell a long story about a lighthouse."), LOAD_TOKENS, fixed=True)
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
    finally:
        generating.cancel()
    return median(seen) if seen else None
