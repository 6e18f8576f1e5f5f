"""Weights on one device, and the tokenizer; nothing of the checkpoint decides how tokens are drawn."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from tasks.transformers_engine.arguments import Arguments
from tasks.transformers_engine.mended import mend

HOOK = "_get_candidate_generator"
"""Where `generate` makes what drafts: the one private name of transformers that is used here (`generation.py`)."""


class Loaded(NamedTuple):
    """A target, what drafts for it, and the tokenizer of both. Sizes are bytes of parameters and buffers."""

    model: Any
    assistant: Any | None
    tokenizer: Any
    device: str
    eos: frozenset[int]
    """Tokens that end an answer."""
    model_bytes: int
    assistant_bytes: int | None


def load(arguments: Arguments) -> Loaded:
    """Load everything; it takes as long as reading the weights takes.

    Raises:
        SystemExit: this release of transformers drafts in another way, so that nothing could be counted.
    """
    device = arguments.device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, revision=arguments.revision)
    model = _model(arguments.model, arguments.revision, arguments, device)
    eos = _eos_of(model, tokenizer)
    if arguments.k is not None and not hasattr(model, HOOK):
        raise SystemExit(f"transformers {transformers.__version__} has no {HOOK}: its drafts can't be counted")
    # the checkpoint's own defaults would sample, or end where `ignore_eos` says not to
    model.generation_config = GenerationConfig()
    assistant = None
    if arguments.assistant_model is not None:
        mend()
        assistant = _model(arguments.assistant_model, arguments.assistant_revision, arguments, device)
        assistant.generation_config = drafting(arguments.num_assistant_tokens)
    return Loaded(
        model, assistant, tokenizer, device, eos, _bytes_of(model), None if assistant is None else _bytes_of(assistant)
    )


def drafting(tokens: int | None) -> Any:
    """How an assistant drafts: always as many tokens, however sure it is of them, so that K is a number."""
    return GenerationConfig(
        num_assistant_tokens=tokens, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0
    )


def versions() -> str:
    """What decides speed and answers: transformers and torch."""
    return f"{transformers.__version__} (torch {torch.__version__})"


def _model(source: str, revision: str | None, arguments: Arguments, device: str) -> Any:
    kernel = {} if arguments.attn_implementation is None else {"attn_implementation": arguments.attn_implementation}
    print(f"loading {source}", flush=True)
    loaded = AutoModelForCausalLM.from_pretrained(source, revision=revision, dtype=arguments.dtype, **kernel)
    return loaded.to(device).eval()


def _eos_of(model: Any, tokenizer: Any) -> frozenset[int]:
    """As the checkpoint's generation config says, else its tokenizer: several, maybe."""
    said = model.generation_config.eos_token_id
    said = tokenizer.eos_token_id if said is None else said
    return frozenset([said] if isinstance(said, int) else said or [])


def _bytes_of(model: Any) -> int:
    """Tied weights count once."""
    tensors = {tensor.data_ptr(): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def quiet() -> None:
    """No progress bars in the log, and no thread pool in the tokenizer: it is used from several threads."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers.utils.logging.disable_progress_bar()
