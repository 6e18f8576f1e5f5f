"""How long things take before anyone has measured them: launch, start, and each step by its workload.

The assumptions are constants with their source, and the sentences that users read are built from those
constants, so that the two can't disagree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from configs.cell import Cell, Gpu
from configs.load import AUTO_GPU
from configs.schema import PlannedCell
from configs.step import MeasuredStep, Work
from configs.steps import smoke
from configs.steps.smoke import SmokeStep
from configs.visits import Measurement, Start
from flows.forecast.decoding import (
    BANDWIDTH_EFFICIENCY,
    BATCH_EFFICIENCY,
    COMPUTE_EFFICIENCY,
    CPU_GENERATE_TOK_S,
    CPU_MOST_AT_ONCE,
    CPU_TOK_S,
    GAIN_BY_METHOD,
    GAIN_HALVES_AT,
    GENERATE_OVERHEAD_S,
    STEP_OVERHEAD_S,
    at_once,
    compute_s,
    decode_tok_s,
)

CPU_START_S = 25.0
"""An engine start on a CPU, its packages already byte-compiled (measured 19-29 s)."""

GPU_LAUNCH_S = 300.0
"""From asking a cloud for a machine to an engine that may start: provisioning, and pulling the image."""

GPU_START_S = 180.0
"""Reading weights, compiling and capturing graphs on one GPU (measured 125-202 s on an H200)."""

DOWNLOAD_GB_S = 0.45
"""Speed at which a checkpoint arrives on a new cluster: that of the disk. 437 MiB/s of gp3 on AWS at `disk_tier: high`
(SkyPilot 0.14.1, `AWS._get_disk_specs`); at medium, its default, it is 218."""

CHECKPOINT_BYTES_PER_PARAM = 2.0
"""What is downloaded if the precision is made while loading: the checkpoint is in 16 bits."""

STEP_SETUP_S = 2.0
"""Fixed cost of a step: prompts, counters before and after, commit."""


def download_s(cell: Cell) -> float:
    """Seconds until the weights are on a rented machine."""
    online = cell.precision.quantization is not None
    bytes_per_param = CHECKPOINT_BYTES_PER_PARAM if online else cell.precision.bytes_per_param
    return cell.model.total_params_b * bytes_per_param / DOWNLOAD_GB_S


def start_s(gpu: Gpu) -> float:
    """Seconds from a start of an engine until it answers, its weights already there: load, compile."""
    return CPU_START_S if gpu.bandwidth_gb_s is None else GPU_START_S


def ready_s(planned: PlannedCell, starts: Sequence[Start], *, rented: bool) -> float:
    """Seconds of engine starts, and on a rented machine of the weights' download before them; of a draft, nothing."""
    models = {start.served.model.name: start.served for start in starts}
    downloads_s = sum(map(download_s, models.values())) if rented and planned.gpu.bandwidth_gb_s is not None else 0.0
    return downloads_s + len(starts) * start_s(planned.gpu)


def measuring_s(planned: PlannedCell, starts: Sequence[Start]) -> float:
    """Seconds of all measurements in these starts."""
    return sum(measurement_s(planned, start.served, each) for start in starts for each in start.measurements)


def step_s(planned: PlannedCell, step: MeasuredStep) -> float:
    """Seconds of one pass of a step over a cell."""
    return measurement_s(planned, planned.cell, Measurement(step))


def measurement_s(planned: PlannedCell, served: Cell, measurement: Measurement) -> float:
    """Seconds of a step in one start: its setup, and each load of its workload after the other, in each pass.

    Smoke tries the other steps.

    `served` is the cell itself, or its control.
    """
    step, loads = measurement.spec, list(measurement.spec.workload(served)) * measurement.passes
    if isinstance(step, SmokeStep):
        loads += [load for tried in planned.steps for load in tried.trial(served, step.items)]
    return STEP_SETUP_S + sum(load_s(served, planned.gpu, load) for load in loads)


def load_s(cell: Cell, gpu: Gpu, load: Work) -> float:
    """Seconds of one load: its prompts read, its answers decoded, and its longest answer ending alone.

    Answers are decoded at the rate of a context with half an answer in it. Where answers may get longer than expected,
    the longest one is taken to run alone behind the others: the bound of any order (Graham 1966, "Bounds for Certain
    Multiprocessing Anomalies"). Where requests are sent at a rate, sending them all is the least that it takes.
    """
    longest_tokens = max(load.output_tokens, load.longest_output_tokens)
    batch = at_once(cell, gpu, min(load.concurrency, load.requests), load.prompt_tokens + longest_tokens)
    context_tokens = load.prompt_tokens + load.output_tokens // 2
    answers_s = load.requests * load.output_tokens / decode_tok_s(cell, gpu, context_tokens, batch)
    alone_s = (longest_tokens - load.output_tokens) / decode_tok_s(cell, gpu, load.prompt_tokens + longest_tokens)
    work_s = compute_s(cell, gpu, load.requests * load.prompt_tokens, batch) + answers_s
    return max(work_s, load.requests / load.rate_s if load.rate_s else 0.0) + alone_s


