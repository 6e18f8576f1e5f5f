"""A DFlash drafter (K=7): 2 layers in Qwen3 layout that fill a block of masked tokens in one pass.

The block (the last known token, then K masks) attends to itself in both directions and, in every layer, to
the target's hidden states of layers 0 to 2, projected once. Embedding and output matrix are the target's own.
Written as functions over the checkpoint's own tensor names: what is trained is what is saved.
"""

import json
import random

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy, linear, pad, silu

from tasks.family.training.batches import Batch, batch_for_step
from tasks.family.training.fit import Job, Plan, Report, Trained, fit, parameter_count
from tasks.family.training.target import DRAFTER_MIX, HIDDEN, load_target
from tasks.family.training.tokens import BOS_ID, END_OF_TURN_ID, MASK_ID, VOCABULARY_SIZE, build_tokenizer

DRAFT_TOKENS = 7
LAYERS = 2
TARGET_LAYERS = (0, 1, 2)
HEADS, KV_HEADS, HEAD_DIM = 4, 1, 64
ROPE_THETA = 10000.0
NORM_EPSILON = 1e-6

ANCHORS_PER_ROW = 16
"""Places per training row at which a block is drafted."""

PLACE_DECAY = 0.8
"""A drafted token counts only if all before it were right: early ones matter more."""

LEARNING_RATE = 3e-3
MATRIX_LEARNING_RATE = 1.5e-2
SEED = 5

Weights = dict[str, torch.Tensor]


def train(job: Job, report: Report) -> Trained:
    """Trains the drafter on the frozen target and saves it to `job.out`."""
    torch.manual_seed(SEED)
    tokenizer, target = build_tokenizer(), load_target(job.target)
    embedding = target.get_input_embeddings().weight
    weights = start()

    def loss_of_step(step: int) -> torch.Tensor:
        batch = batch_for_step(tokenizer, DRAFTER_MIX, SEED, step, job.steps)
        with torch.no_grad():
            states = target.model(batch.tokens, output_hidden_states=True, use_cache=False).hidden_states
        features = torch.cat([states[layer + 1] for layer in TARGET_LAYERS], -1)
        return block_loss(weights, embedding, features, batch, random.Random(f"anchors {step}"))

    loss = fit(weights, Plan(job.steps, LEARNING_RATE, MATRIX_LEARNING_RATE, 30), loss_of_step, report)
    saved = {name: weight.detach().to(torch.bfloat16).contiguous() for name, weight in weights.items()}
    save_file(saved, job.out / "model.safetensors", metadata={"format": "pt"})
    (job.out / "config.json").write_text(json.dumps(config(), indent=1))
    tokenizer.save_pretrained(job.out)
    return Trained(parameter_count(weights), loss, {})


def start() -> Weights:
    """Fresh weights under the checkpoint's names."""
    inner = 2 * HIDDEN
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (HIDDEN, HIDDEN * len(TARGET_LAYERS)),
        "hidden_norm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
    }
    for layer in (f"layers.{index}." for index in range(LAYERS)):
        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            shapes[f"{layer}self_attn.{name}_proj.weight"] = (heads * HEAD_DIM, HIDDEN)
        shapes |= {
            f"{layer}self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{layer}self_attn.q_norm.weight": (HEAD_DIM,),
            f"{layer}self_attn.k_norm.weight": (HEAD_DIM,),
            f"{layer}mlp.gate_proj.weight": (inner, HIDDEN),
            f"{layer}mlp.up_proj.weight": (inner, HIDDEN),
            f"{layer}mlp.down_proj.weight": (HIDDEN, inner),
            f"{layer}input_layernorm.weight": (HIDDEN,),
            f"{layer}post_attention_layernorm.weight": (HIDDEN,),
        }
    return {name: _start_one(name, shape).requires_grad_() for name, shape in shapes.items()}


