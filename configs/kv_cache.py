"""What a token costs in key/value cache: the layers that keep it, and the number formats of vLLM 0.32.0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from pydantic import Field

from configs.files import Fault
from configs.frozen import Grown


class KvFormat(NamedTuple):
    """A number format of the cache, by the least that it takes."""

    value_bytes: float
    """Bytes of one value, the mean of keys and values, with the scales of blocks of values."""

    scale_bytes: float = 0.0
    """Bytes of the scales beside key and value of one head."""


KV_FORMATS = {
    "auto": KvFormat(2),
    **dict.fromkeys(("float16", "bfloat16"), KvFormat(2)),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"), KvFormat(1)),
    **dict.fromkeys(("fp8_per_token_head", "int8_per_token_head"), KvFormat(1, 8)),
    "int4_per_token_head": KvFormat(1 / 2, 8),
    **dict.fromkeys(("nvfp4", "nvfp4_4over6"), KvFormat(1 / 2 + 1 / 16)),
    "ultraquant_4bit": KvFormat(1 / 2 + 1 / 32),
    "turboquant_k8v4": KvFormat((8 + 4) / 16, 4),
    "turboquant_4bit_nc": KvFormat(4 / 8, 6),
    "turboquant_k3v4_nc": KvFormat((3 + 4) / 16, 6),
    "turboquant_3bit_nc": KvFormat(3 / 8, 6),
    "fp8_ds_mla": KvFormat(528 / 512),  # of DeepSeek-V4.1; V3.2's is 656 bytes for 576 values, V4's 584 for 512
    "nvfp4_ds_mla": KvFormat(352 / 576),
}
"""`--kv-cache-dtype` of vLLM 0.32.0 (`CacheDType` in its `config/cache.py`; sizes: `customize_spec` of its attention
backends, `quantization/turboquant/config.py`, `backends/mla/flashmla_sparse.py`). Further scales only add to them."""

UNKNOWN_FORMAT = KvFormat(0)
"""Of a format that isn't there, as a newer engine's: nothing is counted, so that no ceiling is below what it allows."""


class KvCacheLayout(Grown):
    """What one token costs in key/value cache, in layers that keep every token: ceilings are computed from it.

    Others (sliding window, linear attention) hold a constant amount; without them the ceiling stays above the true one.
    Either keys and values by heads, or `bytes_per_token`, where a layer keeps one latent vector instead (MLA: layers x
    (kv_lora_rank + qk_rope_head_dim) x 2 bytes; DeepSeek-V2, arXiv 2405.04434, section 2.1).
    """

    layers: int | None = Field(None, gt=0, description="layers that keep every token")
    kv_heads: int | None = Field(None, gt=0)
    head_dim: int | None = Field(None, gt=0)
    bytes_per_token: float | None = Field(None, gt=0, description="instead of these three: of all layers, in 16 bits")
    index_bytes_per_token: float = Field(
        0, ge=0, description="keys of a sparse attention's index, read of every token, in their own format"
    )
    reads_at_most: int | None = Field(None, gt=0, description="tokens that a sparse attention reads; none: all")

    later: ClassVar[frozenset[str]] = frozenset({"bytes_per_token", "index_bytes_per_token", "reads_at_most"})

    def faults(self) -> Iterator[Fault]:
        """Neither of the two forms, or parts of both."""
        by_heads = (self.layers, self.kv_heads, self.head_dim)
        if (None in by_heads) if self.bytes_per_token is None else any(by_heads):
            problem = "its bytes aren't said, or twice; accepted: layers, kv_heads and head_dim, or bytes_per_token"
            yield ("kv",), problem

    def bytes_kept(self, form: KvFormat) -> float:
        """Bytes that one token takes in all layers."""
        if self.bytes_per_token is not None:
            return self.bytes_per_token / KV_FORMATS["auto"].value_bytes * form.value_bytes + self.index_bytes_per_token
        a_head = 2 * (self.head_dim or 0) * form.value_bytes + form.scale_bytes
        return (self.layers or 0) * (self.kv_heads or 0) * a_head + self.index_bytes_per_token

    def bytes_read(self, form: KvFormat, tokens: float) -> float:
        """Bytes that a decoding step reads of a sequence with so many tokens."""
        attended = min(tokens, self.reads_at_most or tokens)
        return tokens * self.index_bytes_per_token + attended * (self.bytes_kept(form) - self.index_bytes_per_token)
