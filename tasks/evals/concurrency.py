"""How many answers of full length the engine's KV cache carries at a time.

More would not be wrong, but slower: vLLM throws out what does not fit any more and computes it again.
"""

from __future__ import annotations

from configs.cell import Cell
from configs.steps.eval import MOST_AT_ONCE, EvalStep
from tasks.meters import samples

UNKNOWN_AT_ONCE = 8
"""Requests at a time where the engine says nothing about its cache and the cell sets no limit."""

CACHE_INFO = "vllm:cache_config_info"
"""vLLM's metric that has the cache's configuration as labels, one line per data-parallel engine."""


def at_once(spec: EvalStep, cell: Cell, metrics_text: str) -> tuple[int, str]:
    """Requests in flight, and one sentence that says how the number came about.

    Args:
        spec: the step; its own `concurrency` wins.
        cell: its `max_num_seqs` is the most that the engine takes.
        metrics_text: the engine's `/metrics` page.
    """
    if spec.concurrency is not None:
        return spec.concurrency, f"{spec.concurrency} at a time, as the step says"
    limit, limit_said = _limit(cell)
    tokens = kv_tokens(metrics_text)
    if tokens is None:
        number = limit if cell.serving.max_num_seqs is not None else UNKNOWN_AT_ONCE
        return number, f"{number} at a time: the engine does not say how large its KV cache is"
    longest = max(size for _, size in spec.longest_requests(cell))
    carried = max(1, tokens // longest)
    said = f"a KV cache of {tokens} tokens carries {carried} answers of {longest} tokens with their prompts"
    if carried > limit:
        return limit, f"{limit} at a time, {limit_said}; {said}"
    return carried, f"{carried} at a time: {said}"


def kv_tokens(metrics_text: str) -> int | None:
    """Tokens that the KV cache holds, over all data-parallel engines; None if the engine does not say.

    `kv_cache_size_tokens` is each engine's own figure, right for models of several kinds of layers, too. Older engines
    have only the blocks, which vLLM has already summed over its engines.
    """
    engines = [labels for name, labels, _ in samples(metrics_text) if name == CACHE_INFO]
    sizes = [_number(labels.get("kv_cache_size_tokens")) for labels in engines]
    if engines and None not in sizes:
        return sum(size for size in sizes if size is not None)
    for labels in engines:
        blocks, block_size = _number(labels.get("num_gpu_blocks")), _number(labels.get("block_size"))
        if blocks is not None and block_size is not None:
            return blocks * block_size
    return None


def _limit(cell: Cell) -> tuple[int, str]:
    most = cell.serving.max_num_seqs
    if most is not None and most <= MOST_AT_ONCE:
        return most, "which the cell's max_num_seqs allows"
    return MOST_AT_ONCE, "the most that any step asks"


def _number(label: str | None) -> int | None:
    return int(label) if label and label.isdigit() else None  # unset: the text "None"
