"""Guards over rates: can this machine do that, and do two ways of measuring agree?"""

from __future__ import annotations

from configs.cell import Cell, Gpu
from tasks.guards.finding import Finding
from warehouse.verdicts import Reason

STREAM_RATIO_BOUNDS = (0.5, 2.0)
"""Streamed over non-streamed decode rate of the same work. Streaming costs some client time (a few per cent in
`bench/`), and prefill is outside the streamed rate; beyond a factor of two the stream shows bursts, not tokens."""


def ceiling_tok_s(cell: Cell, gpu: Gpu, tokens_per_step: float, concurrency: int) -> float | None:
    """Most tokens per second that the memory bandwidth allows; None if the machine's is unknown.

    Every decoding step reads all active weights once for the whole batch, so
    tok/s <= bandwidth / (active parameters x bytes per parameter) x tokens per step x concurrency.
    Source: the roofline of memory-bound decoding (Pope et al., arXiv 2211.05102, section 2).
    """
    if gpu.bandwidth_gb_s is None:
        return None
    bytes_per_step = cell.model.active_params_b * 1e9 * cell.precision.bytes_per_param
    return gpu.bandwidth_gb_s * 1e9 / bytes_per_step * tokens_per_step * concurrency


def impossible_speed(tok_s: float, ceiling: float | None) -> Finding | None:
    """Nothing is faster than its memory; `ceiling` in tok/s, None if unknown."""
    if ceiling is None or tok_s <= ceiling:
        return None
    return Finding(
        Reason.IMPOSSIBLE_SPEED, "rejected", f"{tok_s:.0f} tok/s is above the memory ceiling of {ceiling:.0f}"
    )


def stream_mismatch(stream_tok_s: float | None, fixed_tok_s: float) -> Finding | None:
    """The streamed decode rate must match that of the same work without streaming.

    Args:
        stream_tok_s: tokens after the first chunk over the time from first to last chunk; None if there was only one.
        fixed_tok_s: decode rate of the same shape without streaming: later tokens over wall clock less prefill.
    """
    if stream_tok_s is None:
        return Finding(
            Reason.STREAM_BURST, "rejected", "all tokens of a stream came in one burst: no TPOT can be read off it"
        )
    ratio = stream_tok_s / fixed_tok_s
    low, high = STREAM_RATIO_BOUNDS
    if low <= ratio <= high:
        return None
    sentence = f"streamed {stream_tok_s:.0f} tok/s against {fixed_tok_s:.0f} without streaming (ratio {ratio:.2f})"
    return Finding(Reason.STREAM_MISMATCH, "rejected", sentence)
