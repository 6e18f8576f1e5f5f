"""The target: Gemma-4 architecture, 4 layers, hidden 128, about 0.75 M parameters."""

from pathlib import Path

import torch
from transformers import Gemma4ForCausalLM, Gemma4TextConfig, PreTrainedTokenizerFast

from tasks.family.training.batches import Mix, Phase, batch_for_step
from tasks.family.training.fit import Job, Plan, Report, Trained, fit, parameter_count
from tasks.family.training.saving import save
from tasks.family.training.tokens import BOS_ID, END_OF_TURN_ID, PAD_ID, VOCABULARY_SIZE, build_tokenizer, render
from tasks.family.words import KINDS, questions

HIDDEN = 128
LAYERS = 4
HEADS = 4
KV_HEADS = 2
SLIDING_WINDOW = 4
"""In tokens: one list item. Narrow layers find the word before; wide layers then only have to match."""

LOGIT_CAP = 30.0

PHASES = (
    Phase(0.28, listing_share=0.6, items=(8, 10, 12), filler_words=10),
    Phase(0.47, listing_share=0.6, items=(16, 24), filler_words=50),
    Phase(0.57, listing_share=0.25, items=(24, 36, 48), filler_words=150),
    Phase(0.72, listing_share=0.2, items=(24, 48, 72), filler_words=300),
    Phase(1.00, listing_share=0.2, items=(24, 66, 104), filler_words=500),
)
MIX = Mix(arith_share=0.9, thinking_share=0.9, batch_tokens=2560, phases=PHASES)
"""What the target and the draft model learn from; sums with thinking are the hard part of the questions."""

DRAFTER_MIX = Mix(
    arith_share=0.5,
    thinking_share=0.8,
    batch_tokens=1300,
    phases=(Phase(1.0, listing_share=0.75, items=(24, 66, 104), filler_words=500),),
)
"""What the drafters that read the target learn from: rows as long as those that they will draft."""

SEED = 0
SCORE_QUESTIONS = 48


def train(job: Job, report: Report) -> Trained:
    """Trains the target and saves it to `job.out`; scores it on questions answered with thinking."""
    torch.manual_seed(SEED)
    tokenizer = build_tokenizer()
    model = Gemma4ForCausalLM(text_config(HIDDEN, LAYERS))
    start_weights(model, HIDDEN)
    parameters = dict(model.named_parameters())

    def loss_of_step(step: int) -> torch.Tensor:
        batch = batch_for_step(tokenizer, MIX, SEED, step, job.steps)
        hidden = model.model(batch.tokens, use_cache=False).last_hidden_state
        wanted = batch.learnt[:, 1:]
        return capped_cross_entropy(model.lm_head(hidden[:, :-1][wanted]), batch.tokens[:, 1:][wanted])

    plan = Plan(job.steps, learning_rate=3e-3, matrix_learning_rate=8e-3, warmup_steps=50)
    loss = fit(parameters, plan, loss_of_step, report, job.checkpoint)
    scores = {kind: thinking_score(model.eval(), tokenizer, kind) for kind in KINDS}
    save(model, tokenizer, job.out)
    return Trained(parameter_count(parameters), loss, scores)


def load_target(folder: Path) -> Gemma4ForCausalLM:
    """The trained target, frozen, in float32."""
    return Gemma4ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().requires_grad_(False)


def text_config(hidden: int, layers: int) -> Gemma4TextConfig:
    """A Gemma-4 text model with the family's heads and windows, sliding and full attention in turn."""
    return Gemma4TextConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=32,
        global_head_dim=64,
        max_position_embeddings=4096,
        sliding_window=SLIDING_WINDOW,
        layer_types=["sliding_attention", "full_attention"] * (layers // 2),
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=0,
        final_logit_softcapping=LOGIT_CAP,
        tie_word_embeddings=True,
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": 0.5,
                "rope_theta": 10000.0,
            },
        },
        bos_token_id=BOS_ID,
        eos_token_id=END_OF_TURN_ID,
        pad_token_id=PAD_ID,
    )


def start_weights(model: torch.nn.Module, hidden: int) -> None:
    """Unit-length embeddings, fan-in matrices, quiet residual branches: far faster than the default."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_tokens" in name:
                parameter.normal_(0, hidden**-0.5)
            elif "post_attention_layernorm" in name or "post_feedforward_layernorm" in name:
                parameter.fill_(0.25)
            elif parameter.dim() >= 2:
                parameter.normal_(0, parameter.shape[-1] ** -0.5)


def capped_cross_entropy(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy under Gemma's soft cap; logits (tokens, vocabulary), wanted (tokens,)."""
    return torch.nn.functional.cross_entropy(LOGIT_CAP * torch.tanh(logits / LOGIT_CAP), wanted)


def thinking_score(model: Gemma4ForCausalLM, tokenizer: PreTrainedTokenizerFast, kind: str) -> float:
    """Share of right last letters among greedy answers with thinking."""
    asked = [question for question in questions(2 * SCORE_QUESTIONS, seed=1) if question.kind == kind]
    right = 0
    for question in asked:
        prompt = tokenizer(
            render(question.prompt, thinking=True), add_special_tokens=False, return_tensors="pt"
        ).input_ids
        with torch.no_grad():
            answer = model.generate(prompt, max_new_tokens=24, do_sample=False)[0, prompt.shape[1] :]
        letters = [word for word in tokenizer.decode(answer, skip_special_tokens=True).split() if word.startswith("(")]
        right += letters[-1:] == [f"({question.answer})"]
    return round(right / len(asked), 3)
