"""Published memory beside ours: what a source's figure counts decides which of our memory step's means the same.

    in use              what was taken of the card while it generated: `engine_memory_peak_bytes`, of the engine's own
                        processes over a request of full length. Only of an engine that takes what it needs: one that
                        keeps a cache (vLLM) takes the share of the card that it is told to, whatever it needs.
    weights and cache   a sum of what has to fit: `weights_bytes`, target and draft, and the cache of one request of
                        full length, which is `kv_bytes_per_token` times its tokens.

`gpu_memory_peak_bytes` is of everybody on the card, so it is nobody's twin. Sources print GB and don't say whether of
10^9 bytes; ours are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from warehouse.report.published.figures import PublishedRow

GB = 1e9

STEP, FIGURE = "memory", "memory_gb"


def ours_gb(row: Mapping[str, Any], published: PublishedRow) -> tuple[str, float] | None:
    """The column of a row of the memory step that means what is published, and its GB; None: it has none."""
    if (row["gpus"] or 1) > 1:  # columns are of one card; all that is published is of one
        return None
    if published.memory_is == "in use":
        column, found = (
            "engine_memory_peak_bytes",
            row["engine_memory_peak_bytes"] if _takes_what_it_needs(row) else None,
        )
    else:
        column, found = "weights_bytes", _weights_and_cache(row)
    return None if found is None else (column, found / GB)


def differences(row: Mapping[str, Any], published: PublishedRow) -> Iterator[str]:
    """What a reader must know before dividing one by the other."""
    if published.memory_is == "in use":
        yield f"ours is the peak of the engine's processes over a request of {full_tokens(row)} tokens"
        yield "what theirs was read off isn't said"
    else:
        yield f"both add up weights and the cache of {full_tokens(row)} tokens"
        if published.kv_cache_dtype != "auto" and published.kv_cache_dtype not in (row["argv"] or ""):
            yield f"their cache is in {published.kv_cache_dtype}"
    yield "whether their GB are of 10^9 or 2^30 bytes, 7 % apart, isn't said"


def full_tokens(row: Mapping[str, Any]) -> int:
    """The request that the step sends: as long as the cell's context."""
    return int(row["context_tokens"] + row["output_tokens"])


def _takes_what_it_needs(row: Mapping[str, Any]) -> bool:
    return row["kv_cache_bytes"] is None


def _weights_and_cache(row: Mapping[str, Any]) -> float | None:
    weights, per_token = row["weights_bytes"], row["kv_bytes_per_token"]
    return None if weights is None or per_token is None else weights + per_token * full_tokens(row)
