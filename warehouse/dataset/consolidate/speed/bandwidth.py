"""Achieved over peak memory bandwidth: what a speed needs of the cards at least."""

from __future__ import annotations

from math import fsum

from configs.cell import Cell
from configs.schema import PlannedCell
from configs.steps.throughput import NATURAL
from warehouse.dataset.consolidate.raw import Rows
from warehouse.ledger.formulas.windows import steps_of


def bandwidth_use(planned: PlannedCell, windows: Rows, cards: int, prompt_tokens: float | None) -> float | None:
    """Bytes that decoding must read per second over what the cards can read; null where that isn't known.

    A step reads the active weights once, and of each sequence in flight the keys and values of its tokens so far: at
    half its output, its prompt and half of that; where answers end by themselves, half of their mean, whatever the
    cap. A draft is left out, so it is a lower bound. `decoding_steps` are of single sequences, so a step of the engine
    has as many of them as it works on together. Source: Pope et al., arXiv 2211.05102, section 2.

    Of a mixture of experts it is a low bound as soon as a step works on several tokens, of other requests or to verify
    a draft: they read further experts (82 of 128 at 16 tokens, not 8: `tasks/guards/machine.py`), and no model's file
    says how many there are, nor what all tokens share.

    Args:
        planned: what was measured, on which kind of card.
        windows: of all repeats.
        cards: that the engine uses; the weights are spread over them, so their bandwidths add up.
        prompt_tokens: mean, as sent; None: taken as asked for.
    """
    cell, gpu = planned.cell, planned.gpu
    together = cell.serving.together(windows[0]["concurrency"] or 1)
    steps = decoding_steps(cell, windows)
    answer_tokens = _answer_tokens(windows)
    if gpu.bandwidth_gb_s is None or steps is None or steps <= 0 or answer_tokens is None:
        return None
    tokens = (prompt_tokens or windows[0]["context_tokens"] or 0) + answer_tokens / 2
    weights = cell.model.active_params_b * 1e9 * cell.precision.bytes_per_param
    cache = together * tokens * cell.kv_bytes_per_token
    seconds = fsum(window["wall_s"] for window in windows)
    return (weights + cache) * steps / together / seconds / (gpu.bandwidth_gb_s * 1e9 * cards)


def _answer_tokens(windows: Rows) -> float | None:
    """As asked for, or the mean of answers that end by themselves; None: nobody counted those."""
    if windows[0]["mode"] != NATURAL:
        return float(windows[0]["output_tokens"] or 0)
    tokens, requests = total(windows, "completion_tokens"), total(windows, "requests")
    return tokens / requests if tokens is not None and requests else None


def decoding_steps(cell: Cell, windows: Rows) -> int | None:
    """Steps of all sequences together; None: the engine did not count what it takes to know."""
    if cell.technique.denoises:
        return total(windows, "engine_denoising_steps")
    if cell.technique.is_baseline:
        return total(windows, "completion_tokens")
    steps = [steps_of(window, cell.engine.kind == "transformers") for window in windows]
    return None if None in steps else sum(each for each in steps if each is not None)


def total(windows: Rows, column: str) -> int | None:
    """Sum over windows; None if any of them lacks the figure."""
    values = [window[column] for window in windows]
    return None if any(value is None for value in values) else sum(values)
