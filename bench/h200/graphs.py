"""Batches of a drafting engine that get no whole-step CUDA graph, by vLLM's own V2 runner: `graphs.py [MOST_REQUESTS]`.

Runs where vLLM can be imported, without a GPU. Written for 0.25.1, whose private candidate list it builds and asks.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import vllm
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

SIZES = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
"""What vLLM captures by itself."""


def without_a_whole_graph(k: int, most_requests: int) -> list[int]:
    """Numbers of requests at a time, each with 1 + k tokens a step, that run partly outside a graph."""
    manager = object.__new__(CudaGraphManager)  # its constructor wants a card
    manager.compilation_config = SimpleNamespace(cudagraph_capture_sizes=SIZES, max_cudagraph_capture_size=SIZES[-1])
    manager.vllm_config = SimpleNamespace(speculative_config=None, num_speculative_tokens=k)
    manager.cudagraph_mode = CUDAGraphMode.FULL_AND_PIECEWISE
    manager.max_num_reqs, manager.decode_query_len, manager.lora_capture_cases = 256, 1 + k, [0]
    manager._candidates, manager._capture_descs = {}, {}
    manager._init_candidates()

    def is_whole(requests: int) -> bool:
        found = manager._candidates.get((requests * (1 + k), 0), ())
        return any(each.cg_mode is CUDAGraphMode.FULL and each.num_reqs >= requests for each in found)

    return [requests for requests in range(1, most_requests + 1) if not is_whole(requests)]


if __name__ == "__main__":
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    print("vLLM", vllm.__version__)
    for drafted in range(1, 9):
        print(f"K={drafted}: {without_a_whole_graph(drafted, most)}")
