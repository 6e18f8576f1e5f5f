"""The guard of what an MoE reads per step where its weights are made up."""

from __future__ import annotations

from configs.cell import Model, Technique
from tasks.guards.finding import Finding
from warehouse.verdicts import Reason

SHARED = "share their experts"
"""In each wording of the finding so far, by which a rate that is judged again is found to have one."""


def same_experts(model: Model, technique: Technique, k: int | None, concurrency: int | None) -> Finding | None:
    """The tokens of a step must read about as many experts as those of real weights would.

    vLLM draws every dummy parameter from one seed, so embedding and head are alike and AR echoes one token for ever,
    the same in every request (166 answers of "." alone on Qwen3.6 35B-A3B). Its router then sends all of them to one
    set of experts: a step at c=16 reads 8 of 256, where texts that differ read about 100. On one H200, Gemma 4 26B-A4B
    in fp8: AR 3262 tok/s at c=16 and 2017 with experts drawn (`routing: random`), 265 and 266 at c=1. The token and the
    drafts that one request has checked are several, too: K=4 at c=1 419 and 380 (bench/h200).

    Of n experts, t tokens whose texts differ read n (1 - (1 - k/n)^t) if each takes k as if by chance. vLLM 0.32.0
    draws so (top-k of uniform scores, PR #43680; `fused_moe/router/routing_simulator_router.py`). 0.25.1, which serves
    shapes without a network (engines/vllm-shapes.yaml), draws with replacement (`torch.randint`), and reads fewer:

        n (1 - (1 - 1/n)^(k t))

    With k = 8 of 128 that is 7.78 for one token and 81.1 for 16, where 8 and 82.4 would be (of 256: 7.89 and 100.9,
    where 8 and 102.0): the experts' part of a step is too short by 2.7 % and 1.6 %. Both versions give each expert that
    was drawn the weight one, which takes no other time.
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
