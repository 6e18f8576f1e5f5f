"""A cell and what it is made of: model, technique, precision, engine, GPU and serving arguments.

`cell_key` names a cell in the store for ever: every field that changes what is served is part of it, nothing else is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from math import prod
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, JsonValue

from configs.frozen import Frozen, Grown
from configs.kv_cache import KV_FORMATS, UNKNOWN_FORMAT, KvCacheLayout, KvFormat
from configs.methods import ALIASES, METHODS, SCHEDULE, Method, known
from configs.vllm_arguments import PINNED, given_by, number_of
from configs.without_weights import CheckpointShape, ReplayedAcceptance


class Engine(Grown):
    """What serves the model: `command` starts a user's own build, in a container maybe, or `environment` has it.

    `environment` names a pinned environment of ours, or with a / the path of a user's own virtual environment. With
    neither, `vllm` of the PATH serves: that of the image on rented machines. Of kind transformers, all three name a
    Python that has torch and transformers, `python3` if none does; what serves is ours.
    """

    name: str
    kind: Literal["vllm", "transformers"] = "vllm"
    environment: str | None = None
    command: tuple[str, ...] | None = None
    image: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    start_timeout_s: float = Field(600, gt=0)
    draft_args: tuple[str, ...] = Field((), description="behind `args` where cells draft; vLLM refuses some elsewhere")

    later: ClassVar[frozenset[str]] = frozenset({"draft_args"})

    @property
    def on_cpu(self) -> bool:
        """Whether it is the environment of ours whose vLLM computes on the processor, even where there is a card."""
        return self.command is None and self.environment == "engine-cpu"

    @property
    def is_pinned(self) -> bool:
        """Whether it is the release whose arguments we know: our environment's, or the image of that release."""
        release = (self.image or "").partition("@")[0].rpartition(":")[2]
        is_its_image = self.environment is None and release == f"v{PINNED}"
        return self.kind == "vllm" and self.command is None and (self.on_cpu or is_its_image)


def argument(words: Sequence[str], name: str) -> str | None:
    """The text that words give an argument of `vllm serve` by its canonical name, in any spelling; None: not given."""
    return given_by(words).get(name)


class Serving(Frozen):
    """Serving arguments that differ from cell to cell."""

    max_model_len: int = Field(gt=0)
    max_num_seqs: int | None = Field(None, gt=0)
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    prefix_cache: bool = False

    def together(self, asked: int) -> int:
        """Requests that a step works on, of so many in flight: what the engine has no slot for waits."""
        return asked if self.max_num_seqs is None else min(asked, self.max_num_seqs)


CELL_KEY_HEX_DIGITS = 16
"""Length of a cell key: 64 bits of sha256, no collision within any sweep a person can pay for."""

A_COPY = ("tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size")
"""vLLM's arguments that say over how many cards one copy of a model is spread."""

PARALLEL = (*A_COPY, "data_parallel_size")
"""All that multiply into the cards of an engine; decode context parallelism uses those of tensor parallelism."""


NOT_SERVED = frozenset({"held_against", "context_tokens"})
"""Fields of a model that change nothing that is served: no part of a cell's key, nor of a plan's hash."""


class Model(Grown):
    """A target checkpoint and its facts. Exactly one of `hub_id`, `family_member` and `shape` names its weights."""

    name: str
    family: str
    hub_id: str | None = None
    revision: str | None = None
    family_member: str | None = None
    total_params_b: float = Field(gt=0, description="total parameters, billions")
    active_params_b: float = Field(
        gt=0,
        description="parameters read per decoded token, billions: shared layers, the experts used and the output head; "
        "no towers, no MTP head, and the input embedding only where it is the output head too",
    )
    kv: KvCacheLayout | None = None
    reasoning_parser: str | None = None
    chat_template_kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    weights: Literal["real", "dummy"] = "real"
    held_against: str | None = Field(None, description="name of the model whose AR cell it is compared with; its own")
    shape: str | None = Field(None, description="name of a file in shapes/: the checkpoint's config, without weights")
    routing: Literal["random"] | None = Field(
        None, description="of an MoE's dummy weights: each token's experts are drawn; none: by its router"
    )
    chat: bool = Field(True, description="false: a base model, whose prompts are continued, without a chat template")

    context_tokens: int | None = Field(None, gt=0, description="longest context that it was made for; none: unknown")

    later: ClassVar[frozenset[str]] = frozenset({"shape", "routing", "chat", "context_tokens"})

    @property
    def is_moe(self) -> bool:
        """Whether a token is worked on by some experts only; towers and an embedding are less than half of a model."""
        return self.active_params_b < self.total_params_b / 2

    @property
    def compared_as(self) -> str:
        """Name of the model whose AR cell it is compared with."""
        return self.held_against or self.name


