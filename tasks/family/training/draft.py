"""The draft model for vLLM's draft_model: Qwen3, 2 layers, hidden 64, trained on the target's rows.

Qwen3 because vLLM wants all drafting layers in one KV-cache group, which Gemma-4's two attention types are
not.
"""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tasks.family.training.batches import batch_for_step
from tasks.family.training.fit import Job, Plan, Report, Trained, fit, parameter_count
from tasks.family.training.saving import save
from tasks.family.training.target import MIX
from tasks.family.training.tokens import BOS_ID, END_OF_TURN_ID, PAD_ID, VOCABULARY_SIZE, build_tokenizer

HIDDEN = 64
LAYERS = 2
LEARNING_RATE = 3e-3
MATRIX_LEARNING_RATE = 8e-3
SEED = 7


def train(job: Job, report: Report) -> Trained:
    """Trains the draft model and saves it to `job.out`."""
    torch.manual_seed(SEED)
    tokenizer = build_tokenizer()
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY_SIZE,
            hidden_size=HIDDEN,
            intermediate_size=2 * HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            bos_token_id=BOS_ID,
            eos_token_id=END_OF_TURN_ID,
            pad_token_id=PAD_ID,
        )
    )
    start_weights(model)
    parameters = dict(model.named_parameters())

    def loss_of_step(step: int) -> torch.Tensor:
        batch = batch_for_step(tokenizer, MIX, SEED, step, job.steps)
        hidden = model.model(batch.tokens, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[:, :-1][batch.learnt[:, 1:]])
        return torch.nn.functional.cross_entropy(logits, batch.tokens[:, 1:][batch.learnt[:, 1:]])

    loss = fit(parameters, Plan(job.steps, LEARNING_RATE, MATRIX_LEARNING_RATE, 50), loss_of_step, report)
    save(model, tokenizer, job.out)
    return Trained(parameter_count(parameters), loss, {})


def start_weights(model: torch.nn.Module) -> None:
    """Embeddings as loud as the branches, fan-in matrices, a last norm that makes first logits about 1."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_tokens" in name:
                parameter.normal_(0, 1.0)
            elif name == "model.norm.weight":
                parameter.fill_(HIDDEN**-0.5)
            elif parameter.dim() == 2:
                quiet = 0.5 if "o_proj" in name or "down_proj" in name else 1.0
                parameter.normal_(0, quiet * parameter.shape[1] ** -0.5)
