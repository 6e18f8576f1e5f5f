"""Whether a cell's weights can lie in the memory of its cards at all: what can't is refused before it is rented.

A lower bound, so that nothing is refused that could be served: cache, graphs, activations and a draft take memory, too.
"""

from __future__ import annotations

from configs.cell import Cell, Gpu, argument

MEMORY_SHARE = 0.92
"""vLLM's gpu_memory_utilization where a cell names none: 0.32.0's; 0.9 in older ones."""

GB_PER_GIB = 2**30 / 1e9

EXPERT_PARALLEL = ("--enable-expert-parallel", "-ep")
"""vLLM's flags that spread experts over data parallel cards, too."""

OVERRIDES = "--hf-overrides"
"""vLLM's flag with which a model has fewer layers than its file says. Other widths and shares are not an engine's."""


def weights_gb(cell: Cell) -> float:
    """Gigabytes of one copy of the weights, as they are served."""
    return cell.model.total_params_b * cell.precision.bytes_per_param


def memory_gb(cell: Cell, gpu: Gpu) -> float | None:
    """Gigabytes that the engine takes of one card; None where the GPU's file doesn't say what it has."""
    if gpu.memory_gib is None:
        return None
    share = 1.0 if cell.engine.kind == "transformers" else cell.serving.gpu_memory_utilization or MEMORY_SHARE
    return gpu.memory_gib * GB_PER_GIB * share


def too_heavy(cell: Cell, gpu: Gpu) -> str | None:
    """Why the weights don't fit, and what would be accepted; None: they may.

    Dummy ones lie there like any others.
    """
    has_gb, words = memory_gb(cell, gpu), cell.engine_words
    is_open = any("offload" in word for word in words) or argument(words, OVERRIDES) is not None
    if has_gb is None or is_open:
        return None
    cards = cell.cards_a_copy if argument(words, *EXPERT_PARALLEL) is None else cell.cards
    need_gb = weights_gb(cell) / cards
    if need_gb <= has_gb:
        return None
    return (
        f"{cell.model.name!r} in {cell.precision.name} is {need_gb:.1f} GB of weights a card, and of {gpu.name!r} "
        f"({gpu.memory_gib:g} GiB) the engine takes {has_gb:.1f} GB; accepted: a narrower precision, a larger gpu, or "
        "a larger --tensor-parallel-size in `args` of the sweep's engine"
    )
