"""Which K are out after one visit of each: so much slower in every condition that another start can't change it.

After one visit nothing in the run says how much starts differ, so what they may differ by is allowed for. A K is kept
where anything is in doubt: a row that isn't ok or has no interval, a condition that was not measured, a single
condition in which it may yet be within noise of the fastest. And what writes another text than AR is no measure for the
others, however fast it is. So the rule can waste a visit, and never a winner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import log, sqrt
from statistics import NormalDist

from warehouse.consolidate.parity_bar import failure
from warehouse.consolidate.rows import Row
from warehouse.speculation.choice import name_of
from warehouse.speculation.curves import AR_K
from warehouse.statistics.proportions import ALPHA

START_SD = 0.05
"""Standard deviation from start to start that is allowed for, over the rate. Our choice, on the cautious side (an
H200 showed 0.05 %, bench/h200): a visit that is saved by mistake costs a result."""

_CURVE = ("run_id", "model", "precision", "technique", "draft", "made_up", "engine", "gpu")


def out_after_first_visit(k_curves: Sequence[Row], results: Sequence[Row]) -> dict[str, str]:
    """Cells that need no further visit, with the sentence that says why.

    Args:
        k_curves: rows of that table, of one run.
        results: rows of `results_consolidated`; those of parity say whose speed is no measure for others. AR's own
            control comes on the way back, so a cell that will fail isn't barred yet.
    """
    doubted = {row["cell_key"] for row in results if row["step"] == "parity" and _is_doubted(row)}
    curves: dict[tuple[object, ...], dict[tuple[object, ...], dict[int, Row]]] = {}
    for row in k_curves:
        curve = tuple(row[name] for name in _CURVE)
        curves.setdefault(curve, {}).setdefault((row["step"], row["condition"], row["mode"]), {})[row["k"]] = row
    found: dict[str, str] = {}
    for conditions in curves.values():
        for k in sorted({k for points in conditions.values() for k in points if k != AR_K}):
            sentences = [_out(k, points, doubted) for points in conditions.values()]
            if all(sentences):
                cell = next(points[k]["cell_key"] for points in conditions.values())
                found[cell] = f"{name_of(k)} is out: {'; '.join(filter(None, sentences))}"
    return found


def _is_doubted(parity: Row) -> bool:
    return parity["verdict"] != "ok" or (parity.get("parity_n") is not None and failure(parity) is not None)


def _out(k: int, points: Mapping[int, Row], doubted: Collection[str]) -> str | None:
    """Why K can't be within noise of the fastest under one condition; None: it may be."""
    known = {each: row for each, row in points.items() if row["verdict"] == "ok" and row.get("tok_s_lo")}
    if k not in known:
        return None
    measures = [each for each, row in known.items() if row["cell_key"] not in doubted]
    fastest = max(measures, key=lambda each: known[each]["tok_s"], default=k)
    ours, best = known[k], known[fastest]
    starts = NormalDist().inv_cdf(1 - ALPHA / 2) * START_SD
    above, below = log(ours["tok_s_hi"] / ours["tok_s"]), log(best["tok_s"] / best["tok_s_lo"])
    if log(ours["tok_s"] / best["tok_s"]) + sqrt(above**2 + below**2 + 2 * starts**2) >= 0:
        return None
    return f"{ours['condition']} {ours['tok_s'] / best['tok_s']:.2f} x {name_of(fastest)}"
