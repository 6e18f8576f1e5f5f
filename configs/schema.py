"""The shapes of everything a user may write in `configs/`: frozen, typed, no unknown keys.

A `Cell` is one thing that can be served; its `cell_key` names it in the store for ever, so every field that
changes what is served is part of it and nothing else is.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

CELL_KEY_HEX_DIGITS = 16
"""Length of a cell key: 64 bits of sha256, no collision within any sweep a person can pay for."""

JsonScalar = str | int | float | bool | None


class Frozen(BaseModel):
    """Base of every config model: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class KvShape(Frozen):
    """What one token costs in key/value cache, the input of memory and bandwidth ceilings.

    Only layers that keep every token are counted: sliding-window and linear-attention layers hold a constant
    amount, and leaving them out keeps a ceiling computed from this above the true one.
    """

    layers: int = Field(gt=0, description="layers that keep every token")
    kv_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)


class Model(Frozen):
    """A target checkpoint and its facts. Exactly one of `hub_id` and `family_member` names its weights."""

    name: str
    family: str
    hub_id: str | None = None
    revision: str | None = None
    family_member: str | None = None
    total_params_b: float = Field(gt=0, description="total parameters, billions")
    active_params_b: float = Field(gt=0, description="parameters read per token, billions")
    kv: KvShape | None = None
    reasoning_parser: str | None = None
    chat_template_kwargs: dict[str, JsonScalar] = Field(default_factory=dict)
    weights: Literal["real", "dummy"] = "real"


class Technique(Frozen):
    """How tokens are decoded. `k` is set only where the technique drafts a number of tokens."""

    name: str
    method: Literal["ar", "mtp", "dflash", "draft_model", "eagle3", "ngram", "suffix", "diffusion"]
    takes_k: bool = False
    lossless: bool = True
    greedy: bool = True
    needs_draft: bool = False
    speculative_config: dict[str, JsonScalar] = Field(default_factory=dict)
    engine_env: dict[str, str] = Field(default_factory=dict)
    needs_module: str | None = None


class Draft(Frozen):
    """A technique's second checkpoint. Exactly one of `hub_id` and `family_member` is set."""

    hub_id: str | None = None
    revision: str | None = None
    family_member: str | None = None


class Precision(Frozen):
    """The number format of the weights, and how it is obtained."""

    name: str
    bytes_per_param: float = Field(gt=0)
    quantization: str | None = Field(None, description="vLLM's --quantization; none: the checkpoint as it is")
    dtype: str | None = Field(None, description="vLLM's --dtype")


class Engine(Frozen):
    """What serves. `environment` names a pinned environment of ours; `command` is a user's own build."""

    name: str
    kind: Literal["vllm"] = "vllm"
    environment: str | None = None
    command: tuple[str, ...] | None = None
    image: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    start_timeout_s: float = Field(600, gt=0)


class Gpu(Frozen):
    """What the speed ceiling of a machine follows from, and its catalogue price."""

    name: str
    memory_gib: float | None = Field(None, gt=0)
    bandwidth_gb_s: float | None = Field(None, gt=0)
    price_spot_usd_h: float | None = Field(None, ge=0)
    price_on_demand_usd_h: float | None = Field(None, ge=0)
    price_source: str | None = None


class Serving(Frozen):
    """Per-cell serving arguments, the ones that seed 004 tunes by cell."""

    max_model_len: int = Field(gt=0)
    max_num_seqs: int | None = Field(None, gt=0)
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    prefix_cache: bool = False


class Cell(Frozen):
    """Model x precision x technique x engine x serving arguments: one thing that can be served."""

    model: Model
    precision: Precision
    technique: Technique
    k: int | None = Field(None, gt=0)
    draft: Draft | None = None
    engine: Engine
    serving: Serving

    def canonical_json(self) -> str:
        """The cell as JSON with sorted keys and no default left out: what `cell_key` is computed over."""
        fields = self.model_dump(mode="json")
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def cell_key(self) -> str:
        """First 16 hex digits of sha256 over the canonical JSON."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:CELL_KEY_HEX_DIGITS]

    @property
    def label(self) -> str:
        """Short human name, e.g. `gemma-4-31b fp8 mtp K=4`."""
        tail = f" K={self.k}" if self.k is not None else ""
        return f"{self.model.name} {self.precision.name} {self.technique.name}{tail}"


class Condition(Frozen):
    """One load shape of the throughput step. `output_tokens` are produced exactly (`ignore_eos`)."""

    name: str
    context_tokens: int = Field(gt=0)
    output_tokens: int = Field(gt=0)
    concurrency: int = Field(1, gt=0)
    requests: int = Field(1, gt=0, description="timed requests per repeat; at least `concurrency`")
    repeats: int = Field(5, gt=0)
    warmup: int = Field(1, ge=0, description="untimed requests of the same shape before the first repeat")
    stream_requests: int = Field(3, ge=0, description="streamed requests for TTFT and TPOT; 0 skips them")


class SmokeStep(Frozen):
    """Five items and one short generation, before hours are spent."""

    step: Literal["smoke"]
    items: int = Field(5, gt=0)


class ThroughputStep(Frozen):
    """Non-streaming completion tokens over wall clock, fixed output length, prompts that never repeat."""

    step: Literal["throughput"]
    prompts: str
    conditions: tuple[Condition, ...] = Field(min_length=1)


class ParityStep(Frozen):
    """Greedy outputs of the same prompts with the technique off, on and off again."""

    step: Literal["parity"]
    prompts: str
    n_prompts: int = Field(12, gt=0)
    context_tokens: int = Field(64, gt=0)
    output_tokens: int = Field(400, gt=0)


class EvalTinyStep(Frozen):
    """The demo family's own multiple-choice task, thinking on, graded on the last letter of the body."""

    step: Literal["eval-tiny"]
    items: int = Field(48, gt=0)
    seed: int = 0
    kind: Literal["lookup", "arith"] | None = Field(None, description="questions of this kind only; none: both in turn")
    concurrency: int = Field(4, gt=0)
    max_tokens: int = Field(64, gt=0)


