"""A cell and what it is made of: model, technique, precision, engine, GPU and serving arguments.

`cell_key` names a cell in the store for ever: every field that changes what is served is part of it, nothing else is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from configs.frozen import Frozen, Grown
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


def argument(words: Sequence[str], *names: str) -> str | None:
    """The last value given to a flag under any of its names, `--flag value` or `--flag=value`; None: not given."""
    given = None
    for word, following in zip_longest(words, words[1:]):
        flag, equals, value = word.partition("=")
        if word.startswith("-") and flag.replace("_", "-") in names:  # vLLM takes `_` for `-` inside a flag
            given = value if equals else following or ""
    return given


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

PARALLEL = ("--tensor-parallel-size", "-tp"), ("--pipeline-parallel-size", "-pp"), ("--data-parallel-size", "-dp")
TENSOR_PARALLEL, PIPELINE_PARALLEL, DATA_PARALLEL = PARALLEL
"""Names of vLLM's arguments that say over how many cards a model is spread."""


class KvCacheLayout(Frozen):
    """What one token costs in key/value cache, in layers that keep every token: ceilings are computed from it.

    Others (sliding window, linear attention) hold a constant amount; without them the ceiling stays above the true one.
    """

    layers: int = Field(gt=0, description="layers that keep every token")
    kv_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)


class Model(Grown):
    """A target checkpoint and its facts. Exactly one of `hub_id`, `family_member` and `shape` names its weights."""

    name: str
    family: str
    hub_id: str | None = None
    revision: str | None = None
    family_member: str | None = None
    total_params_b: float = Field(gt=0, description="total parameters, billions")
    active_params_b: float = Field(gt=0, description="parameters read per token, billions")
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

    later: ClassVar[frozenset[str]] = frozenset({"shape", "routing", "chat"})

    @property
    def is_moe(self) -> bool:
        """Whether a token is worked on by some of its parameters only."""
        return self.active_params_b < self.total_params_b

    @property
    def compared_as(self) -> str:
        """Name of the model whose AR cell it is compared with."""
        return self.held_against or self.name


class Technique(Grown):
    """How tokens are decoded, and what that needs of the engine: variables, arguments, a Python package."""

    name: str
    method: Literal["ar", "mtp", "dflash", "draft_model", "eagle", "eagle3", "ngram", "suffix", "diffusion"]
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
        return not self.is_baseline and not self.denoises


class Draft(Grown):
    """A technique's second checkpoint. Exactly one of `hub_id`, `family_member` and `shape` is set."""

    hub_id: str | None = None
    revision: str | None = None
    family_member: str | None = None
    shape: str | None = None

    later: ClassVar[frozenset[str]] = frozenset({"shape"})


class Precision(Frozen):
    """The number format of the weights, and how it is obtained."""

    name: str
    bytes_per_param: float = Field(gt=0)
    quantization: str | None = Field(None, description="vLLM's --quantization; none: the checkpoint as it is")
    dtype: str | None = Field(None, description="vLLM's --dtype")


class Gpu(Frozen):
    """A machine's memory, bandwidth and FLOPS, which set its speed ceiling, and its catalogue price."""

    name: str
    memory_gib: float | None = Field(None, gt=0)
    bandwidth_gb_s: float | None = Field(None, gt=0)
    bf16_tflops: float | None = Field(None, gt=0, description="dense, in 16 bits; for the forecast")
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
        """The cell as JSON with sorted keys and no default left out, but without what it is compared with."""
        fields = self.model_dump(mode="json", exclude={"model": {"held_against"}})
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def cell_key(self) -> str:
        """First 16 hex digits of sha256 over the canonical JSON."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:CELL_KEY_HEX_DIGITS]

    @property
    def engine_words(self) -> tuple[str, ...]:
        """What its engine and its technique are started with, in that order: of a flag given twice the last counts."""
        drafting = self.engine.draft_args if self.technique.drafts else ()
        return (*(self.engine.command or ()), *self.engine.args, *self.technique.engine_args, *drafting)

    @property
    def tensor_parallel(self) -> int:
        """Cards that share every layer, and so read its weights at the same time."""
        return self._many(*TENSOR_PARALLEL)

    @property
    def cards(self) -> int:
        """Cards that the engine's arguments ask for: tensor x pipeline x data parallel."""
        return self.cards_a_copy * self._many(*DATA_PARALLEL)

    @property
    def cards_a_copy(self) -> int:
        """Cards over which one copy of the weights is spread: tensor x pipeline parallel."""
        return self.tensor_parallel * self._many(*PIPELINE_PARALLEL)

    def _many(self, *names: str) -> int:
        given = argument(self.engine_words, *names) or ""
        return int(given) if given.isdecimal() and int(given) else 1  # vLLM doesn't start with any other

    @property
    def kv_bytes_per_token(self) -> float:
        """Key and value of one token in all layers that keep it, at the least; 0 where the model's file doesn't say."""
        kv, asked = self.model.kv, argument(self.engine_words, "--kv-cache-dtype") or "auto"
        if kv is None:
            return 0.0
        if asked == "auto":  # 16 bits, but for a quantised checkpoint, which may ask for fewer by itself
            made_while_loading = self.precision.quantization is not None or self.precision.dtype is not None
            value = 2.0 if made_while_loading else 1.0
        else:
            value = 2.0 if asked in ("bfloat16", "float16") else 1.0 if "8" in asked else 0.5
        return 2 * kv.layers * kv.kv_heads * kv.head_dim * value

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
