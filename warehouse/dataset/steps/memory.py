"""Memory: what a cell's weights, cache and graphs take, what a draft costs in KV tokens, and energy per token."""

from __future__ import annotations

from collections.abc import Sequence

from configs.steps.memory import CONDITION
from warehouse.dataset.consolidate.costs import is_first, step_seconds
from warehouse.dataset.consolidate.inputs import CommittedStep, Group, baseline_of
from warehouse.dataset.consolidate.raw import Raw
from warehouse.dataset.consolidate.rows import Judged, Made, Row, base_row, joined, judged
from warehouse.dataset.consolidate.serving import unequal_serving
from warehouse.dataset.consolidate.speed.rows import NOT_MEASURED
from warehouse.ledger.steps.memory import MEMORY_STARTS, MODE

TABLES = (MEMORY_STARTS,)

LEAST = ("kv_cache_bytes", "kv_tokens")
"""What a cell can count on in any start: the least of them. Of all else it is the most."""

MOST = ("weights_bytes", "graph_bytes", "engine_memory_peak_bytes", "gpu_memory_peak_bytes", "host_peak_bytes")


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell, of all its starts; AR's memory in the starts of a control is what it is held against.

    Memory makes no pairs.
    """
    cells: dict[str, list[CommittedStep]] = {}
    for step in sorted(group, key=lambda each: each.visit.number):
        if step.visit.role == "cell":
            cells.setdefault(step.cell_key, []).append(step)
    only_controls = [
        base_row(step, raw, NOT_MEASURED, step_seconds(step, raw))
        for step in group
        if step.cell_key not in cells and is_first(step, raw)
    ]
    return Made([*only_controls, *(_row(steps, group, raw) for steps in cells.values())], [])


def _row(steps: Sequence[CommittedStep], group: Group, raw: Raw) -> Row:
    first = steps[0]
    starts = [row for step in steps for row in raw.rows(step, MEMORY_STARTS)]
    verdict = joined([judged(step, raw, CONDITION, MODE) for step in steps])
    baseline, verdict = _baseline(first, group, raw, verdict)
    row = base_row(first, raw, verdict, step_seconds(first, raw))
    if not starts:
        return row
    costs = [start["kv_cache_bytes"] * first.planned.cell.cards / start["kv_tokens"]
             for start in starts if start["kv_cache_bytes"] and start["kv_tokens"]]  # fmt: skip
    return row | {
        "condition": CONDITION,
        "mode": MODE,
        "concurrency": 1,
        "context_tokens": starts[0]["context_tokens"],
        "output_tokens": starts[0]["output_tokens"],
        "prompt_tokens": float(starts[0]["prompt_tokens"]),
        "visits": len(starts),
        **{name: min(_known(starts, name), default=None) for name in LEAST},
        **{name: max(_known(starts, name), default=None) for name in MOST},
        "kv_bytes_per_token": max(costs, default=None),
        "baseline_kv_tokens": baseline,
    }


def _baseline(step: CommittedStep, group: Group, raw: Raw, verdict: Judged) -> tuple[int | None, Judged]:
    """KV tokens of AR, by the cell's controls, else by the run's AR cell; None: it is AR, or served otherwise."""
    if step.is_baseline:
        return None, verdict
    controls = [each for each in group if each.cell_key == step.cell_key and each.visit.role == "control"]
    ar = baseline_of(step, group)
    if not controls and ar is not None:
        unequal = unequal_serving(step.planned.cell.serving, ar.planned.cell.serving)
        if unequal:
            sentence = f"AR was served with other arguments ({', '.join(unequal)}): no price of the draft in KV tokens"
            return None, verdict.noting(sentence)
    held = controls or ([] if ar is None else [ar])
    return min(
        _known([row for each in held for row in raw.rows(each, MEMORY_STARTS)], "kv_tokens"), default=None
    ), verdict


def _known(rows: Sequence[Row], name: str) -> list[int]:
    return [row[name] for row in rows if row[name] is not None]