def assumptions(
    gpu: Gpu,
    methods: set[str],
    spot: bool,
    has_evals: bool = False,
    rented: bool = True,
    generates: bool = False,
    cards: int = 1,
) -> tuple[str, ...]:
    """What the estimates rest on, as sentences, for these cards, these techniques, and whether `generate` serves."""
    gains = ", ".join(f"{method} {GAIN_BY_METHOD[method]:g}x" for method in sorted(methods) if method != "ar")
    gained = (
        f"Expected gain over AR, one request at a time: {gains} (published elsewhere, docs/sources.md; not a result); "
        f"half of it is left with {GAIN_HALVES_AT + 1} at a time (fitted up to 16)."
    )
    said = [
        *(_cpu_sentences(gpu) if gpu.bandwidth_gb_s is None else _gpu_sentences(gpu, rented=rented)),
        *([_CARDS_SENTENCE] if cards > 1 else []),
        *([_GENERATE_SENTENCE] if generates else []),
        *([gained] if gains else []),
        f"Several requests at a time each run at {BATCH_EFFICIENCY:.0%} of that.",
        f"A smoke answer has {smoke.OUTPUT_TOKENS} tokens, those that it tries of an eval their usual length, one to a "
        f"sanity question {smoke.SANITY_USUAL_TOKENS}; an eval-tiny answer all of its max_tokens; parity is two passes "
        "of an AR cell and one of any other.",
        *([_EVAL_SENTENCE] if has_evals else []),
        "Repeats that end when the machine's pace is known: the middle of their fewest and their most.",
    ]
    if gpu.price_source:
        said.append(f"Prices: {gpu.price_source}")
    if spot:
        said.append("No preemption: each costs another launch and start, and up to a minute of work.")
    return tuple(said)


_EVAL_SENTENCE = (
    "An eval's answers have their suite's usual length, which is our assumption until a run has measured it; as many "
    "are in flight as the KV cache carries at full length; one answer of max_tokens ends alone, after the others."
)


_CARDS_SENTENCE = (
    "Several cards count as ideal ones, which exchange nothing: hours and dollars are the lower end of what they take."
)

_GENERATE_SENTENCE = (
    f"generate() of transformers answers one request after the other: {GENERATE_OVERHEAD_S * 1000:g} ms a step beside "
    f"what it reads, by one published row that is doubtful itself; {CPU_GENERATE_TOK_S:g} tok/s of the tiny family on "
    "a CPU."
)


def _cpu_sentences(gpu: Gpu) -> list[str]:
    none = "There is no card here (gpu: auto), so times are a processor's, of a tiny model: name the card."
    return [
        *([none] if gpu.name == AUTO_GPU else []),
        f"No bandwidth figure for this machine: {CPU_TOK_S:g} tok/s assumed for the tiny family (measured on two "
        f"cores), no faster beyond {CPU_MOST_AT_ONCE} at a time, {CPU_START_S:g} s for an engine start. Reading the "
        "prompt isn't counted.",
    ]


def _gpu_sentences(gpu: Gpu, *, rented: bool) -> list[str]:
    bandwidth = math.nan if gpu.bandwidth_gb_s is None else gpu.bandwidth_gb_s
    return [
        f"Decoding: weights that a batch touches, and every request's cache, read at {BANDWIDTH_EFFICIENCY:.0%} of "
        f"{bandwidth:g} GB/s, plus {STEP_OVERHEAD_S * 1000:g} ms a step (fitted to published AR figures, "
        "docs/sources.md).",
        f"Prompts, and large batches: {COMPUTE_EFFICIENCY:.0%} of {gpu.bf16_tflops:g} TFLOPS in 16 bits."
        if gpu.bf16_tflops
        else f"gpus/{gpu.name}.yaml has no bf16_tflops: reading prompts isn't counted, nor that large batches compute.",
        f"Launch {GPU_LAUNCH_S:g} s, download at {DOWNLOAD_GB_S:g} GB/s once, {GPU_START_S:g} s for each engine start."
        if rented
        else f"The card and the weights are here; {GPU_START_S:g} s for each engine start.",
    ]
