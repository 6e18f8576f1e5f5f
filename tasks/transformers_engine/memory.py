"""What serving takes of memory: weights of target and assistant, and the most that a request needed.

Gauges of `/metrics`, in bytes. On a card they are torch's own account of it (`torch.cuda.max_memory_allocated`,
`max_memory_reserved`): what the driver adds for the process itself, some 500 MB, is not in them. Requests that ask for
probabilities keep all logits and are left out of the peak: no timed request asks. Elsewhere the process's peak resident
memory is all that there is.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tasks.transformers_engine.loading import Loaded


class Memory:
    """Peaks since the engine's start."""

    def __init__(self, loaded: Loaded) -> None:
        self._device = torch.device(loaded.device)
        self._weights = {"target": loaded.model_bytes}
        if loaded.assistant_bytes is not None:
            self._weights["assistant"] = loaded.assistant_bytes
        self._allocated = self._reserved = 0

    @contextmanager
    def of_request(self, *, counts: bool) -> Iterator[None]:
        """Around one request: its peak is kept if it `counts`."""
        if self._device.type != "cuda":
            yield
            return
        torch.cuda.reset_peak_memory_stats(self._device)
        yield
        if counts:
            self._allocated = max(self._allocated, torch.cuda.max_memory_allocated(self._device))
            self._reserved = max(self._reserved, torch.cuda.max_memory_reserved(self._device))

    def gauges(self) -> dict[str, float]:
        """Name to bytes; on a card without a plain request so far there is no peak."""
        found = {f'transformers:weights_bytes{{of="{name}"}}': float(size) for name, size in self._weights.items()}
        if self._allocated:
            found["transformers:gpu_memory_peak_allocated_bytes"] = float(self._allocated)
            found["transformers:gpu_memory_peak_reserved_bytes"] = float(self._reserved)
        # KiB on Linux (getrusage(2))
        found["transformers:resident_memory_peak_bytes"] = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return found
