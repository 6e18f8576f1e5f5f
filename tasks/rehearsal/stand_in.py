"""In place of a card: what vLLM's configuration asks of CUDA, answered for a card that isn't here.

Runs inside the engine's environment, whose vLLM is the build for processors (0.32.0). What that build lacks (CUDA
kernels, FlashAttention, Triton, torchvision) is there by name only: configuration and model classes look whether it is
there, and nothing is ever computed with it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

ABSENT = {
    "torchvision",
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
    "vllm.vllm_flash_attn._vllm_fa2_C",
    "vllm.vllm_flash_attn._vllm_fa3_C",
}
"""Modules of the published image that a build for processors has not."""

KERNELS = {"_C", "_moe_C", "_C_cache_ops", "_C_custom_ar", "_vllm_fa2_C", "_vllm_fa3_C"}
"""Namespaces of torch in which such a build lacks operators."""

GROUPED_GEMM = (90, 100)
"""Compute capabilities that vLLM's CUTLASS has grouped kernels for, as 9.0 is 90."""


class Card(NamedTuple):
    """A card by what its driver would say."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]


class _Named(type):
    """A class whose attributes are such classes, whatever they are called."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(name, (), {})


class _ByNameOnly(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in ABSENT or fullname.partition(".")[0] in ABSENT:
            return importlib.util.spec_from_loader(fullname, self, is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = lambda name: getattr(_Named("absent", (), {}), name)  # type: ignore[method-assign]


class _Kernel:
    """An operator that may be looked at and not be called."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *_: object, **__: object) -> None:
        raise NotImplementedError(f"{self.__name__} needs a card: a rehearsal computes nothing")

    def __getattr__(self, name: str) -> _Kernel:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _TritonConfig:
    """What Triton keeps of one way to run a kernel; modules choose among theirs as they are imported."""

    def __init__(self, kwargs: dict[str, Any], num_warps: int = 4, num_stages: int = 3, **more: Any) -> None:
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages
        vars(self).update(more)


def install(card: Card) -> None:
    """Make vLLM of this process believe in the card. To be called once, before anything of vLLM is imported."""
    import transformers.image_utils  # noqa: F401, and so before torchvision seems to be there
    from transformers.utils import is_torchvision_available

    is_torchvision_available()  # remembers that it is not
    sys.meta_path.insert(0, _ByNameOnly())
    _set_platform(card)
    _set_kernels(card)


def _answer(answer: Any, *_: object, **__: object) -> Any:
    return answer


def _set_platform(card: Card) -> None:
    import torch
    from vllm import platforms
    from vllm.platforms import cuda
    from vllm.platforms.interface import DeviceCapability

    answers = {
        "get_device_capability": DeviceCapability(*card.capability),
        "get_device_name": card.name,
        "get_device_total_memory": card.memory_bytes,
        "is_fully_connected": True,
        "device_count": 1 << 10,  # as many as the arguments ask for: a task's number of cards is checked elsewhere
        "num_compute_units": 128,
        "is_integrated_gpu": False,
        "get_device_numa_node": None,
        "get_all_device_numa_nodes": None,
        "current_device": torch.device("meta"),
    }
    methods = {name: classmethod(partial(_answer, answer)) for name, answer in answers.items()}
    platforms._current_platform = type("StandIn", (cuda.CudaPlatformBase,), methods)()


def _set_kernels(card: Card) -> None:
    import torch
    import vllm.config.vllm
    import vllm.triton_utils
    from vllm import _custom_ops as ops

    known = torch._ops._OpNamespace.__getattr__

    def named(self: Any, name: str) -> Any:
        try:
            return known(self, name)
        except AttributeError:
            if name.startswith("__") or self.name not in KERNELS:
                raise
            return _Kernel(f"{self.name}.{name}")

    torch._ops._OpNamespace.__getattr__ = named
    number = card.capability[0] * 10 + card.capability[1]
    ops.cutlass_scaled_mm_supports_fp8 = lambda _: number >= 89
    ops.cutlass_scaled_mm_supports_block_fp8 = lambda _: number >= 90
    ops.cutlass_scaled_mm_supports_fp4 = lambda _: number >= 100
    ops.mxfp4_experts_quant_supported = lambda _: number >= 100
    ops.cutlass_group_gemm_supported = lambda _: number in GROUPED_GEMM
    torch.cuda.Stream = torch.cuda.Event = _Named("Stream", (), {"__init__": lambda *_, **__: None})
    vllm.config.vllm.HAS_TRITON = True
    vllm.triton_utils.triton.Config = _TritonConfig