def _start_one(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    if len(shape) == 1:
        return torch.ones(shape)
    quiet = 0.5 if "o_proj" in name or "down_proj" in name else 1.0
    return torch.randn(shape) * quiet * shape[-1] ** -0.5


def block_loss(
    weights: Weights, embedding: torch.Tensor, features: torch.Tensor, batch: Batch, rng: random.Random
) -> torch.Tensor:
    """Cross-entropy of the masked tokens after random anchors; features (rows, length, 3 x hidden)."""
    rows, length = batch.tokens.shape
    anchors = torch.tensor(
        [[rng.randrange(start, end - 1) for _ in range(ANCHORS_PER_ROW)] for start, end in batch.spans]
    )
    positions = anchors[..., None] + torch.arange(DRAFT_TOKENS + 1)
    padded = pad(batch.tokens, (0, DRAFT_TOKENS + 1))[:, None].expand(rows, ANCHORS_PER_ROW, -1)
    block = torch.gather(padded, 2, positions)
    wanted, inside = (
        block[..., 1:],
        positions[..., 1:] < torch.tensor([end for _, end in batch.spans])[:, None, None],
    )
    masked = torch.cat([block[..., :1], torch.full_like(wanted, MASK_ID)], -1)
    known = (torch.arange(length) < anchors[..., None])[:, :, None].expand(-1, -1, DRAFT_TOKENS + 1, -1)
    visible = torch.cat([known, torch.ones(*positions.shape, DRAFT_TOKENS + 1, dtype=torch.bool)], -1)
    context = rms_norm(linear(features, weights["fc.weight"]), weights["hidden_norm.weight"])
    hidden = embedding[masked]
    for index in range(LAYERS):
        layer = {name.removeprefix(f"layers.{index}."): w for name, w in weights.items() if f"layers.{index}." in name}
        hidden = attend(layer, hidden, positions, context, visible)
        hidden = hidden + feed_forward(layer, rms_norm(hidden, layer["post_attention_layernorm.weight"]))
    logits = linear(rms_norm(hidden[:, :, 1:][inside], weights["norm.weight"]), embedding)
    losses = cross_entropy(logits, wanted[inside], reduction="none")
    importance = (PLACE_DECAY ** torch.arange(DRAFT_TOKENS)).expand(inside.shape)[inside]
    return (losses * importance).sum() / importance.sum()


def attend(
    layer: Weights,
    hidden: torch.Tensor,
    positions: torch.Tensor,
    context: torch.Tensor,
    visible: torch.Tensor,
) -> torch.Tensor:
    """Attention of each block to the context and to itself, added to `hidden`.

    Args:
        layer: The layer's weights.
        hidden: (rows, anchors, block, hidden).
        positions: (rows, anchors, block).
        context: Projected target features, (rows, length, hidden).
        visible: (rows, anchors, block, length + block).
    """
    length = context.shape[1]
    normed = rms_norm(hidden, layer["input_layernorm.weight"])
    query = linear(normed, layer["self_attn.q_proj.weight"]).unflatten(-1, (HEADS, HEAD_DIM))
    query = rotate(rms_norm(query, layer["self_attn.q_norm.weight"]), positions)
    key, value = keys_values(layer, normed, positions)
    past_key, past_value = keys_values(layer, context, torch.arange(length)[None])
    scores = torch.cat(
        [torch.einsum("baqhd,bld->bahql", query, past_key), torch.einsum("baqhd,bapd->bahqp", query, key)], -1
    )
    shares = (scores * HEAD_DIM**-0.5).masked_fill(~visible[:, :, None], -1e9).softmax(-1)
    mixed = torch.einsum("bahql,bld->baqhd", shares[..., :length], past_value)
    mixed = mixed + torch.einsum("bahqp,bapd->baqhd", shares[..., length:], value)
    return hidden + linear(mixed.flatten(-2), layer["self_attn.o_proj.weight"])


def keys_values(layer: Weights, source: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The single key and value head, (..., head_dim) each."""
    key = rms_norm(linear(source, layer["self_attn.k_proj.weight"]), layer["self_attn.k_norm.weight"])
    return rotate(key[..., None, :], positions)[..., 0, :], linear(source, layer["self_attn.v_proj.weight"])


def feed_forward(layer: Weights, hidden: torch.Tensor) -> torch.Tensor:
    """SwiGLU."""
    gate, up = linear(hidden, layer["mlp.gate_proj.weight"]), linear(hidden, layer["mlp.up_proj.weight"])
    return linear(silu(gate) * up, layer["mlp.down_proj.weight"])


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Root-mean-square norm over the last dimension."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + NORM_EPSILON) * weight


def rotate(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotary embedding in halves; x (..., heads, head_dim), positions (...)."""
    frequencies = ROPE_THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = positions[..., None, None] * frequencies
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def config() -> dict[str, object]:
    """config.json as vLLM's DFlash loader reads it."""
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": NORM_EPSILON,
        "rope_theta": ROPE_THETA,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
        "layer_types": ["full_attention"] * LAYERS,
        "block_size": DRAFT_TOKENS + 1,
        "dflash_config": {"mask_token_id": MASK_ID, "target_layer_ids": list(TARGET_LAYERS)},
        "bos_token_id": BOS_ID,
        "eos_token_id": END_OF_TURN_ID,
    }
