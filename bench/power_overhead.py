"""What looking at the cards costs the client's event loop (budget: p99.9 of its wake-ups 1 ms later, 1 % of a core).

    bin/run python bench/power_overhead.py [SECONDS] [CALL_MS]

A loop that sleeps a millisecond at a time, as one does that waits for chunks, with a sampler and without one, in turn.
The driver is a fake whose calls hold no interpreter lock, as NVML's don't, and take CALL_MS each (default 2; a real one
takes 0.02 to some ms): two cards, six calls a look. The last line is one JSON document.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from statistics import quantiles
from types import SimpleNamespace
from typing import Any, NamedTuple

from tasks.power import INTERVAL_S, Cards, Sampler

CARDS = ("GPU-a", "GPU-b")
TURNS = 4
NAP_S = 0.001

CALLS = (
    "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperature", "nvmlDeviceGetCurrentClocksThrottleReasons",
)  # fmt: skip


class Seen(NamedTuple):
    """Lateness of each wake-up in ms, and the share of a core that the process took."""

    late_ms: list[float]
    cpu: float
    looks: int


def slow_driver(call_s: float) -> Any:
    """A FAKE NVML that answers after so many seconds."""

    def answer(*_: object) -> Any:
        time.sleep(call_s)
        return SimpleNamespace(used=1)

    return SimpleNamespace(
        NVMLError=OSError, NVML_CLOCK_SM=1, NVML_TEMPERATURE_GPU=0, nvmlDeviceGetHandleByUUID=str,
        **dict.fromkeys(CALLS, answer),
    )  # fmt: skip


async def window(cards: Cards | None, seconds: float) -> Seen:
    """Wake up every millisecond for so long."""
    loop, late_ms = asyncio.get_running_loop(), []
    async with Sampler(cards) as sampler:
        begun_s, cpu_s = loop.time(), time.process_time()
        while loop.time() < begun_s + seconds:
            due_s = loop.time() + NAP_S
            await asyncio.sleep(NAP_S)
            late_ms.append(1000 * (loop.time() - due_s))
        cpu = (time.process_time() - cpu_s) / (loop.time() - begun_s)
    return Seen(late_ms, cpu, len(sampler.looks))


def main() -> None:
    """Both kinds of windows in turn, so that a busy machine slows both."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    call_s = (float(sys.argv[2]) if len(sys.argv) > 2 else 2.0) / 1000
    found: dict[str, list[Seen]] = {"without": [], "with": []}
    for _ in range(TURNS):
        found["without"].append(asyncio.run(window(None, seconds)))
        found["with"].append(asyncio.run(window(Cards(slow_driver(call_s), CARDS), seconds)))
    said: dict[str, Any] = {"interval_s": INTERVAL_S, "call_ms": 1000 * call_s, "looks": found["with"][0].looks}
    for name, seen in found.items():
        late = quantiles([each for one in seen for each in one.late_ms], n=1000, method="inclusive")
        cpu = 100 * sum(one.cpu for one in seen) / len(seen)
        said[name] = {"late_p50_ms": late[499], "late_p99_ms": late[989], "late_p999_ms": late[998], "cpu_percent": cpu}
        print(f"{name:8} late p50 {late[499]:.3f}  p99 {late[989]:.3f}  p99.9 {late[998]:.3f} ms, CPU {cpu:.2f} %")
    print(json.dumps(said))


if __name__ == "__main__":
    main()
