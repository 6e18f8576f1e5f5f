"""What a rehearsal found out about a cell's command, as `engine_side.py` says it, and what follows from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, JsonValue

from configs.cell import Cell, Gpu
from configs.checks.between_files import PLACES
from configs.frozen import Frozen
from configs.step import MeasuredStep
from configs.vllm_arguments import PINNED

GIB = 2**30
ROOM_GIB = 4.0
"""What activations and CUDA graphs of a model of tens of billions take: 2 to 5 GiB in the logs of bench/h200. Less
than this beside one request is said; only what can't be is refused."""

NARROW_BYTES = 1.5
"""Bytes a parameter under which a precision promises quantized layers."""

UNREACHABLE = re.compile(
    r"couldn't connect|offline|LocalEntryNotFound|Hub is disabled|gated repo|\b401\b|Can't load|repo id must|"
    "repository id|cached snapshot",
    re.IGNORECASE,
)
"""What vLLM, transformers and the hub's client say of a config.json that they can't get."""
OF_THE_STAND_IN = ("ImportError", "ModuleNotFoundError", "AttributeError", "NotImplementedError")
FATAL_STAGES = ("arguments", "configuration")
"""Where vLLM's refusal is the one that the card would give. Behind them the stand-in for a card may be at fault."""


class Layers(BaseModel):
    """Layers of one kind that one method computes, and their bytes on a card."""

    kind: str
    method: str
    n: int
    bytes: int
    quantized: bool
    is_embedding: bool
    first: str


class Facts(BaseModel):
    """Sizes are of one card and in bytes; None: not found out, or nothing of the kind. `error` is vLLM's own."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    stage: str
    error: str | None = None
    warnings: tuple[str, ...] = ()
    arguments: dict[str, JsonValue] = {}
    architecture: str | None = None
    own_class: bool = True
    draft_architecture: str | None = None
    method: str | None = None
    k: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    cards: int | None = None
    draft_numbers: dict[str, int] = {}
    full_graphs: bool = False
    layers: tuple[Layers, ...] = ()
    weights_bytes: int | None = None
    draft_bytes: int = 0
    kv_bytes_per_request: int | None = None
    available_bytes: int | None = None
    blocks: int | None = None
    requests: float | None = None
    longest_that_fits: int | None = None
    has_state: bool = False

    @property
    def computing(self) -> list[Layers]:
        """Layers that a method computes, but for embeddings: those that a precision is made of."""
        return [layer for layer in self.layers if layer.method != "none" and not layer.is_embedding]

    @property
    def is_unreachable(self) -> bool:
        """Whether the model's configuration could not be read, so that nothing behind the arguments was looked at."""
        is_unread = self.error is not None and self.architecture is None
        return is_unread and UNREACHABLE.search(_first_words(self.error or "")) is not None

    @property
    def is_ours(self) -> bool:
        """Whether an error may be the stand-in's: behind configuration, or of a class that vLLM doesn't refuse with."""
        return self.stage not in FATAL_STAGES or (self.error or "").startswith(OF_THE_STAND_IN)


class Finding(Frozen):
    """One thing that would fail at start, or that a user may want to know."""

    argument: str
    value: str
    limit: str
    remedy: str
    is_fatal: bool = True

    @property
    def line(self) -> str:
        """Argument, value, limit and remedy on one line."""
        accepted = f"; accepted: {self.remedy}" if self.remedy else ""
        return f"{self.argument}: {self.value}: {self.limit}{accepted}"


def findings(cell: Cell, gpu: Gpu, facts: Facts, steps: Sequence[MeasuredStep]) -> list[Finding]:
    """What is wrong with a cell, refusals first. Of an engine that isn't the pinned release, all are remarks."""
    found = [*_of_error(facts), *_of_label(cell, facts), *_of_memory(cell, gpu, facts), *_of_draft(cell, facts)]
    found += _of_suite(cell, facts, steps)
    found += [remark("vLLM", "warns", warning) for warning in facts.warnings]
    if facts.architecture is not None and not facts.own_class:
        found.append(remark("model", facts.architecture, f"vLLM {PINNED} has no class for it: Transformers' is used"))
    if not cell.engine.is_pinned:
        found = [each.model_copy(update={"is_fatal": False}) for each in found]
        here = f"not the vLLM {PINNED} that was asked: its own arguments, classes and defaults are unchecked"
        found.append(remark("engine", cell.engine.name, here))
    return sorted(found, key=lambda each: not each.is_fatal)


def remark(argument: str, value: str, limit: str, remedy: str = "") -> Finding:
    """Something to know that stops nothing."""
    return Finding(argument=argument, value=value, limit=limit, remedy=remedy, is_fatal=False)


def _of_error(facts: Facts) -> Iterator[Finding]:
    if facts.error is None:
        return
    said = _first_words(facts.error)
    if facts.is_unreachable:
        remedy = "the hub's, once it can be reached, or a file in shapes/ that says `published_as`"
        yield remark("config.json", "not read", "only the arguments were checked", remedy)
        return
    if facts.is_ours:
        yield remark("vLLM", facts.stage, f"could not be tried further without a card: {said}")
        return
    name = _named_in(facts) or "vLLM"
    value = str(facts.arguments.get(name, facts.stage))
    remedy = f"another value {PLACES[name]}" if name in PLACES else "another value in the engine's or technique's file"
    yield Finding(argument=name, value=value, limit=said, remedy=remedy)


