"""The driver's own figures of the cards that an engine uses, through NVML.

Units, from NVML's reference (docs.nvidia.com, "Device Queries"):
    energy       nvmlDeviceGetTotalEnergyConsumption: mJ since the driver was loaded. Volta and newer.
    power        nvmlDeviceGetPowerUsage: mW; from Ampere on, but for GA100, a mean over the last second.
    memory       nvmlDeviceGetMemoryInfo: bytes in use by anybody, what the driver keeps for itself included.
    clock        nvmlDeviceGetClockInfo: MHz, of the multiprocessors.
    temperature  nvmlDeviceGetTemperature: Celsius, of the die.
    reasons      nvmlDeviceGetCurrentClocksThrottleReasons: bits, why the clock is below what was asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

LIBRARY = "pynvml"
"""Module of the package nvidia-ml-py."""

UNKNOWN = "power and energy aren't measured: {}"


class Reading(NamedTuple):
    """One look at one card; None: the driver doesn't say it of this card."""

    at_s: float
    """By `time.monotonic`."""
    energy_mj: int | None
    power_mw: int | None
    used_bytes: int | None
    clock_mhz: int | None
    temperature_c: int | None
    reasons: int | None


class Cards:
    """The cards of one engine. `look` may be called from any thread."""

    def __init__(self, nvml: Any, uuids: Sequence[str]) -> None:
        """Find the cards.

        Args:
            nvml: the library, initialised.
            uuids: of the cards, as the driver says.

        Raises:
            nvml.NVMLError: one of them isn't there.
        """
        self._nvml = nvml
        self._handles = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]

    def look(self) -> list[Reading]:
        """A reading of every card."""
        return [self._reading(handle) for handle in self._handles]

    def most_bytes_of(self, pids: Collection[int]) -> int | None:
        """Memory of these processes on the card where they have most; None: the driver shows none of them.

        It shows none where it numbers processes otherwise than we do, as beside a container.
        """
        taken = [self._bytes_of(handle, pids) for handle in self._handles]
        return max((each for each in taken if each is not None), default=None)

    def _bytes_of(self, handle: Any, pids: Collection[int]) -> int | None:
        shown = self._said(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
        known = [each.usedGpuMemory for each in shown if each.pid in pids and each.usedGpuMemory is not None]
        return sum(known) if known else None

    def _reading(self, handle: Any) -> Reading:
        nvml, said = self._nvml, self._said
        memory = said(nvml.nvmlDeviceGetMemoryInfo, handle)
        return Reading(
            time.monotonic(),
            said(nvml.nvmlDeviceGetTotalEnergyConsumption, handle),
            said(nvml.nvmlDeviceGetPowerUsage, handle),
            None if memory is None else memory.used,
            said(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            said(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            said(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
        )

    def _said(self, ask: Callable[..., Any], *about: Any) -> Any:
        try:
            return ask(*about)
        except self._nvml.NVMLError:
            return None  # not supported by this card, or this driver: its column is null


@contextmanager
def opened(uuids: Sequence[str], tell: Callable[[str], None]) -> Iterator[Cards | None]:
    """The cards, while they are needed; None, and one line why, where nothing can be read off any.

    Args:
        uuids: of the cards that the engine uses.
        tell: gets that line.
    """
    if not uuids:
        tell(UNKNOWN.format("no card is used that a driver tells of"))
        yield None
        return
    try:
        nvml = import_module(LIBRARY)
    except ModuleNotFoundError:
        tell(UNKNOWN.format("the package nvidia-ml-py isn't installed here"))
        yield None
        return
    try:
        nvml.nvmlInit()
        cards = Cards(nvml, uuids)
    except nvml.NVMLError as error:
        tell(UNKNOWN.format(f"NVML says {error}"))
        yield None
        return
    try:
        yield cards
    finally:
        nvml.nvmlShutdown()
