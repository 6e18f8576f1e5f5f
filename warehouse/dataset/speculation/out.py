"""Which K are out after one visit of each: so much slower in every condition that another start can't change it.

After one visit nothing in the run says how much starts differ, so what they may differ by is allowed for. A K is kept
where anything is in doubt: a row that isn't ok or has no interval, a condition that was not measured, a single
condition in which it may yet be within noise of the fastest. What writes another text than AR is no measure for the
others, however fast it is, and neither is what ran on another machine or, as an AR cell may be, under other serving
arguments. So the rule can waste a visit, and never a winner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import log, sqrt
from statistics import NormalDist

from warehouse.dataset.consolidate.parity_bar import failure
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.speculation.choice import name_of
from warehouse.dataset.speculation.curves import AR_K, Curve, Shape, shape_of
from warehouse.dataset.statistics.proportions import ALPHA

START_SD = 0.05
"""Standard deviation from start to start that is allowed for, over the rate. Our choice, on the cautious side (an
H200 showed 0.05 %, bench/h200): a visit that is saved by mistake costs a result."""


def out_after_first_visit(curves: Iterable[Curve], results: Sequence[Row]) -> dict[str, str]:
    """Cells that need no further visit, with the sentence that says why.

    Args:
        curves: of one run, by its plan.
        results: rows of `results_consolidated` of that run; those of parity say whose speed is no measure for others.
            AR's own control comes on the way back, so a cell that will fail isn't barred yet.
    """
    doubted = {row["cell_key"] for row in results if row["step"] == "parity" and _is_doubted(row)}
    rows: dict[str, dict[Shape, Row]] = {}
    for row in results:
        if row.get("tok_s") is not None:
            rows.setdefault(row["cell_key"], {})[shape_of(row)] = row
    found: dict[str, str] = {}
    for curve in curves:
        keys = {k: planned.cell.cell_key for k, planned in curve.cells.items()}
        shapes = sorted({shape for key in keys.values() for shape in rows.get(key, {})})
        beside = keys | _own_baseline(curve)
        conditions = [
            {k: rows[key][shape] for k, key in beside.items() if shape in rows.get(key, {})} for shape in shapes
        ]
        for k, key in keys.items():
            sentences = [_out(k, points, doubted) for points in conditions]
            if sentences and all(sentences):
                found[key] = f"{name_of(k)} is out: {'; '.join(filter(None, sentences))}"
    return found


def _own_baseline(curve: Curve) -> dict[int, str]:
    """The curve's AR cell as a draft of no token; none where it is served otherwise, which changes its speed, too."""
    baseline = curve.baseline
    if baseline is None or baseline.cell.serving != curve.first.cell.serving:
        return {}
    return {AR_K: baseline.cell.cell_key}


def _is_doubted(parity: Row) -> bool:
    return parity["verdict"] != "ok" or (parity.get("parity_n") is not None and failure(parity) is not None)


def _out(k: int, points: Mapping[int, Row], doubted: Collection[str]) -> str | None:
    """Why K can't be within noise of the fastest on its machine, under one condition; None: it may be."""
    known = {each: row for each, row in points.items() if row["verdict"] == "ok" and row.get("tok_s_lo")}
    if k not in known or known[k].get("machine") is None:
        return None
    ours = known[k]
    measures = {
        each: row
        for each, row in known.items()
        if row["cell_key"] not in doubted and row.get("machine") == ours["machine"]
    }
    fastest = max(measures, key=lambda each: measures[each]["tok_s"], default=k)
    best = known[fastest]
    starts = NormalDist().inv_cdf(1 - ALPHA / 2) * START_SD
    above, below = log(ours["tok_s_hi"] / ours["tok_s"]), log(best["tok_s"] / best["tok_s_lo"])
    if log(ours["tok_s"] / best["tok_s"]) + sqrt(above**2 + below**2 + 2 * starts**2) >= 0:
        return None
    return f"{ours['condition']} {ours['tok_s'] / best['tok_s']:.2f} x {name_of(fastest)}"
