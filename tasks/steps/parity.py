"""Parity: greedy outputs of the same prompts with the technique off, on, and off again.

"Off" is the AR cell's first pass, "on" is this cell's pass, and "off again" is the AR cell's second pass. Without this
control a divergence says nothing. It is made in another engine start, as "on" is, unless the sweep's design has only
one. Consolidation compares them token by token. How sure the model was is stored with each token, so that a divergence
can be told from a floating-point tie.
"""

from __future__ import annotations

from configs.steps.parity import ParityStep
from tasks.client import RequestFailed
from tasks.context import Progress, StepContext
from tasks.guards.text import improbable_text
from tasks.guards.tokens import short_output
from tasks.prompts import prompt_seed
from warehouse.ledger.steps import PARITY_OUTPUTS
from warehouse.ledger.verdicts import Finding, Judgement, Reason, judge


async def measure(ctx: StepContext, spec: ParityStep) -> list[Judgement]:
    """Answer every prompt greedily, one at a time: batching changes the order of floating-point sums."""
    if not ctx.cell.technique.greedy:
        sentence = f"{ctx.cell.technique.name} has no greedy decoding: nothing to compare token for token"
        return [judge(None, None, [Finding(Reason.NO_GREEDY, "suspect", sentence)])]
    passes = range(ctx.measurement.visit.number - 1, ctx.measurement.visit.number - 1 + ctx.measurement.passes)
    kept = await ctx.resume(PARITY_OUTPUTS, ("pass", "prompt_id"))
    done = {(row["pass"], row["prompt_id"]) for row in kept}
    asked = [(pass_index, index) for pass_index in passes for index in range(spec.n_prompts)]
    for number, (pass_index, index) in enumerate(asked, 1):
        prompt_id = f"parity-{index:02d}"
        if (pass_index, prompt_id) in done:
            continue
        prompt = await ctx.prompt(spec.prompts, prompt_seed(prompt_id), spec.context_tokens, spec.output_tokens)
        body = ctx.client.request(prompt, spec.output_tokens, fixed=True, token_ids=True, logprobs="top2")
        reply = await ctx.client.complete(body)
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
        line = f"pass {pass_index + 1}, prompt {index + 1}/{spec.n_prompts}"
        ctx.tell(Progress(100 * number / len(asked), line, reply.completion_tokens / reply.wall_s))
    short = short_output(spec.output_tokens, [len(row["token_ids"]) for row in kept])
    is_real = ctx.cell.model.weights == "real"
    return [judge(None, None, [short, improbable_text([row.get("mean_logprob") for row in kept], is_real=is_real)])]
