"""What an engine has loaded, by its own log: arguments as it resolved them, formats of its layers, bytes, KV cache.

Wordings of vLLM, each from the file that logs it without being asked (0.32.0). Other engines and versions may say less.

- arguments: "Initializing a V1 LLM engine (v0.32.0) with config: ... dtype=torch.bfloat16, max_seq_len=4096, ...
  quantization=None, ... kv_cache_dtype=auto, ..." (v1/engine/core.py, config/vllm.py).
- `max_num_seqs`: "non-default args: {...}" (entrypoints/serve/utils/api_utils.py); its default is not logged.
- layers that are quantized while loading: "Quantizing 28 layers of types: mlp.down_proj: 28 (from linear:
  fp8_per_channel_static)" (model_executor/model_loader/base_loader.py), once per model, the target's first.
- layers that a checkpoint has quantized: "Selected CPUInt8ScaledMMLinearKernel for CompressedTensorsW8A8Int8", "Using
  MarlinLinearKernel for CompressedTensorsWNA16" (kernels/linear/__init__.py, quantization/*.py), and of experts "Using
  TRITON Fp8 MoE backend out of ..." (layers/fused_moe/oracle/), each once.

Memory is read in `tasks.engine.log`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tasks.engine.log import startup_memory

NO_QUANTIZATION = "none"  # the engine's word for it; a null says that nobody knows

_ARGUMENTS = re.compile(
    r"Initializing a V\d LLM engine .* dtype=torch\.(\w+), max_seq_len=(\d+), .*? quantization=([\w.-]+), .*?"
    r" kv_cache_dtype=([\w.-]+),"
)
_MOST_AT_ONCE = re.compile(r"non-default args: .*'max_num_seqs': (\d+)")
_WHILE_LOADING = re.compile(r"Quantizing (\d+) layers of types: *(.*)")
_LINEAR = re.compile(r"(?:Selected|Using) \w+ for (\w*(?:Linear|CompressedTensors|Quark|ModelOpt|Fp8|Int8|FP4|FP8)\w*)")
_EXPERTS = re.compile(r"Using '?\S+?'? (?!Unquantized)(\w+(?: Int8)?) MoE backend\b")


class Loaded(NamedTuple):
    """What the log says; None: it doesn't."""

    quantization: str | None  # NO_QUANTIZATION where it says so
    dtype: str | None
    kv_cache_dtype: str | None
    max_model_len: int | None
    max_num_seqs: int | None
    weights_bytes: int | None  # of one card, the draft's included
    kv_tokens: int | None
    quantized_while_loading: int | None  # layers of the target
    formats: tuple[str, ...]  # of quantized layers, in the engine's words

    def columns(self) -> dict[str, object]:
        """As columns of `provenance`."""
        named = {f"loaded_{name}": value for name, value in self._asdict().items() if name not in _OF_LAYERS}
        return {**named, "loaded_formats": "; ".join(self.formats) or None}


_OF_LAYERS = ("quantized_while_loading", "formats")


def loaded(log: str) -> Loaded:
    """What an engine's log says, from one start."""
    arguments, most, made = _ARGUMENTS.search(log), _MOST_AT_ONCE.search(log), _WHILE_LOADING.search(log)
    dtype, length, quantization, kv_cache_dtype = arguments.groups() if arguments else (None,) * 4
    layers, made_of = made.groups() if made else (None, "")
    formats = [made_of, *_LINEAR.findall(log), *(f"{name} experts" for name in _EXPERTS.findall(log))]
    memory = startup_memory(log)
    return Loaded(
        quantization=NO_QUANTIZATION if quantization == "None" else quantization,
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        max_model_len=None if length is None else int(length),
        max_num_seqs=None if most is None else int(most[1]),
        weights_bytes=memory.weights_bytes,
        kv_tokens=memory.kv_tokens,
        quantized_while_loading=None if layers is None else int(layers),
        formats=tuple(filter(None, dict.fromkeys(formats))),
    )
