"""Memory: what the start said of weights, cache and graphs, and the peaks over one request that fills the context.

Units and sources:
    weights_bytes, kv_cache_bytes, graph_bytes: of one card, as the engine's log says (`tasks.engine.log`).
    kv_tokens: the engine's own figure in `/metrics` (`vllm:cache_config_info`), else its log's.
    engine_memory_peak_bytes: of its processes, by the driver, after the request: an engine gives nothing back.
    gpu_memory_peak_bytes: most in use on a card while the request ran, by anybody.
    host_peak_bytes: sum of the high-water marks of its processes' resident sets, by the kernel.

The transformers engine says weights (target and assistant) and peaks in gauges of `/metrics`. Where the driver shows
none of its processes, engine_memory_peak_bytes is the most that torch reserved. The row is of one start, so nothing of
an earlier attempt is taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from configs.steps.memory import CONDITION, MemoryStep
from tasks.client import RequestFailed
from tasks.context import Progress, StepContext
from tasks.engine.log import GRAPHS, KV_TOKENS, WEIGHTS, StartupMemory, startup_memory
from tasks.engine.server import Engine
from tasks.evals.progress import kv_tokens
from tasks.guards.speed import WITHOUT_GRAPHS
from tasks.guards.steadiness import log_unread, throttled
from tasks.guards.tokens import prompt_length, short_output
from tasks.host.process_group import peak_bytes
from tasks.meters import samples
from tasks.prompts import prompt_seed
from tasks.timing.timed import timed
from warehouse.ledger.steps import MEMORY_MODE, MEMORY_STARTS
from warehouse.ledger.verdicts import Judgement, judge

WEIGHTS_GAUGE = "transformers:weights_bytes"
CARD_PEAK_GAUGE = "transformers:gpu_memory_peak_reserved_bytes"
HOST_PEAK_GAUGE = "transformers:resident_memory_peak_bytes"


async def measure(ctx: StepContext, spec: MemoryStep) -> list[Judgement]:
    """Read what the start said, send the request, and look at the peaks."""
    engine = ctx.engine
    said = startup_memory("" if engine is None else await asyncio.to_thread(engine.log_text))
    ctx.tell(Progress(0, f"{CONDITION}: {spec.context_tokens(ctx.cell)} tokens"))
    seed = prompt_seed(CONDITION, ctx.measurement.name)
    prompt = await ctx.prompt(spec.prompts, seed, spec.context_tokens(ctx.cell), spec.output_tokens)
    load = await timed(ctx, [ctx.client.ready(ctx.client.request(prompt, spec.output_tokens, fixed=True))], 1)
    load.answered.require_all()
    try:
        page = await ctx.client.text("/metrics")  # after the request, whose peak it tells
    except RequestFailed:
        page = ""  # an engine without counters: the log may know, or a finding says that nobody does
    tokens, gauges = kv_tokens(page), _gauges(page)
    pids = [] if engine is None else await asyncio.to_thread(engine.pids)
    by_driver = await asyncio.to_thread(ctx.cards.most_bytes_of, pids) if ctx.cards else None
    by_kernel = await asyncio.to_thread(peak_bytes, pids)
    row = {
        "context_tokens": spec.context_tokens(ctx.cell),
        "output_tokens": spec.output_tokens,
        "weights_bytes": gauges.get(WEIGHTS_GAUGE, said.weights_bytes),
        "kv_cache_bytes": said.kv_cache_bytes,
        "kv_tokens": said.kv_tokens if tokens is None else tokens,
        "graph_bytes": said.graph_bytes,
        "engine_memory_peak_bytes": gauges.get(CARD_PEAK_GAUGE) if by_driver is None else by_driver,
        "host_peak_bytes": gauges.get(HOST_PEAK_GAUGE) if by_kernel is None else by_kernel,
        **{name: value for name, value in load.columns().items() if name in MEMORY_STARTS.column_names()},
    }
    await ctx.write(MEMORY_STARTS, [row])
    if ctx.cell.engine.kind == "transformers":
        unsaid: Sequence[str] = [] if WEIGHTS_GAUGE in gauges else [WEIGHTS]
    else:
        unsaid = [] if engine is None else _missed(said, engine, tokens)
    found = [
        log_unread(unsaid),
        prompt_length(row["context_tokens"], [row["prompt_tokens"]]),
        short_output(spec.output_tokens, [row["completion_tokens"]]),
        throttled([row]),
    ]
    return [judge(CONDITION, MEMORY_MODE, found)]


def _gauges(page: str) -> dict[str, int]:
    """Bytes by gauge, over its labels: weights of the target and of what drafts add up."""
    found: dict[str, int] = {}
    for name, _, value in samples(page):
        if name in (WEIGHTS_GAUGE, CARD_PEAK_GAUGE, HOST_PEAK_GAUGE):
            found[name] = found.get(name, 0) + int(value)
    return found


def _missed(said: StartupMemory, engine: Engine, tokens: int | None) -> Sequence[str]:
    """What the log should have said of such an engine, and didn't.

    vLLM on the CPU logs no memory of its weights. Graphs are captured on cards, unless an argument says otherwise.
    """
    argv = engine.command.argv
    without_graphs = "--enforce-eager" in argv or WITHOUT_GRAPHS.search(" ".join(argv)) is not None
    excused = {
        WEIGHTS: engine.command.on_cpu,
        KV_TOKENS: tokens is not None,
        GRAPHS: engine.command.on_cpu or without_graphs,
    }
    return [name for name in said.unsaid if not excused.get(name, False)]
