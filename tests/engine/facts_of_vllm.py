"""Run by the engine's Python: configs on standard input, and what transformers and vLLM make of them as JSON.

Of each config the parameters in billions, all of them and those that a token reads, counted on models without memory;
of each number format of the key/value cache the bytes that key and value of one head of 128 take, where vLLM says.
"""

from __future__ import annotations

import json
import sys
from typing import Any, get_args

import torch
import transformers
from transformers import AutoConfig, AutoModel

HEAD_DIM = 128


def counted(config: dict[str, Any]) -> dict[str, float]:
    read = AutoConfig.for_model(**config)
    with torch.device("meta"):
        if (draft := config["architectures"][0]) == "DFlashDraftModel":
            return {"total": _dflash(AutoModel.from_config(read), config) / 1e9}
        model = getattr(transformers, draft)._from_config(read)
    total, text = sum(each.numel() for each in model.parameters()), read.get_text_config()
    unread = 0.0
    if experts := next((n for key in EXPERTS if (n := getattr(text, key, None))), None):
        used = getattr(text, "num_experts_per_tok", None) or text.top_k_experts
        of_experts = sum(each.numel() for name, each in model.named_parameters() if ".experts." in name)
        unread += of_experts * (1 - used / experts)
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is not None and head.weight is not embedding.weight:
        unread += embedding.weight.numel()
    return {"total": total / 1e9, "active": (total - unread) / 1e9}


EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")


def _dflash(layers: Any, config: dict[str, Any]) -> int:
    """It borrows the target's embedding, and has one matrix that takes in the layers of the target that it reads."""
    reads = len(config["dflash_config"]["target_layer_ids"]) * config["hidden_size"] ** 2
    return sum(each.numel() for each in layers.parameters()) - layers.embed_tokens.weight.numel() + reads


def formats() -> dict[str, int | None]:
    """None where the bytes are said by code that only a card can import."""
    from vllm.config.cache import CacheDType
    from vllm.model_executor.layers.quantization.turboquant.config import TQ_PRESETS, TurboQuantConfig
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE, nvfp4_kv_cache_full_dim
    from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend
    from vllm.v1.attention.ops.ultraquant.format import slot_size
    from vllm.v1.kv_cache_interface import FullAttentionSpec, get_kv_quant_mode

    sizes: dict[str, int | None] = {name: None for name in get_args(CacheDType)}
    for name in TritonAttentionBackend.supported_kv_cache_dtypes:
        sizes[name] = TritonAttentionBackend.customize_spec(
            FullAttentionSpec(
                block_size=16,
                num_kv_heads=1,
                head_size=HEAD_DIM,
                dtype=torch.bfloat16 if name == "auto" else STR_DTYPE_TO_TORCH_DTYPE[name],
                kv_quant_mode=get_kv_quant_mode(name),
            )
        ).state_content_size_bytes
    sizes |= {name: TurboQuantConfig.from_cache_dtype(name, HEAD_DIM).slot_size_aligned for name in TQ_PRESETS}
    nvfp4 = 2 * nvfp4_kv_cache_full_dim(HEAD_DIM)
    return sizes | {"ultraquant_4bit": slot_size(HEAD_DIM), "nvfp4": nvfp4, "nvfp4_4over6": nvfp4}


if __name__ == "__main__":
    configs = json.load(sys.stdin)
    print(json.dumps({"models": {name: counted(each) for name, each in configs.items()}, "formats": formats()}))
