"""What a cell's engine can hold and serve: weights in the memory of its cards, and what only vLLM does.

Memory is a lower bound: windows, graphs and a draft take more. So nothing is refused that could be served.
The transformers engine (tasks/transformers_engine/) answers one request at a time. It takes real weights, in the
checkpoint's precision or another dtype. Drafts come from a second checkpoint or from the text so far.
"""

from __future__ import annotations

from collections.abc import Iterator

from configs.cell import Cell, Gpu, argument
from configs.files import Fault
from configs.methods import METHODS, SCHEDULE, SCHEDULES
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


def request_gb(cell: Cell) -> float | None:
    """Gigabytes of cache that one request of max_model_len tokens takes, at the least; None: it isn't known."""
    return cell.kv_bytes_per_token * cell.serving.max_model_len / 1e9 or None


def copies(cell: Cell) -> int:
    """Copies of the weights on all its cards; experts may be spread over data parallel ones, too."""
    spreads_experts = argument(cell.engine_words, "enable_expert_parallel") is not None
    return 1 if spreads_experts else cell.cards // cell.cards_a_copy


def unfit(cell: Cell, gpu: Gpu) -> Iterator[Fault]:
    """Why the weights, dummy ones too, don't fit, or one request beside them, which vLLM refuses; nothing: they may."""
    has_gb, words = memory_gb(cell, gpu), cell.engine_words
    has_fewer_layers = argument(words, "hf_overrides") is not None
    if has_gb is None or has_fewer_layers or any("offload" in word for word in words):
        return
    need_gb = weights_gb(cell) * copies(cell) / cell.cards
    kv_gb = (request_gb(cell) or 0) / cell.cards_a_copy if cell.engine.kind == "vllm" else 0
    takes = f"of {gpu.name!r} ({gpu.memory_gib:g} GiB) the engine takes {has_gb:.1f} GB"
    wider = "a narrower precision, a larger gpu, or a larger --tensor-parallel-size in `args` of the sweep's engine"
    if need_gb > has_gb:
        weighs = f"{cell.model.name!r} in {cell.precision.name} is {need_gb:.1f} GB of weights a card"
        yield ("model",), f"{weighs}, and {takes}; accepted: {wider}"
    elif need_gb + kv_gb > has_gb:
        tokens = cell.serving.max_model_len
        held = int(tokens * (has_gb - need_gb) / kv_gb)
        problem = f"one request of {tokens} tokens is {kv_gb:.1f} GB of cache beside {need_gb:.1f} GB of weights a card"
        yield ("serving", "max_model_len"), f"{problem}, and {takes}; accepted: at most {held} tokens, {wider}"


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
    if not technique.facts.by_generate:  # transformers 5.19 has more, whose drafts nobody here has counted yet
        accepted = f"accepted: techniques of method {', '.join(sorted(m for m in METHODS if METHODS[m].by_generate))}"
        yield ("technique",), f"{technique.name!r} is not served by {name!r}, which is generate(); {accepted}"
    elif technique.canonical == "mtp" and not technique.needs_draft:
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
    """Settings of a draft that `generate` doesn't know: Gemma 4's assistants always draft K, whatever is asked."""
    config, method = cell.technique.speculative_config, cell.technique.canonical
    known = {"ngram": {LONGEST_LOOKUP, SHORTEST_LOOKUP}, "draft_model": {SCHEDULE}}.get(method, set())
    if unknown := sorted(set(config) - known):
        problem = f"{cell.technique.name!r} has {', '.join(unknown)} for vLLM, which generate() doesn't know"
        yield ("technique",), f"{problem}; accepted: a technique without"
    if (schedule := config.get(SCHEDULE, "constant")) not in SCHEDULES:
        yield ("technique",), f"{SCHEDULE} is {schedule!r}; accepted: {', '.join(SCHEDULES)}"
    if method == "ngram" and config.get(SHORTEST_LOOKUP, 1) != 1:
        problem = f"{cell.technique.name!r} looks up {config[SHORTEST_LOOKUP]} tokens or more, generate() also one"
        yield ("technique",), f"{problem}; accepted: prompt-lookup, or another with {SHORTEST_LOOKUP}: 1"
