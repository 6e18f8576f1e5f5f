"""On request only: a DiffusionGemma sibling, two experts, 1.1 M parameters, for the lookup questions.

Objective: the encoder reads the clean prefix; the decoder sees a canvas of 32 tokens of which a random share
is replaced by random tokens, and learns the clean canvas. Every second step conditions on its own first
guess, every fourth batch is a second canvas. transformers has the model but no loss, and its generation
settings lack values that vLLM reads: both are given here.
"""

import json
import random

import torch
from transformers import (
    DiffusionGemmaConfig,
    DiffusionGemmaTextConfig,
    Gemma4VisionConfig,
    PreTrainedTokenizerFast,
)
from transformers.models.diffusion_gemma.modeling_diffusion_gemma import DiffusionGemmaForBlockDiffusion

from tasks.family.training.fit import Job, Plan, Report, Trained, fit, parameter_count
from tasks.family.training.saving import save
from tasks.family.training.target import start_weights
from tasks.family.training.tokens import (
    BOS_ID,
    END_OF_TURN,
    END_OF_TURN_ID,
    PAD_ID,
    VOCABULARY_SIZE,
    build_tokenizer,
    render,
)
from tasks.family.words import COLORS, draw_question, worked_answer

HIDDEN = 128
LAYERS = 4
CANVAS_TOKENS = 32
ROWS = 24
THINKING_SHARE = 0.8
NOISE_ONLY_SHARE = 0.3
"""Share of rows whose whole canvas is noise, as at the start of an answer."""

LEARNING_RATE = 2e-3
MATRIX_LEARNING_RATE = 5e-3
SEED = 13

GENERATION = {
    "bos_token_id": BOS_ID,
    "eos_token_id": END_OF_TURN_ID,
    "pad_token_id": PAD_ID,
    "max_denoising_steps": 16,
    "stability_threshold": 1,
    "confidence_threshold": 0.05,
    "t_min": 0.4,
    "t_max": 0.8,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
}


def train(job: Job, report: Report) -> Trained:
    """Trains the model and saves it to `job.out`."""
    torch.manual_seed(SEED)
    tokenizer = build_tokenizer()
    model = DiffusionGemmaForBlockDiffusion(model_config())
    start_weights(model, HIDDEN)
    parameters = {name: parameter for name, parameter in model.named_parameters() if "vision" not in name}

    def loss_of_step(step: int) -> torch.Tensor:
        noise = torch.Generator().manual_seed(SEED * 1_000_000 + step)
        prompts, answers = draw_rows(tokenizer, random.Random(f"diffusion {SEED} {step}"))
        return canvas_loss(model, prompts, answers, step, noise)

    loss = fit(parameters, Plan(job.steps, LEARNING_RATE, MATRIX_LEARNING_RATE, 50), loss_of_step, report)
    save(model.eval(), tokenizer, job.out)
    (job.out / "generation_config.json").write_text(json.dumps(GENERATION, indent=1))
    return Trained(parameter_count(parameters), loss, {})


def model_config() -> DiffusionGemmaConfig:
    """Text model as small as the target; the vision tower, which is never used, smaller still."""
    text = DiffusionGemmaTextConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        global_head_dim=64,
        max_position_embeddings=4096,
        sliding_window=64,
        layer_types=["sliding_attention", "full_attention"] * (LAYERS // 2),
        num_experts=2,
        top_k_experts=1,
        moe_intermediate_size=64,
        bos_token_id=BOS_ID,
        eos_token_id=END_OF_TURN_ID,
        pad_token_id=PAD_ID,
    )
    vision = Gemma4VisionConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        position_embedding_size=64,
    )
    return DiffusionGemmaConfig(
        text_config=text,
        vision_config=vision,
        boi_token_id=VOCABULARY_SIZE - 3,
        eoi_token_id=VOCABULARY_SIZE - 2,
        image_token_id=VOCABULARY_SIZE - 1,
        canvas_length=CANVAS_TOKENS,
        bos_token_id=BOS_ID,
        eos_token_id=END_OF_TURN_ID,
        pad_token_id=PAD_ID,
    )


def draw_rows(tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Lookup prompts, all of one length, and their answers, filled up with colours to two canvases."""
    thinking = rng.random() < THINKING_SHARE
    drawn = [draw_question("lookup", rng) for _ in range(ROWS)]
    prompts = [render(question.prompt, thinking=thinking) for question in drawn]
    idle = "\n" + "".join(f" {color}" for color in COLORS * 4)
    answers = [worked_answer(question, thinking=thinking) + END_OF_TURN + idle for question in drawn]
    prompt_ids, answer_ids = (tokenizer(texts, add_special_tokens=False).input_ids for texts in (prompts, answers))
    return torch.tensor(prompt_ids), torch.tensor([ids[: 2 * CANVAS_TOKENS] for ids in answer_ids])


def canvas_loss(
    model: DiffusionGemmaForBlockDiffusion,
    prompts: torch.Tensor,
    answers: torch.Tensor,
    step: int,
    noise: torch.Generator,
) -> torch.Tensor:
    """Cross-entropy of one canvas per row, all positions."""
    prefix, clean = prompts, answers[:, :CANVAS_TOKENS]
    if step % 4 == 3:
        prefix, clean = torch.cat([prompts, clean], 1), answers[:, CANVAS_TOKENS:]
    rows = len(clean)
    share = torch.rand(rows, 1, generator=noise) * 0.95 + 0.05
    share[torch.rand(rows, 1, generator=noise) < NOISE_ONLY_SHARE] = 1.0
    replaced = torch.rand(clean.shape, generator=noise) < share
    canvas = torch.where(replaced, torch.randint(0, VOCABULARY_SIZE, clean.shape, generator=noise), clean)
    positions = torch.arange(prefix.shape[1], prefix.shape[1] + CANVAS_TOKENS).expand(rows, CANVAS_TOKENS)
    asked = {"input_ids": prefix, "decoder_input_ids": canvas, "decoder_position_ids": positions}
    guess = None
    if step % 2:
        with torch.no_grad():
            guess = model(**asked).logits
    logits = model(**asked, self_conditioning_logits=guess).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY_SIZE), clean.reshape(-1))
