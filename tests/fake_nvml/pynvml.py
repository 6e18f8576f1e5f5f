"""A FAKE NVML: the functions of nvidia-ml-py that we call, for cards of a chosen behaviour.

A test finds it by PYTHONPATH, or takes it as a module. FAKE_NVML chooses: honest (100 W by the counter), no_driver,
no_counter (300 W by its power alone), hot (the card protects itself), at_the_limit (its power is capped), deaf (no
sensor is supported). Every process that runs the fake engine has 2 GiB of each card.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

NVML_CLOCK_SM = 1
NVML_TEMPERATURE_GPU = 0

GIB = 1024**3


class NVMLError(Exception):
    """As NVML's: no driver, no such card, or not supported."""


def _kind() -> str:
    return os.environ.get("FAKE_NVML", "honest")


def _sensor() -> None:
    if _kind() == "deaf":
        raise NVMLError("Not Supported")


def nvmlInit() -> None:
    if _kind() == "no_driver":
        raise NVMLError("Driver Not Loaded")


def nvmlShutdown() -> None:
    return


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:
    if not uuid.startswith("GPU-"):
        raise NVMLError("Not Found")
    return uuid


def nvmlDeviceGetTotalEnergyConsumption(handle: str) -> int:
    _sensor()
    if _kind() == "no_counter":
        raise NVMLError("Not Supported")
    return int(100_000 * time.monotonic())


def nvmlDeviceGetPowerUsage(handle: str) -> int:
    _sensor()
    return 300_000 if _kind() == "no_counter" else 100_000


def nvmlDeviceGetMemoryInfo(handle: str) -> SimpleNamespace:
    _sensor()
    return SimpleNamespace(used=70 * GIB)


def nvmlDeviceGetClockInfo(handle: str, clock: int) -> int:
    _sensor()
    return 990 if _kind() == "hot" else 1980


def nvmlDeviceGetTemperature(handle: str, sensor: int) -> int:
    _sensor()
    return 91 if _kind() == "hot" else 64


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: str) -> int:
    _sensor()
    return {"hot": 0x40, "at_the_limit": 0x4}.get(_kind(), 0)


def nvmlDeviceGetComputeRunningProcesses(handle: str) -> list[SimpleNamespace]:
    _sensor()
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and b"fake_engine.py" in (folder / "cmdline").read_bytes():
                found.append(SimpleNamespace(pid=int(folder.name), usedGpuMemory=2 * GIB))
    return found
