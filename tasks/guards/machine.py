"""Guards over the machine and its memory: is it the planned card, what slowed it down, what did the engine say?"""

from __future__ import annotations

from collections.abc import Sequence

from configs.cell import Gpu, Model, Technique
from tasks.guards.finding import Finding
from warehouse.ledger.parts import Row
from warehouse.ledger.verdicts import Reason


def other_gpu(gpu: Gpu, gpu_name: str | None) -> Finding | None:
    """The card that the driver names must be the planned one: an "H100 PCIe" has 0.6 of an SXM's bandwidth.

    Nothing is found without `reported_as`, or where nobody gave a name. Without a card, `gpu_name` is the processor's.
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
"""Reasons by which a card protects itself. Hardware halves the clock; long before that the driver (sw) lowers it to
keep card and memory at their maximum operating temperature. A power limit (sw_power_cap) is how cards run under full
load, and is only reported; hw_slowdown may also show as a card changes its clock. Source: NVML's
nvmlClocksEventReasons."""


def throttled(windows: Sequence[Row]) -> Finding | None:
    """A card that protects itself is slower than others of its kind."""
    for reason, why in PROTECTION.items():
        number = sum(reason in (row.get("throttle_reasons") or ()) for row in windows)
        if number:
            sentence = f"a card held its clock down in {number} of {len(windows)} windows: {why} ({reason})"
            return Finding(Reason.THROTTLED, "suspect", sentence)
    return None


def log_unread(unsaid: Sequence[str]) -> Finding | None:
    """A line that every start of such an engine writes, and that isn't there: its words are unknown."""
    if not unsaid:
        return None
    sentence = f"the engine's log has no line that we know for {', '.join(unsaid)}: null, not nothing"
    return Finding(Reason.LOG_UNREAD, "suspect", sentence)


SHARED = "share their experts"
"""In each wording of the finding so far, by which a rate that is judged again is found to have one."""


def same_experts(model: Model, technique: Technique, k: int | None, concurrency: int | None) -> Finding | None:
    """The tokens of a step must read about as many experts as those of real weights would.

    vLLM draws every dummy parameter from one seed, so embedding and head are alike. AR then repeats one token, the same
    in every request. (166 answers of "." alone on Qwen3.6 35B-A3B.) The router then sends all of them to one set of
    experts: a step at c=16 reads 8 of 256, where texts that differ read about 100. One H200, Gemma 4 26B-A4B in fp8,
    AR: 3262 tok/s at c=16 and 2017 with experts drawn (`routing: random`), 265 and 266 at c=1. The tokens that one
    request has verified are several, too: K=4 at c=1 419 and 380 (bench/h200).

    Of n experts, t tokens whose texts differ read n (1 - (1 - k/n)^t) if each takes k as if by chance. That is how
    vLLM 0.32.0 draws (top-k of uniform scores, PR #43680, `fused_moe/router/routing_simulator_router.py`). 0.25.1,
    which serves shapes without a network (engines/vllm-shapes.yaml), draws with replacement (`torch.randint`) and reads
    fewer: n (1 - (1 - 1/n)^(k t)). With k = 8 of 128 that is 7.78 for one token and 81.1 for 16, where 8 and 82.4 would
    be. So the experts' part of a step is too short by 2.7 % and 1.6 %.
    """
    if model.weights == "real" or not model.is_moe or model.routing is not None:
        return None
    requests = concurrency or 1
    if requests == 1 and technique.is_baseline:
        return None
    tokens = "canvas" if technique.denoises else "tokens" if k is None else f"{1 + k} tokens"
    of_each = "" if technique.is_baseline else f", the {tokens} of each,"
    said = f"{requests} request{'s' * (requests > 1)} at a time of dummy weights{of_each} {SHARED}"
    return Finding(Reason.SAME_EXPERTS, "suspect", f"{said}; remedy: `routing: random` in the file of {model.name}")
