"""Guards over the machine: is it the one that was planned?"""

from __future__ import annotations

from configs.cell import Gpu
from tasks.guards.finding import Finding
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
