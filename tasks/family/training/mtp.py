"""The target's MTP assistant: Gemma4Assistant, 2 layers, hidden 32, reading the target's own keys and values.

At draft step k the assistant stands at position t, sees token t+1+k and the state it left at step k-1 (at
step 0: the target's last hidden state), and predicts token t+2+k. Position and keys stay those of t, as in
vLLM's proposer.
"""

import torch
from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM

from tasks.family.training.batches import Batch, batch_for_step
from tasks.family.training.fit import Job, Plan, Report, Trained, fit, parameter_count
from tasks.family.training.saving import save
from tasks.family.training.target import (
    DRAFTER_MIX,
    SLIDING_WINDOW,
    capped_cross_entropy,
    load_target,
    start_weights,
    text_config,
)
from tasks.family.training.tokens import BOS_ID, END_OF_TURN_ID, PAD_ID, build_tokenizer

HIDDEN = 32
LAYERS = 2
DRAFT_STEPS = 4
"""Trained for K up to 4."""

LEARNING_RATE = 3e-3
MATRIX_LEARNING_RATE = 8e-3
SEED = 3


def train(job: Job, report: Report) -> Trained:
    """Trains the assistant on the frozen target and saves it to `job.out`."""
    torch.manual_seed(SEED)
    tokenizer, target = build_tokenizer(), load_target(job.target)
    config = Gemma4AssistantConfig(
        text_config=text_config(HIDDEN, LAYERS),
        backbone_hidden_size=target.config.hidden_size,
        use_ordered_embeddings=False,
        tie_word_embeddings=True,
        bos_token_id=BOS_ID,
        eos_token_id=END_OF_TURN_ID,
        pad_token_id=PAD_ID,
    )
    assistant = Gemma4AssistantForCausalLM(config)
    start_weights(assistant, HIDDEN)
    parameters = dict(assistant.named_parameters())

    def loss_of_step(step: int) -> torch.Tensor:
        return draft_loss(assistant, target, batch_for_step(tokenizer, DRAFTER_MIX, SEED, step, job.steps))

    loss = fit(parameters, Plan(job.steps, LEARNING_RATE, MATRIX_LEARNING_RATE, 30), loss_of_step, report)
    save(assistant, tokenizer, job.out)
    return Trained(parameter_count(parameters), loss / DRAFT_STEPS, {})


def draft_loss(assistant: Gemma4AssistantForCausalLM, target: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Sum over the draft steps of the cross-entropy on completion tokens."""
    rows, length = batch.tokens.shape
    with torch.no_grad():
        read = target.model(batch.tokens, return_shared_kv_states=True, use_cache=False)
        embedded = target.model.embed_tokens(batch.tokens)
    shared = {kind: (kv[0], kv[1]) for kind, kv in read.shared_kv_states.items()}
    positions = torch.arange(length).expand(rows, length)
    masks = attention_masks(rows, length)
    state, loss = read.last_hidden_state, torch.zeros(())
    for step in range(DRAFT_STEPS):
        seen = torch.roll(embedded, -(1 + step), 1)
        drafted = assistant.model(
            inputs_embeds=assistant.pre_projection(torch.cat([seen, state], -1)),
            attention_mask=masks,
            position_ids=positions,
            shared_kv_states=shared,
            use_cache=False,
        ).last_hidden_state
        state = assistant.post_projection(drafted)
        wanted = batch.learnt[:, 2 + step :]
        logits = assistant.lm_head(drafted[:, : length - 2 - step][wanted])
        loss = loss + capped_cross_entropy(logits, batch.tokens[:, 2 + step :][wanted])
    return loss


def attention_masks(rows: int, length: int) -> dict[str, torch.Tensor]:
    """Boolean masks (rows, 1, length, length) by attention type."""
    index = torch.arange(length)
    causal = index[None, :] <= index[:, None]
    near = causal & (index[:, None] - index[None, :] < SLIDING_WINDOW)
    wide = {"full_attention": causal, "sliding_attention": near}
    return {kind: mask[None, None].expand(rows, 1, length, length) for kind, mask in wide.items()}