class UnbuiltStep(Frozen):
    """A step of the design that this version plans and names, but can't measure yet."""

    step: Literal[
        "load",
        "depth",
        "prompts",
        "needle",
        "memory",
        "eval-gpqa",
        "eval-gpqa-inspect",
        "eval-mmlu-pro",
        "eval-ifeval",
        "eval-haerae",
        "eval-kmmlu",
    ]
    items: int | None = Field(None, gt=0)
    params: dict[str, Any] = Field(default_factory=dict)


Step = Annotated[SmokeStep | ThroughputStep | ParityStep | EvalTinyStep | UnbuiltStep, Field(discriminator="step")]
"""One measurement of a cell, told apart by its `step` name."""


class Suite(Frozen):
    """A named list of steps, in the order they run."""

    name: str
    steps: tuple[Step, ...] = Field(min_length=1)


class CellRow(Frozen):
    """One line of a sweep's matrix: names that point into the other folders, and its serving arguments."""

    model: str
    precision: str
    technique: str
    k: int | None = Field(None, gt=0)
    draft: Draft | None = None
    serving: Serving | None = None
    optional: bool = Field(False, description="left out, with the reason in the plan, where it can't run")


class Budget(Frozen):
    """Dollars that may be spent; none: no limit. What would exceed one does not start, what does is stopped."""

    cell_usd: float | None = Field(None, gt=0)
    run_usd: float | None = Field(None, gt=0)
    month_usd: float | None = Field(None, gt=0, description="all runs of the store, by calendar month, UTC")


class Cloud(Frozen):
    """How a sweep's clusters are rented. No part of what is measured: with another budget the same run goes on."""

    task: str = Field(description="a task of sky/ without its .yaml, or a path to your own SkyPilot YAML")
    on_demand_after: int = Field(3, ge=0, description="losses of one cell after which it is rented on demand")
    finish_by_h: float | None = Field(None, gt=0, description="hours after the run's start by which it shall be done")
    wait_h: float = Field(12, ge=0, description="hours to wait for capacity before a cell is given up")
    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}))


class Sweep(Frozen):
    """A matrix of cells and the suite that measures them."""

    name: str
    engine: str
    gpu: str
    suite: str
    spot: bool = True
    concurrency: int = Field(1, gt=0, description="cells measured at the same time")
    max_attempts: int = Field(3, gt=0, description="tries per cell before the run gives it up")
    cloud: Cloud | None = Field(None, description="none: cells run on this machine")
    serving: Serving | None = Field(None, description="used by every cell that has no `serving` of its own")
    cells: tuple[CellRow, ...] = Field(min_length=1)

    _own_folder: Path | None = PrivateAttr(None)
    """Folder of the user's own file, whose `models/`, `suites/` ... come before ours; set by `load_sweep`."""


class PlannedCell(Frozen):
    """A cell of a run with the steps to measure it by: what `cell.json` holds, and all a node needs."""

    cell: Cell
    gpu: Gpu
    spot: bool
    steps: tuple[Step, ...]


class Plan(Frozen):
    """An expanded sweep: everything a run is, apart from what it measures."""

    sweep: str
    gpu: Gpu
    concurrency: int
    max_attempts: int
    cloud: Cloud | None = None
    cells: tuple[PlannedCell, ...]
    left_out: tuple[tuple[str, str], ...] = Field((), description="(cell label, why it is not run)")

    @property
    def config_hash(self) -> str:
        """First 16 hex digits of sha256 over the plan; two runs with the same hash measure the same.

        How it is rented is left out: a raised budget continues the same run.
        """
        text = json.dumps(self.model_dump(mode="json", exclude={"cloud"}), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:CELL_KEY_HEX_DIGITS]
