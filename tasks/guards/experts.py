"""The guard of what an MoE reads per step where its weights are made up."""

from __future__ import annotations

from configs.cell import Model
from tasks.guards.finding import Finding
from warehouse.verdicts import Reason


def same_experts(model: Model, concurrency: int | None) -> Finding | None:
    """Several requests at a time must read about as many experts as real ones would.

    vLLM draws every dummy parameter from one seed, so embedding and head are alike and AR echoes one token for ever,
    the same in every request (166 answers of "." alone on Qwen3.6 35B-A3B). Its router then sends all of them to one
    set of experts: a step at c=16 reads 8 of 256, where texts that differ read about 100, and AR comes out too fast.
    `routing: random` draws experts for each token. One request reads its own experts either way.
    """
    if model.weights == "real" or not model.is_moe or model.routing is not None or (concurrency or 1) < 2:
        return None
    said = f"{concurrency} requests at a time of dummy weights share their experts"
    return Finding(Reason.SAME_EXPERTS, "suspect", f"{said}; remedy: `routing: random` in the file of {model.name}")
