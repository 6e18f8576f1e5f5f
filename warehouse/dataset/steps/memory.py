"""Memory: what a cell's weights, cache and graphs take, what a draft costs in KV tokens, and energy per token."""

from __future__ import annotations

from collections.abc import Sequence

from configs.steps.memory import CONDITION
from warehouse.dataset.consolidate.comparable import unequal_serving
from warehouse.dataset.consolidate.inputs import CommittedStep, Group, Raw, Rows, baseline_of
from warehouse.dataset.consolidate.rows import Judged, Made, Result, base_row, by_cell, joined, judged, step_seconds
from warehouse.ledger.steps import MEMORY_MODE, MEMORY_STARTS

TABLES = (MEMORY_STARTS,)

LEAST = ("kv_cache_bytes", "kv_tokens")
"""What a cell can count on in any start: the least of them. Of all else it is the most."""

MOST = ("weights_bytes", "graph_bytes", "engine_memory_peak_bytes", "gpu_memory_peak_bytes", "host_peak_bytes")


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell, of all its starts, compared with AR's memory in the starts of a control; no pairs."""
    cells, unmeasured = by_cell(group, raw)
    return Made([*unmeasured, *(_row(steps, group, raw) for steps in cells)])


def _row(steps: Sequence[CommittedStep], group: Group, raw: Raw) -> Result:
    first = steps[0]
    starts = [row for step in steps for row in raw.rows(step, MEMORY_STARTS)]
    verdict = joined([judged(step, raw, CONDITION, MEMORY_MODE) for step in steps])
    baseline, verdict = _baseline(first, group, raw, verdict)
    result = Result(base_row(first, raw, step_seconds(first, raw)), verdict)
    if not starts:
        return result
    costs = [start["kv_cache_bytes"] * first.planned.cell.cards / start["kv_tokens"]
             for start in starts if start["kv_cache_bytes"] and start["kv_tokens"]]  # fmt: skip
    columns = {
        "condition": CONDITION,
        "mode": MEMORY_MODE,
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
    return result.plus(columns)


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


def _known(rows: Rows, name: str) -> list[int]:
    return [row[name] for row in rows if row[name] is not None]
