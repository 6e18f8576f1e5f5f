"""How fast a cell reads prompts and decodes before anyone has measured it: a roofline, and how many fit at a time.

A decoding step of a batch reads weights and cache, or computes, whichever takes longer (Pope et al. 2022, "Efficiently
Scaling Transformer Inference", arXiv:2211.05102):

    seconds per step = max(gigabytes read / bandwidth, operations / FLOPS) + overhead
    gigabytes read   = weights that a batch touches + batch x cache of one context
    operations       = 2 x active parameters x batch

Several cards count as ideal ones, so their figures are the upper end of scaling. Tensor parallel ones are a single card
with the bandwidth and FLOPS of all, exchanging activations in no time (the paper's section 3 says what it takes). Of
pipeline and data parallel groups each takes its share of the requests and reads its weights for it.

What was fitted was fitted to published figures (docs/sources.md); what is assumed says so.
"""

from __future__ import annotations

from configs.cell import Cell, Gpu
from configs.checks.engine import memory_gb, weights_gb

BANDWIDTH_EFFICIENCY = 0.8
"""Share of the data sheet's memory bandwidth that decoding reaches; fitted to the five AR rows
of mtp-diffusion-h100 (docs/sources.md)."""

COMPUTE_EFFICIENCY = 0.4
"""Share of the data sheet's dense 16-bit FLOPS that is reached. The five AR rows of mtp-diffusion-h100 lose 0.14 to
0.73 s of each request to an 8K prompt: 0.35 to 1.03 of the H100's, in fp8; this is the cautious end."""

STEP_OVERHEAD_S = 0.0032
"""Time per decoding step that neither explains (launches, sampling, host); fitted to the same five rows."""

GENERATE_OVERHEAD_S = 0.09
"""The same of Hugging Face's `generate`, which launches every kernel by itself: the AR row of mtp-transformers-h100,
8.8 tok/s, less what its weights take to be read. Our guards call that row too slow for its card; it is the only one."""

KV_BYTES_PER_VALUE = 2
"""The key/value cache stays in 16 bits, whatever the weights are."""

GAIN_BY_METHOD = {
    "ar": 1.0,
    "mtp": 1.7,
    "diffusion": 3.8,
    "dflash": 2.0,
    "draft_model": 1.4,
    "eagle": 1.4,
    "eagle3": 1.4,
    "ngram": 1.0,
    "suffix": 1.0,
}
"""Expected speed over AR, one request at a time. mtp and diffusion: middle of mtp-diffusion-h100; dflash:
mtp-dflash-h100 (docs/sources.md); the rest: cautious."""

GAIN_HALVES_AT = 32
"""Further requests in flight that halve what a technique gains. From 1 to 16 at a time, mtp-dflash-h100 saw 3.11x
become 2.54x (MTP) and 3.03x become 1.93x (DFlash) on the dense 31B, which is a half at 41 and at 13; on the 26B-A4B
neither faded. Beyond 16 nobody published a figure."""

BATCH_EFFICIENCY = 0.85
"""Of several requests at a time, each runs at this share of what the roofline says. The AR rows of mtp-dflash-h100 at
16 at a time are 0.62 (31B) and 1.26 (26B-A4B) of it; their geometric mean is 0.89."""

ENGINE_GB = 4.0
"""GPU memory that neither weights nor cache can have: activations, graphs, a draft model. Assumed."""

CPU_TOK_S = 500.0
"""Tokens per second of the tiny family's target on one CPU core (measured 488-595 on two cores)."""

CPU_GENERATE_TOK_S = 100.0
"""The same of `generate` (measured 102 beside busy neighbours, up to 246 without)."""

CPU_MOST_AT_ONCE = 4
"""Requests beyond which two cores get no faster. Assumed: the most that the demo asks for."""


