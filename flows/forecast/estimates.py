"""How long things take before anyone has measured them: launch, start, and each step by its workload.

A decoding step of a batch reads weights and cache, or computes, whichever takes longer (Pope et al. 2022, "Efficiently
Scaling Transformer Inference", arXiv:2211.05102):

    seconds per step = max(gigabytes read / bandwidth, operations / FLOPS) + overhead
    gigabytes read   = weights that a batch touches + batch x cache of one context
    operations       = 2 x active parameters x batch

Several cards count as ideal ones, so their figures are the upper end of scaling. Tensor parallel ones count as a single
card with the bandwidth and FLOPS of all. They exchange activations in no time (the paper's section 3 says what it
takes). Of pipeline and data parallel groups each takes its share of the requests and reads its weights for it.

What was fitted was fitted to published figures (docs/sources.md); what is assumed says so. The sentences that users
read are built from the constants, so that the two can't disagree.
"""

from __future__ import annotations

from collections.abc import Sequence

from configs.cell import Cell, Gpu
from configs.checks.engine import memory_gb, weights_gb
from configs.kv_cache import KV_FORMATS, KvFormat
from configs.load import AUTO_GPU
from configs.methods import ALIASES, METHODS
from configs.schema import Plan, PlannedCell
from configs.step import MeasuredStep, Work
from configs.steps import smoke
from configs.steps.eval import EvalStep
from configs.steps.smoke import SmokeStep
from configs.visits import Measurement, Start
from tasks.guards.answers import asks_for_thinking

BANDWIDTH_EFFICIENCY = 0.8
"""Share of the data sheet's memory bandwidth that decoding reaches; fitted to the five AR rows
of mtp-diffusion-h100 (docs/sources.md)."""

COMPUTE_EFFICIENCY = 0.4
"""Share of the data sheet's dense 16-bit FLOPS that is reached. The five AR rows of mtp-diffusion-h100 lose 0.14 to
0.73 s of each request to an 8K prompt: 0.35 to 1.03 of the H100's, in fp8; this is the cautious end."""

STEP_OVERHEAD_S = 0.0032  # per decoding step, explained by neither (launches, sampling, host); fitted to the same rows

GENERATE_OVERHEAD_S = 0.09
"""The same of Hugging Face's `generate`, which launches every kernel by itself: the AR row of mtp-transformers-h100,
8.8 tok/s, less what its weights take to be read. Our guards call that row too slow for its card; it is the only one."""


GAIN_HALVES_AT = 32
"""Further requests in flight that halve what a technique gains. The source is mtp-dflash-h100, from 1 to 16 at a time:
on the dense 31B, MTP fell from 3.11x to 2.54x and DFlash from 3.03x to 1.93x. That is a half at 41 and at 13. On the
26B-A4B neither faded. Beyond 16 nobody published a figure."""

BATCH_EFFICIENCY = 0.85
"""Of several requests at a time, each runs at this share of what the roofline says. The AR rows of mtp-dflash-h100 at
16 at a time are 0.62 (31B) and 1.26 (26B-A4B) of it; their geometric mean is 0.89."""

ENGINE_GB = 4.0  # GPU memory that neither weights nor cache can have: activations, graphs, a draft model. Assumed
CPU_TOK_S = 500.0  # tokens per second of the tiny family's target on one CPU core (measured 488-595 on two cores)
CPU_GENERATE_TOK_S = 100.0  # the same of `generate` (measured 102 beside busy neighbours, up to 246 without)
CPU_MOST_AT_ONCE = 4  # requests beyond which two cores get no faster. Assumed: the most that the demo asks for


def decode_tok_s(cell: Cell, gpu: Gpu, context_tokens: int, at_once: int = 1) -> float:
    """Expected tokens per second of one cell, all requests together.

    The roofline times the technique's expected gain. One request at a time, it gives the ten AR figures of
    mtp-diffusion-h100 to 20 %. Without a bandwidth (a CPU) the tiny family's measured rate is used. `context_tokens`
    are in the cache of each of the `at_once` requests in flight.
    """
    gain, generates = gain_at(cell.technique.canonical, at_once), cell.engine.kind == "transformers"
    if gpu.bandwidth_gb_s is None:
        alone = CPU_GENERATE_TOK_S if generates else CPU_TOK_S
        return alone * gain * _effective(min(at_once, CPU_MOST_AT_ONCE))
    batch = at_once / _groups(cell, at_once)
    read_gb = _weights_read_gb(cell, batch) + batch * _kv_read_gb(cell, context_tokens)
    read_s = read_gb / (gpu.bandwidth_gb_s * cell.tensor_parallel * BANDWIDTH_EFFICIENCY)
    overhead_s = GENERATE_OVERHEAD_S if generates else STEP_OVERHEAD_S
    step_s = max(read_s, compute_s(cell, gpu, at_once, at_once)) + overhead_s
    return gain * _effective(at_once) / step_s