def _first_words(error: str) -> str:
    """The sentence that vLLM says, in one line, without pydantic's frame around it."""
    text = error.partition("Value error, ")[2] or error.partition(": ")[2] or error
    text = re.split(r"\[type=|\n\s*For further", text)[0]
    return " ".join(text.split())[:300]


def _named_in(facts: Facts) -> str | None:
    """The argument that an error speaks of: the first one in quotes, else the first whose name is no English word."""
    said, known = _first_words(facts.error or "").replace("-", "_"), {*facts.arguments, *PLACES}
    words = [*re.findall(r"[`'\"]_*([a-z_]+)[`'\"]", said), *re.findall(r"\b_*([a-z]+_[a-z_]+)", said)]
    return next((word for word in words if word in known), None)


def _of_label(cell: Cell, facts: Facts) -> Iterator[Finding]:
    """A precision that is none: no layer is quantized though it promises so, or some are though it says 16 bits."""
    computing = facts.computing
    if not computing:
        return
    narrow = sum(layer.bytes for layer in computing if layer.quantized)
    wide = sum(layer.bytes for layer in computing if not layer.quantized)
    precision, promised = cell.precision, cell.precision.bytes_per_param
    if promised < NARROW_BYTES and narrow < wide:
        kinds = ", ".join(sorted({layer.kind for layer in computing if not layer.quantized}))
        limit = f"{wide / GIB:.1f} GiB of {kinds} stay in {facts.dtype}, {narrow / GIB:.1f} GiB are quantized"
        remedy = "a precision that vLLM makes of this model, as fp8, or a checkpoint that is stored in this one"
        # a checkpoint's own quantization is in its config.json, which a shape may leave out
        is_made = precision.quantization is not None
        yield Finding(argument="precision", value=precision.name, limit=limit, remedy=remedy, is_fatal=is_made)
    elif promised >= NARROW_BYTES and narrow > wide:
        limit = f"the checkpoint is stored as {facts.quantization}: {narrow / GIB:.1f} GiB of its layers are quantized"
        remedy = "the precision that it is stored in, as fp8-checkpoint"
        yield Finding(argument="precision", value=precision.name, limit=limit, remedy=remedy)


def _of_memory(cell: Cell, gpu: Gpu, facts: Facts) -> Iterator[Finding]:
    """A request or the state of all that run at once that doesn't fit beside the weights."""
    if cell.engine.on_cpu or facts.weights_bytes is None or facts.available_bytes is None:
        return  # a processor's memory is the machine's on which it will run
    taken = facts.weights_bytes + facts.draft_bytes
    share = (facts.available_bytes + taken) / GIB
    beside = f"{facts.available_bytes / GIB:.1f} GiB are left of {share:.1f} beside {taken / GIB:.1f} GiB of weights"
    if facts.available_bytes <= 0:
        remedy = "a narrower precision, a larger gpu, or more cards"
        yield Finding(argument="model", value=cell.model.name, limit=f"{beside} on one {gpu.name}", remedy=remedy)
        return
    a_request = facts.kv_bytes_per_request or 0
    if a_request > facts.available_bytes:
        longest = f"{facts.longest_that_fits} or less in `serving`" if facts.longest_that_fits else "a smaller one"
        limit = f"one request of that length takes {a_request / GIB:.1f} GiB of cache, and {beside}"
        remedy = f"max_model_len: {longest}, a narrower precision, or more cards"
        yield Finding(argument="max_model_len", value=str(facts.max_model_len), limit=limit, remedy=remedy)
    elif facts.available_bytes - a_request < ROOM_GIB * GIB:
        limit = f"{beside}, and one request takes {a_request / GIB:.1f}: little for activations and CUDA graphs"
        yield remark("max_model_len", str(facts.max_model_len), limit)
    if facts.has_state and facts.full_graphs and facts.blocks is not None and (facts.max_num_seqs or 0) > facts.blocks:
        given = "" if cell.serving.max_num_seqs else " (vLLM's default on this card)"
        limit = f"each request needs a block for its state, and {facts.blocks} fit"
        remedy = f"max_num_seqs: {facts.blocks // 2} or less in `serving`"
        yield Finding(argument="max_num_seqs", value=f"{facts.max_num_seqs}{given}", limit=limit, remedy=remedy)


def _of_draft(cell: Cell, facts: Facts) -> Iterator[Finding]:
    """A K that the drafter was not made for; of blocks and heads vLLM itself doesn't look (0.32.0)."""
    most = cell.technique.facts.most_of(facts.draft_numbers)
    if most is not None and (facts.k or 0) > most:
        limit = f"its {facts.draft_architecture} was made to draft {most} at once"
        yield Finding(argument="k", value=str(facts.k), limit=limit, remedy=f"{most} or fewer")


def _of_suite(cell: Cell, facts: Facts, steps: Sequence[MeasuredStep]) -> Iterator[Finding]:
    """Timed requests that wait or are preempted because the cache doesn't hold them together; what isn't timed may."""
    if cell.engine.on_cpu or facts.requests is None or facts.max_model_len is None:
        return
    tokens_kept = facts.requests * facts.max_model_len
    for step in steps:
        for work in step.workload(cell) if step.is_timed and step.why_not(cell) is None else ():
            many = cell.serving.together(work.concurrency)
            tokens = work.prompt_tokens + max(work.output_tokens, work.longest_output_tokens)
            if many > 1 and many * tokens > tokens_kept:
                limit = f"the cache holds about {tokens_kept / tokens:.0f} requests of {tokens} tokens at a time"
                yield remark(f"step {step.step}", f"{many} requests at once", limit)
                break
