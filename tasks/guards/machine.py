"""Guards over the machine: is it the one that was planned, and did it run as fast as it can?"""

from __future__ import annotations

from collections.abc import Sequence

from configs.cell import Gpu
from tasks.guards.finding import Finding
from warehouse.parts import Row
from warehouse.verdicts import Reason


def other_gpu(gpu: Gpu, gpu_name: str | None) -> Finding | None:
    """The card that the driver names must be the planned one: an "H100 PCIe" has 0.6 of an SXM's bandwidth.

    Args:
        gpu: as planned; without `reported_as` nothing is checked.
        gpu_name: as reported, or the processor's where there is no card; None: nobody said, and nothing is found.
    """
    if not gpu.reported_as or gpu_name is None or gpu_name in gpu.reported_as:
        return None
    planned = " or ".join(gpu.reported_as)
    return Finding(Reason.OTHER_GPU, "suspect", f"{gpu.name} was planned ({planned}), this is {gpu_name}")


PROTECTION = {
    "hw_thermal_slowdown": "it was too hot",
    "sw_thermal_slowdown": "it was as hot as it may be",
    "hw_power_brake": "its power supply braked it",
}
"""Reasons by which a card protects itself: hardware halves the clock, and long before that the driver lowers it as far
as it must to keep card and memory at their maximum operating temperature (sw). Its own power limit (sw_power_cap) is
how cards run under full load, and is only told; hw_slowdown may also show as a card changes its clock. Source: NVML's
reference, nvmlClocksEventReasons."""


def throttled(windows: Sequence[Row]) -> Finding | None:
    """A card that protects itself is slower than others of its kind.

    Args:
        windows: rows with `throttle_reasons`, of one figure; null where no card told.
    """
    for reason, why in PROTECTION.items():
        number = sum(reason in (row.get("throttle_reasons") or ()) for row in windows)
        if number:
            sentence = f"a card held its clock down in {number} of {len(windows)} windows: {why} ({reason})"
            return Finding(Reason.THROTTLED, "suspect", sentence)
    return None