def decode_tok_s(cell: Cell, gpu: Gpu, context_tokens: int, at_once: int = 1) -> float:
    """Expected tokens per second of one cell, all requests together.

    The roofline times the technique's expected gain. One request at a time, it gives the ten AR figures of
    mtp-diffusion-h100 to 20 %. Without a bandwidth (a CPU) the tiny family's measured rate is used.

    `context_tokens` are in the cache of each of the `at_once` requests in flight.
    """
    gain, generates = gain_at(cell.technique.method, at_once), cell.engine.kind == "transformers"
    if gpu.bandwidth_gb_s is None:
        alone = CPU_GENERATE_TOK_S if generates else CPU_TOK_S
        return alone * gain * _effective(min(at_once, CPU_MOST_AT_ONCE))
    batch = at_once / _groups(cell, at_once)
    read_gb = _weights_read_gb(cell, batch) + batch * kv_gb(cell, context_tokens)
    read_s = read_gb / (gpu.bandwidth_gb_s * cell.tensor_parallel * BANDWIDTH_EFFICIENCY)
    overhead_s = GENERATE_OVERHEAD_S if generates else STEP_OVERHEAD_S
    step_s = max(read_s, compute_s(cell, gpu, at_once, at_once)) + overhead_s
    return gain * _effective(at_once) / step_s


def gain_at(method: str, at_once: int) -> float:
    """Expected speed over AR with this many requests in flight: checking drafts costs less while the GPU idles."""
    return 1 + (GAIN_BY_METHOD[method] - 1) / (1 + (at_once - 1) / GAIN_HALVES_AT)


def compute_s(cell: Cell, gpu: Gpu, tokens: int, at_once: int) -> float:
    """Seconds of arithmetic for so many tokens, decoded or read as prompts; 0 where the GPU's file has no FLOPS.

    All cards work where there are at least as many requests at once as pipeline and data parallel groups.

    Attention over long contexts isn't counted, nor that 8-bit weights may compute faster.
    """
    if gpu.bf16_tflops is None:
        return 0.0
    tflops = gpu.bf16_tflops * cell.tensor_parallel * _groups(cell, at_once)
    return 2 * cell.model.active_params_b * tokens / (tflops * 1000 * COMPUTE_EFFICIENCY)


def kv_gb(cell: Cell, context_tokens: int) -> float:
    """Gigabytes of key/value cache of one request; 0 where the model's file doesn't say."""
    kv = cell.model.kv
    if kv is None:
        return 0.0
    return context_tokens * 2 * kv.layers * kv.kv_heads * kv.head_dim * KV_BYTES_PER_VALUE / 1e9


def carried_requests(cell: Cell, gpu: Gpu, tokens: int) -> int | None:
    """Requests of so many tokens, prompt and answer, that the cache of all cards holds; None where a figure is missing.

    Sliding-window layers are not in `KvCacheLayout`, so a model that has them carries somewhat less.
    """
    each_gb, has_gb = kv_gb(cell, tokens), memory_gb(cell, gpu)
    if has_gb is None or each_gb == 0:
        return None
    copies = cell.cards // cell.cards_a_copy
    free_gb = (has_gb - ENGINE_GB) * cell.cards - weights_gb(cell) * copies
    return max(1, int(free_gb / each_gb))


def at_once(cell: Cell, gpu: Gpu, asked: int, tokens: int) -> int:
    """Requests of so many tokens in flight: as many as asked for, as the cell takes, and as its KV cache carries."""
    takes = 1 if cell.engine.kind == "transformers" else cell.serving.max_num_seqs
    limits = (takes, carried_requests(cell, gpu, tokens))
    return max(1, min([asked, *(limit for limit in limits if limit is not None)]))


def _groups(cell: Cell, at_once: int) -> int:
    """Pipeline stages and data parallel copies that are busy with so many requests."""
    return min(at_once, cell.cards // cell.tensor_parallel)


def _weights_read_gb(cell: Cell, batch: float) -> float:
    """Weights that a step reads. Of a mixture of experts each request picks its own; they overlap as if by chance.

    Rather too much: as if no weight were shared by all tokens, since no model's file says what is. Of the 26B-A4B (8 of
    128 experts) 23 of 25 billion at 16 at a time, where 17 would be.
    """
    model = cell.model
    share: float = 1 - (1 - min(1.0, model.active_params_b / model.total_params_b)) ** batch
    return share * weights_gb(cell)


def _effective(at_once: int) -> float:
    return at_once * BATCH_EFFICIENCY if at_once > 1 else 1.0
