"""How long things take before anyone has measured them: the forecast's formulas and assumed numbers.

The assumptions are constants with their source, and the sentences that users read are built from those
constants, so that the two can't disagree.
"""

from __future__ import annotations

import math

from configs.cell import Cell, Gpu
from configs.step import Load, MeasuredStep
from configs.steps import parity, smoke

BANDWIDTH_EFFICIENCY = 0.8
"""Share of the data sheet's memory bandwidth that decoding reaches; fitted to the five AR rows
of mtp-diffusion-h100 (docs/sources.md)."""

STEP_OVERHEAD_S = 0.0032
"""Time per decoding step that no bandwidth explains (launches, sampling, host); fitted to the same rows."""

KV_BYTES_PER_VALUE = 2
"""The key/value cache stays in 16 bits, whatever the weights are."""

GAIN_BY_METHOD = {
    "ar": 1.0,
    "mtp": 1.7,
    "diffusion": 3.8,
    "dflash": 2.0,
    "draft_model": 1.4,
    "eagle3": 1.4,
    "ngram": 1.0,
    "suffix": 1.0,
}
"""Expected speed over AR. mtp and diffusion: middle of mtp-diffusion-h100; dflash: mtp-dflash-h100 (docs/sources.md);
the rest: cautious."""

BATCH_EFFICIENCY = 0.85
"""Of several requests at a time, each runs at this share of its speed alone."""

CPU_TOK_S = 500.0
"""Tokens per second of the tiny family's target on one CPU core (measured 488-595 on two cores)."""

CPU_START_S = 25.0
"""An engine start on a CPU, its packages already byte-compiled (measured 19-29 s)."""

GPU_LAUNCH_S = 300.0
"""From asking a cloud for a machine to an engine that may start: provisioning, and pulling the image."""

GPU_START_S = 180.0
"""Reading weights, compiling and capturing graphs on one GPU (measured 125-202 s on an H200)."""

DOWNLOAD_GB_S = 0.5
"""Speed at which a checkpoint arrives on a cluster that has never seen it."""

CHECKPOINT_BYTES_PER_PARAM = 2.0
"""What is downloaded if the precision is made while loading: the checkpoint is in 16 bits."""

STEP_SETUP_S = 2.0
"""Fixed cost of a step: prompts, counters before and after, commit."""


def decode_tok_s(cell: Cell, gpu: Gpu, context_tokens: int, concurrency: int = 1) -> float:
    """Expected tokens per second of one cell, all requests together.

    A decoding step reads every active weight and the cache of every token so far, so

        seconds per step = bytes read / (bandwidth x efficiency) + overhead
        bytes read       = active params x bytes per param + context x 2 x layers x kv heads x head dim x 2

    times the technique's expected gain. The first term is the usual bound for small batches (Pope et
    al. 2022, "Efficiently Scaling Transformer Inference", arXiv:2211.05102); the two fitted constants give
    the ten AR figures of mtp-diffusion-h100 to 20 %. Without a bandwidth (a CPU) the tiny family's measured rate is
    used.
    """
    gain = GAIN_BY_METHOD[cell.technique.method]
    at_once = min(concurrency, cell.serving.max_num_seqs or concurrency)
    batch = at_once * BATCH_EFFICIENCY if at_once > 1 else 1.0
    if gpu.bandwidth_gb_s is None:
        return CPU_TOK_S * gain * batch
    gigabytes = cell.model.active_params_b * cell.precision.bytes_per_param + kv_gb(cell, context_tokens)
    step_s = gigabytes / (gpu.bandwidth_gb_s * BANDWIDTH_EFFICIENCY) + STEP_OVERHEAD_S
    return gain * batch / step_s


def kv_gb(cell: Cell, context_tokens: int) -> float:
    """Gigabytes of key/value cache read per step; 0 where the model's file doesn't say."""
    kv = cell.model.kv
    if kv is None:
        return 0.0
    return context_tokens * 2 * kv.layers * kv.kv_heads * kv.head_dim * KV_BYTES_PER_VALUE / 1e9


def launch_s(gpu: Gpu) -> float:
    """Seconds until there is a machine; 0 for this one, which is already there."""
    return 0.0 if gpu.bandwidth_gb_s is None else GPU_LAUNCH_S


def start_s(cell: Cell, gpu: Gpu) -> float:
    """Seconds until the engine answers, the first time on a machine: download, load, compile."""
    if gpu.bandwidth_gb_s is None:
        return CPU_START_S
    online = cell.precision.quantization is not None
    bytes_per_param = CHECKPOINT_BYTES_PER_PARAM if online else cell.precision.bytes_per_param
    return cell.model.total_params_b * bytes_per_param / DOWNLOAD_GB_S + GPU_START_S


def step_s(cell: Cell, gpu: Gpu, step: MeasuredStep) -> float:
    """Seconds of one step: its setup, and each load of its workload after the other."""
    return STEP_SETUP_S + sum(load_s(cell, gpu, load) for load in step.workload(cell))


def load_s(cell: Cell, gpu: Gpu, load: Load) -> float:
    """Seconds of one load: all its output tokens, at the rate of a context with half the output in it."""
    context_tokens = load.prompt_tokens + load.output_tokens // 2
    return load.requests * load.output_tokens / decode_tok_s(cell, gpu, context_tokens, load.concurrency)


def assumptions(gpu: Gpu, methods: set[str], spot: bool) -> tuple[str, ...]:
    """What the estimates rest on, as sentences, for this GPU and these techniques."""
    gains = ", ".join(f"{method} {GAIN_BY_METHOD[method]:g}x" for method in sorted(methods) if method != "ar")
    said = [
        *(_cpu_sentences() if gpu.bandwidth_gb_s is None else _gpu_sentences(gpu)),
        *([f"Expected gain over AR: {gains} (published elsewhere, docs/sources.md; not a result)."] if gains else []),
        f"Several requests at a time each run at {BATCH_EFFICIENCY:.0%} of their speed alone; reading the "
        "prompt isn't counted.",
        f"An eval answer uses all of its max_tokens; a smoke answer {smoke.OUTPUT_TOKENS}; parity is "
        f"{parity.PASSES_OF_BASELINE} passes of an AR cell and one of any other.",
    ]
    if gpu.price_source:
        said.append(f"Prices: {gpu.price_source}")
    if spot:
        said.append("No preemption: each costs another launch and start, and up to a minute of work.")
    return tuple(said)


def _cpu_sentences() -> list[str]:
    """The basis of an estimate without a GPU."""
    return [
        f"No bandwidth figure for this machine: {CPU_TOK_S:g} tok/s assumed for the tiny family "
        f"(measured on two cores), {CPU_START_S:g} s for an engine start."
    ]


def _gpu_sentences(gpu: Gpu) -> list[str]:
    """The basis of an estimate with a GPU."""
    bandwidth = math.nan if gpu.bandwidth_gb_s is None else gpu.bandwidth_gb_s
    return [
        f"Decoding: active weights and cache read at {BANDWIDTH_EFFICIENCY:.0%} of {bandwidth:g} GB/s, plus "
        f"{STEP_OVERHEAD_S * 1000:g} ms a step (fitted to published AR figures, docs/sources.md).",
        f"Launch {GPU_LAUNCH_S:g} s, download at {DOWNLOAD_GB_S:g} GB/s, engine start {GPU_START_S:g} s.",
    ]
