"""What a technique's method lets it say, and how many tokens a step of a cell can draft at all.

A K that is too long would be served as another one, or cut in silence; and rows would name the one that was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from configs.cell import Cell, Technique, argument
from configs.checkout import ROOT
from configs.files import Fault
from configs.methods import MOST_K, SCHEDULE
from configs.vllm_arguments import PINNED

FAMILY = ROOT / "tasks" / "family" / "weights"
"""Folders of the demo family's shipped members."""

TREE_DEPTH, USUAL_TREE_DEPTH = "suffix_decoding_max_tree_depth", 24
"""vLLM's key for how long a match and its draft are together, and its default (vllm/config/speculative.py, 0.32.0)."""

BY_BATCH = "num_speculative_tokens_per_batch_size"


def method_faults(technique: Technique) -> Iterator[Fault]:
    """A draft or a K that the method doesn't have, or lacks."""
    method, config, name = technique.facts, technique.speculative_config, technique.canonical
    if technique.needs_draft and method.second == "never":
        yield ("needs_draft",), f"true given, but {name} has no second checkpoint; accepted: no needs_draft"
    if method.second == "must" and not technique.needs_draft and "model" not in config:
        yield ("needs_draft",), f"missing; {name} drafts with a second checkpoint: accepted: true"
    if technique.takes_k and not method.drafts:
        yield ("takes_k",), f"true given, but {name} drafts nothing; accepted: no takes_k"
    has_k = technique.takes_k or method.chooses_k or "num_speculative_tokens" in config
    if method.drafts and not has_k:
        yield ("takes_k",), f"missing; vLLM has no K of its own for {name}: accepted: true, and a k in each row"


def drafting_faults(cell: Cell) -> Iterator[Fault]:
    """What its engine can't draft with, and a K that no step of it can draft, by the row's field."""
    technique, engine = cell.technique, cell.engine
    if engine.is_pinned and technique.facts.unserved:
        problem = f"vLLM {PINNED} knows {technique.canonical} by name only: {technique.facts.unserved}"
        yield ("technique",), f"{problem}; accepted: an engine with a `command` of your own whose vLLM has it"
    if engine.kind == "vllm" and SCHEDULE in technique.speculative_config:
        problem = f"{technique.name!r} has {SCHEDULE}, which only generate() knows"
        yield ("technique",), f"{problem}; accepted: an engine of kind transformers"
    proposer = technique.speculative_config.get("model")
    if technique.canonical == "custom_class" and "." not in str(proposer):
        example = "speculative_config: {model: my_module.MyProposer}"
        yield ("technique",), f"{technique.name!r} names no class that drafts; accepted: a copy of it with {example}"
    k = technique.speculative_config.get("num_speculative_tokens") if cell.k is None else cell.k
    if isinstance(k, int):
        for problem in _of_k(cell, k):
            yield ("technique" if cell.k is None else "k",), f"{k} given, but {problem}"


def _of_k(cell: Cell, k: int) -> Iterator[str]:
    """Why no step drafts so many tokens, or some draft more, with what is accepted."""
    most, why = min(_limits(cell), key=lambda limit: limit[0])
    if k > most:
        yield f"{why}; accepted: {most} or fewer"
    if (scheduled := _most_by_batch(cell.technique)) is not None and k < scheduled:
        yield f"{cell.technique.name!r} drafts up to {scheduled}; accepted: {scheduled}"
    heads = cell.technique.facts.layers_of(drafter_config(cell))
    if heads is not None and k > heads and k % heads:
        yield f"its {heads} heads draft in turn; accepted: up to {heads}, or a multiple of it"


def _limits(cell: Cell) -> Iterator[tuple[int, str]]:
    """Most tokens of a draft, each with its reason; at least one."""
    technique, words = cell.technique, cell.engine_words
    yield MOST_K, f"no step checks a draft of more than {MOST_K} tokens (vLLM {PINNED})"
    if (trained := technique.facts.most_of(drafter_config(cell))) is not None:
        yield trained, f"its draft was trained to draft {trained} at once"
    if technique.canonical == "suffix":
        depth = technique.speculative_config.get(TREE_DEPTH, USUAL_TREE_DEPTH)
        if isinstance(depth, int):
            yield depth, f"a match and its draft are {depth} tokens at the most ({TREE_DEPTH})"
    if (scheduled := _most_by_batch(technique)) is not None:
        yield scheduled, f"{technique.name!r} drafts {scheduled} at the most, whatever the batch"
    room = cell.serving.max_model_len
    yield room - 1, f"a request has {room} tokens at the most (max_model_len)"
    at_once = argument(words, "max_num_batched_tokens") or ""
    if at_once.isdecimal():  # a step checks the draft and the token behind it
        yield int(at_once) - 1, f"a step works on {at_once} tokens at the most (--max-num-batched-tokens)"


def _most_by_batch(technique: Technique) -> int | None:
    """The largest K of a schedule by batch size; None: it has none. A malformed one is left to vLLM's own error."""
    ranges = technique.speculative_config.get(BY_BATCH)
    entries = [entry for entry in ranges if isinstance(entry, list)] if isinstance(ranges, list) else []
    return max((last for *_, last in filter(None, entries) if isinstance(last, int)), default=None)


def drafter_config(cell: Cell) -> Mapping[str, Any]:
    """config.json of what drafts, the target's own head included, where it is known offline; else an empty one."""
    source = cell.draft or cell.model
    if source.shape is not None:
        return cell.shape_named(source.shape).config
    return _of_member(source.family_member) if source.family_member is not None else {}


@cache
def _of_member(member: str) -> Mapping[str, Any]:
    path = FAMILY / member / "config.json"  # those that are trained on request lie elsewhere
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
