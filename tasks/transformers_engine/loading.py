"""Weights and tokenizer on one device, and what they take of memory; how tokens are drawn is the request's affair."""

from __future__ import annotations

import inspect
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from typing import Any, NamedTuple

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.generation import candidate_generator

from tasks.transformers_engine.arguments import Arguments

GEMMA4 = "SinglePositionMultiTokenCandidateGenerator"  # what drafts with Gemma 4's own assistants
UNREAD = ("input_ids", "model_kwargs")  # arguments that its constructor requires, calls deprecated, and never reads


def mend() -> None:
    """Let Gemma 4's assistants draft in transformers 5.19.0.

    There `generate` no longer passes `UNREAD`, and the constructor still has no defaults for them: each request
    ends with a TypeError. Other releases have no such class, pass them, or don't require them.
    """
    found = getattr(candidate_generator, GEMMA4, None)
    if found is None:
        return
    required = inspect.signature(found.__init__).parameters
    if all(name in required and required[name].default is inspect.Parameter.empty for name in UNREAD):
        found.__init__ = partialmethod(found.__init__, **dict.fromkeys(UNREAD))


HOOK = "_get_candidate_generator"  # what drafts is made there: the one private name of transformers that is used here


class Loaded(NamedTuple):
    """A target, what drafts for it, and the tokenizer of both."""

    model: Any
    assistant: Any | None
    tokenizer: Any
    device: str
    eos: frozenset[int]  # tokens that end an answer


def load(arguments: Arguments) -> Loaded:
    """Load everything. Raises SystemExit: this release of transformers drafts in a way that can't be counted."""
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
        assistant.generation_config = GenerationConfig(  # however sure it is of them: else K is another
            num_assistant_tokens=arguments.num_assistant_tokens,
            num_assistant_tokens_schedule=arguments.num_assistant_tokens_schedule,
            assistant_confidence_threshold=0.0,
        )
    return Loaded(model, assistant, tokenizer, device, eos)


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
    """Bytes of parameters and buffers; tied weights count once."""
    tensors = {tensor.data_ptr(): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def quiet() -> None:
    """No progress bars in the log, and no thread pool in the tokenizer: it is used from several threads."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers.utils.logging.disable_progress_bar()


class Memory:
    """Gauges of `/metrics`, in bytes: weights, and peaks since the engine's start.

    On a card they are torch's own account, without what the driver adds for the process, some 500 MB. Requests that ask
    for probabilities keep all logits and are left out. Elsewhere there is only the process's peak resident memory.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._device = torch.device(loaded.device)
        self._weights = {"target": _bytes_of(loaded.model)}
        if loaded.assistant is not None:
            self._weights["assistant"] = _bytes_of(loaded.assistant)
        self._allocated = self._reserved = 0

    @contextmanager
    def of_request(self, *, counts: bool) -> Iterator[None]:
        """Around one request: its peak is kept if it `counts`."""
        if self._device.type != "cuda":
            yield
            return
        torch.cuda.reset_peak_memory_stats(self._device)
        yield
        if counts:
            self._allocated = max(self._allocated, torch.cuda.max_memory_allocated(self._device))
            self._reserved = max(self._reserved, torch.cuda.max_memory_reserved(self._device))

    def gauges(self) -> dict[str, float]:
        """Name to bytes; on a card without a plain request so far there is no peak."""
        found = {f'transformers:weights_bytes{{of="{name}"}}': float(size) for name, size in self._weights.items()}
        if self._allocated:
            found["transformers:gpu_memory_peak_allocated_bytes"] = float(self._allocated)
            found["transformers:gpu_memory_peak_reserved_bytes"] = float(self._reserved)
        # KiB on Linux (getrusage(2))
        found["transformers:resident_memory_peak_bytes"] = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return found
