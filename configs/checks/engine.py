"""What a cell's engine can hold and serve: weights in the memory of its cards, and what only vLLM does.

Memory is a lower bound: cache, graphs and a draft take more. So nothing is refused that could be served.
The transformers engine (tasks/transformers_engine/) answers one request at a time. It takes real weights, in the
checkpoint's precision or another dtype. Drafts come from a second checkpoint or from the text so far.
"""

from __future__ import annotations

from collections.abc import Iterator

from configs.cell import Cell, Gpu, argument
from configs.files import Fault
from configs.step import MeasuredStep

MEMORY_SHARE = 0.92
"""vLLM's gpu_memory_utilization where a cell names none: 0.32.0's; 0.9 in older ones."""


def weights_gb(cell: Cell) -> float:
    """Gigabytes of one copy of the weights, as they are served."""
    return cell.model.total_params_b * cell.precision.bytes_per_param


def memory_gb(cell: Cell, gpu: Gpu) -> float | None:
    """Gigabytes that the engine takes of one card; None where the GPU's file doesn't say what it has."""
    if gpu.memory_gib is None:
        return None
    share = 1.0 if cell.engine.kind == "transformers" else cell.serving.gpu_memory_utilization or MEMORY_SHARE
    return gpu.memory_gib * (2**30 / 1e9) * share


def too_heavy(cell: Cell, gpu: Gpu) -> str | None:
    """Why the weights, dummy ones too, don't fit, and what would be accepted; None: they may."""
    has_gb, words = memory_gb(cell, gpu), cell.engine_words
    has_fewer_layers = argument(words, "--hf-overrides") is not None
    if has_gb is None or has_fewer_layers or any("offload" in word for word in words):
        return None
    spreads_experts = argument(words, "--enable-expert-parallel", "-ep") is not None  # over data parallel cards, too
    need_gb = weights_gb(cell) / (cell.cards if spreads_experts else cell.cards_a_copy)
    if need_gb <= has_gb:
        return None
    return (
        f"{cell.model.name!r} in {cell.precision.name} is {need_gb:.1f} GB of weights a card, and of {gpu.name!r} "
        f"({gpu.memory_gib:g} GiB) the engine takes {has_gb:.1f} GB; accepted: a narrower precision, a larger gpu, or "
        "a larger --tensor-parallel-size in `args` of the sweep's engine"
    )


METHODS = ("ar", "draft_model", "mtp", "ngram")
"""mtp is that of a second checkpoint. transformers 5.19 has more (heads inside a checkpoint, DFlash), whose drafts
nobody here has counted yet."""

VLLM_SERVING = {"max_num_seqs": (None, 1), "gpu_memory_utilization": (None,), "prefix_cache": (False,)}
"""Serving arguments that `generate` has no use for, with the values that ask for nothing."""

LONGEST_LOOKUP = "prompt_lookup_max"
SHORTEST_LOOKUP = "prompt_lookup_min"
"""vLLM's names in `speculative_config` for how many tokens are looked up; `generate` always goes down to one."""


def unmeasured(cell: Cell, step: MeasuredStep) -> str | None:
    """Why a timed step's figures would be none on an engine that answers one request at a time; None: they are."""
    if cell.engine.kind != "transformers" or not step.is_timed:  # what isn't timed may wait
        return None
    most = max((load.concurrency for load in step.workload(cell)), default=1)
    if most == 1:
        return None
    problem = f"step {step.step!r} times {most} requests at once, and {cell.engine.name!r} answers one after the other"
    return f"{problem}: it would be a queue's length; accepted: a suite with 1 at a time"


def unserved(cell: Cell) -> Iterator[Fault]:
    """Why the transformers engine can't serve a cell, by the row's field; nothing of a cell of another engine."""
    if cell.engine.kind != "transformers":
        return
    technique, serving, name = cell.technique, cell.serving, cell.engine.name
    if technique.method not in METHODS:
        accepted = f"accepted: techniques of method {', '.join(METHODS)}"
        yield ("technique",), f"{technique.name!r} is not served by {name!r}, which is generate(); {accepted}"
    elif technique.method == "mtp" and not technique.needs_draft:
        problem = f"{technique.name!r} drafts with a head inside the checkpoint, and {name!r} with a second one"
        yield ("technique",), f"{problem}; accepted: mtp with a draft"
    if technique.engine_args:
        yield ("technique",), f"{technique.name!r} has engine_args of vLLM's; accepted: a technique without"
    if technique.drafts:
        yield from _of_lookup(cell)
    if cell.model.weights == "dummy" or cell.model.shape is not None:
        yield ("model",), f"{cell.model.name!r} has no weights, and {name!r} makes none up; accepted: real weights"
    if not cell.model.chat:
        problem = f"{cell.model.name!r} has chat: false, and {name!r} answers chats only"
        yield ("model",), f"{problem}; accepted: an engine of kind vllm"
    if cell.precision.quantization is not None:
        problem = f"{cell.precision.name!r} is made by vLLM while loading"
        yield ("precision",), f"{problem}; accepted: the checkpoint's own, as bf16"
    for field, takes in VLLM_SERVING.items():
        if getattr(serving, field) not in takes:
            problem = f"{field} is vLLM's, and {name!r} answers one request at a time and keeps no cache between them"
            yield ("serving", field), f"{problem}; accepted: without it"
    if cell.cards > 1:
        yield (), f"{name!r} uses one card; accepted: no parallel size in its args"


def _of_lookup(cell: Cell) -> Iterator[Fault]:
    """Settings of a draft that `generate` doesn't know."""
    config = cell.technique.speculative_config
    known = {LONGEST_LOOKUP, SHORTEST_LOOKUP} if cell.technique.method == "ngram" else set()
    if unknown := sorted(set(config) - known):
        problem = f"{cell.technique.name!r} has {', '.join(unknown)} for vLLM, which generate() doesn't know"
        yield ("technique",), f"{problem}; accepted: a technique without"
    if cell.technique.method == "ngram" and config.get(SHORTEST_LOOKUP, 1) != 1:
        problem = f"{cell.technique.name!r} looks up {config[SHORTEST_LOOKUP]} tokens or more, generate() also one"
        yield ("technique",), f"{problem}; accepted: prompt-lookup, or another with {SHORTEST_LOOKUP}: 1"