def gain_at(method: str, at_once: int) -> float:
    """Expected speed over AR with this many requests in flight: checking drafts costs less while the GPU idles."""
    alone = METHODS[method].gain
    return 1.0 if alone is None else 1 + (alone - 1) / (1 + (at_once - 1) / GAIN_HALVES_AT)


def compute_s(cell: Cell, gpu: Gpu, tokens: int, at_once: int) -> float:
    """Seconds of arithmetic for so many tokens, decoded or read as prompts; 0 where the GPU's file has no FLOPS.

    All cards work where there are at least as many requests at once as pipeline and data parallel groups. Attention
    over long contexts isn't counted, nor that 8-bit weights may compute faster.
    """
    if gpu.bf16_tflops is None:
        return 0.0
    tflops = gpu.bf16_tflops * cell.tensor_parallel * _groups(cell, at_once)
    return 2 * cell.model.active_params_b * tokens / (tflops * 1000 * COMPUTE_EFFICIENCY)


def kv_gb(cell: Cell, context_tokens: int) -> float:
    """Gigabytes of key/value cache that one request takes; 0 where the model's file doesn't say.

    In 16 bits whatever the weights are, unless the engine is told otherwise.
    """
    kv = cell.model.kv
    return 0.0 if kv is None else context_tokens * kv.bytes_kept(_kv_format(cell)) / 1e9


def _kv_read_gb(cell: Cell, context_tokens: int) -> float:
    kv = cell.model.kv
    return 0.0 if kv is None else kv.bytes_read(_kv_format(cell), context_tokens) / 1e9


def _kv_format(cell: Cell) -> KvFormat:
    return KV_FORMATS.get(cell.kv_cache_dtype, KV_FORMATS["auto"])


def carried_requests(cell: Cell, gpu: Gpu, tokens: int) -> int | None:
    """Requests of so many tokens that the cache of all cards holds, sliding windows aside; None: not known."""
    each_gb, has_gb = kv_gb(cell, tokens), memory_gb(cell, gpu)
    if has_gb is None or each_gb == 0:
        return None
    copies = cell.cards // cell.cards_a_copy
    free_gb = (has_gb - ENGINE_GB) * cell.cards - weights_gb(cell) * copies
    return max(1, int(free_gb / each_gb))


def at_once(cell: Cell, gpu: Gpu, asked: int, tokens: int) -> int:
    """Requests of so many tokens in flight: as many as asked for, as the cell takes, and as its KV cache holds."""
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
    if not model.is_moe:
        return model.active_params_b * cell.precision.bytes_per_param
    share: float = 1 - (1 - min(1.0, model.active_params_b / model.total_params_b)) ** batch
    return share * weights_gb(cell)


def _effective(at_once: int) -> float:
    return at_once * BATCH_EFFICIENCY if at_once > 1 else 1.0


CPU_START_S = 25.0  # an engine start on a CPU, its packages already byte-compiled (measured 19-29 s)
GPU_LAUNCH_S = 300.0  # from asking a cloud for a machine to an engine that may start: its setup, pulling the image
GPU_START_S = 180.0  # reading weights, compiling and capturing graphs on one GPU (measured 125-202 s on an H200)

DOWNLOAD_GB_S = 0.45
"""Speed at which a checkpoint arrives on a new cluster: that of the disk. 437 MiB/s of gp3 on AWS at `disk_tier: high`
(SkyPilot 0.14.1, `AWS._get_disk_specs`); at medium, its default, it is 218."""

CHECKPOINT_BYTES_PER_PARAM = 2.0  # of a download, where the precision is made while loading: 16 bits
STEP_SETUP_S = 2.0  # fixed cost of a step: prompts, counters before and after, commit


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
    """Seconds of a step in one start of the cell or its control (`served`): setup, and each pass of each load."""
    step, loads = measurement.spec, list(measurement.spec.workload(served)) * measurement.passes
    if isinstance(step, SmokeStep):
        loads += [load for tried in planned.steps for load in tried.trial(served, step.items)]
    return STEP_SETUP_S + sum(load_s(served, planned.gpu, load) for load in loads)


def load_s(cell: Cell, gpu: Gpu, load: Work) -> float:
    """Seconds of one load: its prompts read, its answers decoded, and its longest answer ending alone.

    Answers are decoded at the rate of a context with half an answer in it. Where answers may get longer than expected,
    the longest one is assumed to run alone after the others. This is the bound for any order (Graham 1966, "Bounds for
    Certain Multiprocessing Anomalies"). Where requests are sent at a rate, a load takes at least until all are sent.
    """
    longest_tokens = max(load.output_tokens, load.longest_output_tokens)
    batch = at_once(cell, gpu, min(load.concurrency, load.requests), load.prompt_tokens + longest_tokens)
    context_tokens = load.prompt_tokens + load.output_tokens // 2
    answers_s = load.requests * load.output_tokens / decode_tok_s(cell, gpu, context_tokens, batch)
    alone_s = (longest_tokens - load.output_tokens) / decode_tok_s(cell, gpu, load.prompt_tokens + longest_tokens)
    work_s = compute_s(cell, gpu, load.requests * load.prompt_tokens, batch) + answers_s
    return max(work_s, load.requests / load.rate_s if load.rate_s else 0.0) + alone_s