class Technique(Grown):
    """How tokens are decoded, and what that needs of the engine: variables, arguments, a Python package."""

    name: str
    method: Annotated[str, AfterValidator(known)] = Field(description="of configs/methods.py, or another name of one")
    takes_k: bool = False
    lossless: bool = True
    greedy: bool = True
    needs_draft: bool = False
    speculative_config: dict[str, JsonValue] = Field(default_factory=dict)
    engine_env: dict[str, str] = Field(default_factory=dict)
    needs_module: str | None = None
    engine_args: tuple[str, ...] = Field((), description="behind the engine's own, as an attention backend")

    later: ClassVar[frozenset[str]] = frozenset({"engine_args"})

    @property
    def canonical(self) -> str:
        """The name of its method in `METHODS`, whichever name of it the file has."""
        return ALIASES.get(self.method, self.method)

    @property
    def facts(self) -> Method:
        """What is known of its method."""
        return METHODS[self.canonical]

    @property
    def is_baseline(self) -> bool:
        """Whether it is plain autoregressive decoding, which every other technique is compared with."""
        return self.method == "ar"

    @property
    def denoises(self) -> bool:
        """Whether it is block diffusion, where a step commits a canvas of any number of tokens."""
        return self.method == "diffusion"

    @property
    def drafts(self) -> bool:
        """Whether tokens are proposed and then verified, so that an acceptance can be measured."""
        return self.facts.drafts


class Draft(Grown):
    """A technique's second checkpoint. Exactly one of `hub_id`, `family_member` and `shape` is set."""

    hub_id: str | None = None
    revision: str | None = None
    family_member: str | None = None
    shape: str | None = None

    later: ClassVar[frozenset[str]] = frozenset({"shape"})


class Precision(Grown):
    """The number format of the weights, and how it is obtained: made while loading, or stored in the checkpoint."""

    name: str
    bytes_per_param: float = Field(gt=0)
    quantization: str | None = Field(None, description="vLLM's --quantization; none: the checkpoint as it is")
    dtype: str | None = Field(None, description="vLLM's --dtype")
    experts_only: bool = Field(False, description="made while loading for experts; all else stays in 16 bits")

    later: ClassVar[frozenset[str]] = frozenset({"experts_only"})


class Gpu(Frozen):
    """A machine's memory, bandwidth and FLOPS, which set its speed ceiling, and its catalogue price."""

    name: str
    memory_gib: float | None = Field(None, gt=0)
    bandwidth_gb_s: float | None = Field(None, gt=0)
    bf16_tflops: float | None = Field(None, gt=0, description="dense, in 16 bits; for the forecast")
    compute_capability: float | None = Field(None, gt=0, description="NVIDIA's, as 9.0; for the rehearsal")
    price_spot_usd_h: float | None = Field(None, ge=0)
    price_on_demand_usd_h: float | None = Field(None, ge=0)
    price_source: str | None = None
    reported_as: tuple[str, ...] = Field((), description="names by the driver; none: the card isn't checked")
    sky_names: tuple[str, ...] = Field((), description="names by SkyPilot; none: a task's is not compared")

    @property
    def is_card(self) -> bool:
        """Whether anybody else has a name for it; a processor's own file may have figures, too."""
        return bool(self.reported_as or self.sky_names)


