"""Parity: greedy outputs of the same prompts with the technique off, on, and off again.

Each cell has an engine of its own, so "off" is the AR cell's first pass, "on" is this cell's pass, and "off again" is
the AR cell's second pass: without this control a divergence says nothing. Consolidation compares them token by token.
How sure the model was is stored with each token, so that a divergence can be told from a floating-point tie.
"""

from __future__ import annotations

from configs.steps.parity import ParityStep
from tasks.client import RequestFailed
from tasks.context import Progress, StepContext
from tasks.guards.finding import Finding, Judgement, judge
from tasks.guards.text import improbable_text
from tasks.prompts import prompt_seed
from warehouse.steps.parity import PARITY_OUTPUTS
from warehouse.verdicts import Reason


async def measure(ctx: StepContext, spec: ParityStep) -> list[Judgement]:
    """Answer every prompt greedily, one at a time: batching changes the order of floating-point sums."""
    if not ctx.cell.technique.greedy:
        sentence = f"{ctx.cell.technique.name} has no greedy decoding: nothing to compare token for token"
        return [judge(None, None, [Finding(Reason.NO_GREEDY, "suspect", sentence)])]
    passes = spec.passes(ctx.cell)
    kept = await ctx.resume(PARITY_OUTPUTS, ("pass", "prompt_id"))
    done = {(row["pass"], row["prompt_id"]) for row in kept}
    total = passes * spec.n_prompts
    for number in range(total):
        pass_index, index = divmod(number, spec.n_prompts)
        prompt_id = f"parity-{index:02d}"
        if (pass_index, prompt_id) in done:
            continue
        prompt = await ctx.prompt(spec.prompts, prompt_seed(prompt_id), spec.context_tokens, spec.output_tokens)
        asked = ctx.client.request(prompt, spec.output_tokens, fixed=True, token_ids=True, logprobs="top2")
        reply = await ctx.client.complete(asked)
        if reply.token_ids is None:
            raise RequestFailed("the engine sent no token_ids: parity needs `return_token_ids` (vLLM 0.10.2 or newer)")
        row = {
            "prompt_id": prompt_id,
            "pass": pass_index,
            "token_ids": reply.token_ids,
            "finish_reason": reply.finish_reason,
            "text": reply.reasoning + reply.body,
            "top2_gap": reply.top2_gap,
            "mean_logprob": reply.mean_logprob,
        }
        await ctx.write(PARITY_OUTPUTS, [row])
        kept.append(row)
        rate = reply.completion_tokens / reply.wall_s
        ctx.tell(
            Progress(100 * (number + 1) / total, f"pass {pass_index + 1}, prompt {index + 1}/{spec.n_prompts}", rate)
        )
    is_real = ctx.cell.model.weights == "real"
    return [judge(None, None, [improbable_text([row.get("mean_logprob") for row in kept], is_real=is_real)])]