def assumptions(plan: Plan, *, spot: bool) -> tuple[str, ...]:
    """What the estimates of a plan rest on, as sentences; `spot`: it is priced so."""
    gpu, cells = plan.gpu, [planned.cell for planned in plan.cells]
    said = []
    if gpu.bandwidth_gb_s is None:
        if gpu.name == AUTO_GPU:
            said.append(
                "There is no card here (gpu: auto), so times are a processor's, of a tiny model: name the card."
            )
        said.append(
            f"No bandwidth figure for this machine: {CPU_TOK_S:g} tok/s assumed for the tiny family (measured on two "
            f"cores), no faster beyond {CPU_MOST_AT_ONCE} at a time, {CPU_START_S:g} s for an engine start. Reading "
            "the prompt isn't counted."
        )
    else:
        said += [
            f"Decoding: weights that a batch touches, and every request's cache, read at {BANDWIDTH_EFFICIENCY:.0%} of "
            f"{gpu.bandwidth_gb_s:g} GB/s, plus {STEP_OVERHEAD_S * 1000:g} ms a step (fitted to published AR figures, "
            "docs/sources.md).",
            f"Prompts, and large batches: {COMPUTE_EFFICIENCY:.0%} of {gpu.bf16_tflops:g} TFLOPS in 16 bits."
            if gpu.bf16_tflops
            else f"gpus/{gpu.name}.yaml has no bf16_tflops: reading prompts isn't counted, nor that large batches "
            "compute.",
            f"Launch {GPU_LAUNCH_S:g} s, download at {DOWNLOAD_GB_S:g} GB/s once, {GPU_START_S:g} s for each engine "
            "start."
            if plan.cloud is not None
            else f"The card and the weights are here; {GPU_START_S:g} s for each engine start.",
        ]
    if any(cell.cards > 1 for cell in cells):
        said.append(
            "Several cards count as ideal ones, which exchange nothing: hours and dollars are the lower end of what "
            "they take."
        )
    if any(cell.engine.kind == "transformers" for cell in cells):
        said.append(
            f"generate() of transformers answers one request after the other: {GENERATE_OVERHEAD_S * 1000:g} ms a step "
            f"beside what it reads, by one published row that is doubtful itself; {CPU_GENERATE_TOK_S:g} tok/s of the "
            "tiny family on a CPU."
        )
    gain_of = {cell.technique.canonical: cell.technique.facts.gain for cell in cells if not cell.technique.is_baseline}
    if gains := ", ".join(f"{name} {gain:g}x" for name, gain in sorted(gain_of.items()) if gain is not None):
        said.append(
            f"Expected gain over AR, one request at a time: {gains} (published elsewhere, docs/sources.md; not a "
            f"result); half of it is left with {GAIN_HALVES_AT + 1} at a time (fitted up to 16)."
        )
    if unknown := ", ".join(sorted(name for name, gain in gain_of.items() if gain is None)):
        said.append(f"Nobody knows what {unknown} gains: it counts as AR's speed.")
    named_else = {technique.name: technique for cell in cells if (technique := cell.technique).method in ALIASES}
    said += [
        f"{name}: its method {technique.method} is an older name of vLLM's for {technique.canonical}, and served so."
        for name, technique in named_else.items()
    ]
    models = {cell.model.name: cell.model for cell in cells}
    thinking = [name for name, model in models.items() if asks_for_thinking(model) and model.reasoning_parser is None]
    said += [
        f"{name} is told to think, and its file names no reasoning_parser: thoughts in a format that we don't know "
        "would be graded, and answers without any are suspect."
        for name in thinking
    ]
    said += [
        f"Several requests at a time each run at {BATCH_EFFICIENCY:.0%} of that.",
        f"A smoke answer has {smoke.OUTPUT_TOKENS} tokens, those that it tries of an eval their usual length, one to a "
        f"sanity question {smoke.SANITY_USUAL_TOKENS}; an eval-tiny answer all of its max_tokens; parity is two passes "
        "of an AR cell and one of any other.",
    ]
    if any(isinstance(step, EvalStep) for planned in plan.cells for step in planned.steps):
        said.append(
            "An eval's answers have their suite's usual length, which is our assumption until a run has measured it; "
            "as many are in flight as the KV cache carries at full length; one answer of max_tokens ends alone, after "
            "the others."
        )
    said.append("Repeats that end when the machine's pace is known: the middle of their fewest and their most.")
    if gpu.price_source:
        said.append(f"Prices: {gpu.price_source}")
    if spot:
        said.append("No preemption: each costs another launch and start, and up to a minute of work.")
    return tuple(said)