class Cell(Grown):
    """Model x precision x technique x engine x serving arguments: one thing that can be served."""

    model: Model
    precision: Precision
    technique: Technique
    k: int | None = Field(None, gt=0)
    draft: Draft | None = None
    engine: Engine
    serving: Serving
    shapes: tuple[CheckpointShape, ...] = Field((), description="those that its model and its draft name")
    acceptance: ReplayedAcceptance | None = Field(None, description="none: whatever its drafts earn")
    denoising_steps: int | None = Field(None, gt=0, description="most passes over a canvas; none: the checkpoint's")
    canvas_length: int | None = Field(None, gt=0, description="tokens denoised together; none: the checkpoint's")

    later: ClassVar[frozenset[str]] = frozenset({"shapes", "acceptance", "denoising_steps", "canvas_length"})

    def canonical_json(self) -> str:
        """The cell as JSON with sorted keys and no default left out, but without what changes nothing served."""
        fields = self.model_dump(mode="json", exclude={"model": set(NOT_SERVED), "precision": {"experts_only"}})
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def cell_key(self) -> str:
        """First 16 hex digits of sha256 over the canonical JSON."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:CELL_KEY_HEX_DIGITS]

    @property
    def engine_words(self) -> tuple[str, ...]:
        """What its engine and its technique are started with, in that order: of a flag given twice the last counts."""
        drafting = self.engine.draft_args if self.technique.drafts else ()
        return (*self.engine.args, *self.technique.engine_args, *drafting)

    @property
    def most_drafted(self) -> int | None:
        """Tokens that a step drafts at the most; None: nothing drafts, or K is only where `generate()` begins."""
        is_constant = self.technique.speculative_config.get(SCHEDULE, "constant") == "constant"
        return self.k if is_constant else None

    @property
    def tensor_parallel(self) -> int:
        """Cards that share every layer, and so read its weights at the same time."""
        return number_of(self.engine_words, A_COPY[0])

    @property
    def cards(self) -> int:
        """Cards that the engine's arguments ask for: tensor x pipeline x prefill context x data parallel."""
        return prod(number_of(self.engine_words, name) for name in PARALLEL)

    @property
    def cards_a_copy(self) -> int:
        """Cards over which one copy of the weights is spread: tensor x pipeline x prefill context parallel."""
        return prod(number_of(self.engine_words, name) for name in A_COPY)

    @property
    def kv_cache_dtype(self) -> str:
        """What the engine is told of the cache's number format; `auto` if nothing."""
        return argument(self.engine_words, "kv_cache_dtype") or "auto"

    @property
    def kv_format(self) -> KvFormat:
        """The cache's number format, the least that it may be.

        A checkpoint that is quantised already may ask for nvfp4 by itself, and vLLM chooses 8 bits for some sparse
        attentions (`resolve_kv_cache_dtype_string` and `GlmMoeDsaForCausalLM` of vLLM 0.32.0).
        """
        asked = self.kv_cache_dtype
        if asked == "auto":
            made_while_loading = self.precision.quantization is not None or self.precision.dtype is not None
            is_sparse = self.model.kv is not None and self.model.kv.reads_at_most is not None
            asked = "nvfp4" if not made_while_loading else "fp8" if is_sparse else "auto"
        return KV_FORMATS.get(asked, UNKNOWN_FORMAT)

    @property
    def kv_bytes_per_token(self) -> float:
        """Cache of one token in all layers that keep it, at the least; 0 where the model's file doesn't say."""
        return 0.0 if self.model.kv is None else self.model.kv.bytes_kept(self.kv_format)

    def kv_bytes_read(self, tokens: float) -> float:
        """Cache that a step reads of a sequence with so many tokens, at the least; 0 where nobody says."""
        return 0.0 if self.model.kv is None else self.model.kv.bytes_read(self.kv_format, tokens)

    @property
    def label(self) -> str:
        """Short human name, e.g. `gemma-4-31b fp8 mtp K=4`."""
        steps = None if self.model.weights == "dummy" else self.denoising_steps  # of dummy ones they are made up
        asked = {"K": self.k, "denoising_steps": steps, "canvas_length": self.canvas_length}
        tail = "".join(f" {name}={number}" for name, number in asked.items() if number is not None)
        unreal = f" ({', '.join(self.unreal)})" if self.unreal else ""
        return f"{self.model.name} {self.precision.name} {self.technique.name}{tail}{unreal}"

    @property
    def unreal(self) -> tuple[str, ...]:
        """What was made up, in the words that stand wherever the cell is shown; nothing: the model was really run."""
        is_dummy, steps = self.model.weights == "dummy", self.denoising_steps
        return (
            *(["weights=dummy"] if is_dummy else []),
            *([f"routing={self.model.routing}"] if self.model.routing else []),
            *([f"acceptance={self.acceptance.label}"] if self.acceptance else []),
            *([f"denoising_steps={steps} (replayed)"] if is_dummy and steps else []),
        )

    @property
    def canvas(self) -> int | None:
        """Tokens that it denoises together, as far as its row or its shape says; None: only the checkpoint does."""
        if self.canvas_length is not None or self.model.shape is None:
            return self.canvas_length
        return self.shape_named(self.model.shape).canvas_length

    def shape_named(self, name: str) -> CheckpointShape:
        """The shape that the model or the draft names."""
        return next(shape for shape in self.shapes if shape.name == name)
