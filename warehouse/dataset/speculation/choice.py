"""Which K: a recommendation for one curve under one condition, or the reason why there is none.

The rule is in `statistics/speculation.py`: refuse incomplete data, then take the smallest K within noise of
the fastest, with AR among them as a draft of no token. A load or a category that wasn't measured gets no
recommendation.

Which K are out after one visit of each: so much slower in every condition that another start can't change it.

After one visit nothing in the run says how much starts differ, so what they may differ by is allowed for. A K is kept
where anything is in doubt: a row that isn't ok or has no interval, a condition that was not measured, a single
condition in which it may yet be within noise of the fastest. What writes another text than AR is no measure for the
others, however fast it is, and neither is what ran on another machine or, as an AR cell may be, under other serving
arguments. So the rule can waste a visit, and never a winner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import exp, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

from warehouse.dataset.consolidate.parity_bar import failure
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.consolidate.speed.settled import WITHHELD
from warehouse.dataset.speculation.curves import AR_K, Curve, Points, Shape, shape_of
from warehouse.dataset.statistics.proportions import ALPHA
from warehouse.dataset.statistics.speculation import Ratio, Smallest, smallest_within_noise
from warehouse.ledger.verdicts import Reason

OUT = "out after its first visit"
"""Why a K is no candidate that was dropped on the way back."""


class Choice(NamedTuple):
    """What was found of one curve under one condition."""

    k: int | None
    """Recommended; 0: draft nothing; None: `refusal` says why there is no recommendation."""
    fastest: int | None
    ratios: Mapping[int, Ratio]
    """Of each K over the fastest."""
    excluded: tuple[str, ...]
    """K that were measured and can't be recommended, with the reason."""
    refusal: str
    wording: str


def choose(points: Points, rows: Sequence[Row], dropped: Collection[str] = ()) -> Choice:
    """The recommendation.

    Args:
        points: of the curve under the condition.
        rows: all rows of the curve's cells; those of parity are looked at.
        dropped: keys of cells that were not visited again because they were out.
    """
    excluded = _excluded(points, rows, dropped)
    said = tuple(f"{name_of(k)}: {why}" for k, why in excluded.items())
    refusal = _refusal(points, rows, excluded)
    if refusal:
        return Choice(None, None, {}, said, refusal, f"no recommendation: {refusal}")
    gains = {k: points.gain(k) for k in (AR_K, *points.curve.cells) if k not in excluded}
    rates = {k: exp(gain.log) for k, gain in gains.items() if gain is not None}
    found = smallest_within_noise(rates, points.compared, name_of)
    wording = f"no recommendation: {found.refusal}" if found.chosen is None else _wording(points, found)
    return Choice(found.chosen, found.fastest, found.ratios, said, found.refusal, wording)


def name_of(k: int) -> str:
    """`K=4`; `AR` of a draft of no token."""
    return "AR" if k == AR_K else f"K={k}"


def _excluded(points: Points, rows: Sequence[Row], dropped: Collection[str]) -> dict[int, str]:
    """K whose outputs are in doubt, the fastest of which accept what they shouldn't; and those that were dropped."""
    found: dict[int, str] = {}
    for k, planned in points.curve.cells.items():
        of_cell = [row for row in rows if row["cell_key"] == planned.cell.cell_key]
        doubted = [row for row in of_cell if row["step"] == "parity" and row["verdict"] != "ok"]
        if any(Reason.PARITY_FAILED in row["reasons"] for row in of_cell):
            found[k] = Reason.PARITY_FAILED.value
        elif doubted:
            found[k] = f"parity {doubted[0]['verdict']} ({', '.join(doubted[0]['reasons'])})"
        elif planned.cell.cell_key in dropped:
            found[k] = OUT
    return found


def _refusal(points: Points, rows: Sequence[Row], excluded: Mapping[int, str]) -> str:
    """Why nothing can be recommended, whatever the figures are; empty: something may be."""
    curve = points.curve
    if curve.unreal is not None:
        return f"not really run: {curve.unreal}"
    if not curve.first.cell.technique.lossless:
        return f"{curve.first.cell.technique.name} is lossy: its speed is that of another text"
    if all(excluded.get(k, OUT) != OUT for k in curve.cells):
        return "the outputs of every K are in doubt"
    missing = [_lacking(points, k, rows) for k in (AR_K, *curve.cells) if k not in excluded]
    if any(missing):
        return f"incomplete: {'; '.join(filter(None, missing))}"
    if not any(point.found.start_df for point in points.by_k.values()):
        return "every K within one start: nothing is known of how much starts differ (`visits: mirrored` tells)"
    if points.withheld is not None:
        return f"{points.withheld}: {WITHHELD[points.withheld]}"
    unknown = [name_of(k) for k in curve.cells if k not in excluded and points.gain(k) is None]
    return f"no interval of what {', '.join(unknown)} gains over AR" if unknown else ""


def _lacking(points: Points, k: int, rows: Sequence[Row]) -> str:
    """What is missing of one K: its rate, planned engine starts of it or of the AR it brought, parity; empty: nothing.

    Parity is asked for where it was planned: the fastest K may be one that accepts what it shouldn't.
    """
    curve, point = points.curve, points.by_k.get(k)
    planned = curve.baseline if k == AR_K else curve.cells[k]
    if k == AR_K and all(each.control is not None for each in curve.cells.values()):
        return ""
    if planned is None or point is None or not point.is_ok:
        return f"{name_of(k)} {_said(points, k)}"
    asked: list[str] = [each.visit.role for each in planned.measurements if each.spec.step == points.shape[0]]
    for role, whose, starts in (("cell", "", point.starts), ("control", "'s AR", point.baseline)):
        made = 0 if starts is None else len(starts.rates)
        if made < asked.count(role):
            return f"{name_of(k)}{whose} has {made} of {asked.count(role)} engine starts"
    is_compared = any(
        row["cell_key"] == planned.cell.cell_key and row["step"] == "parity" and row.get("parity_n") for row in rows
    )
    if k == AR_K or is_compared or all(step.step != "parity" for step in planned.steps):
        return ""
    return f"{name_of(k)}'s outputs were not compared"


def _said(points: Points, k: int) -> str:
    if k not in points.by_k:
        return "was not measured"
    row = points.by_k[k].row
    return "has no rate" if row["verdict"] == "ok" else f"is {row['verdict']} ({', '.join(row['reasons'])})"


def _wording(points: Points, found: Smallest) -> str:
    chosen, fastest = found.chosen or AR_K, found.fastest
    beside = found.ratios[chosen]
    words = f"{name_of(chosen)}: "
    if chosen == fastest:
        words += "the fastest, and no smaller K is within noise of it"
    else:
        words += f"within noise of {name_of(fastest)}, the fastest: {exp(beside.log):.2f} x {_interval(beside)}"
    gain = points.gain(chosen)
    if chosen != AR_K and gain is not None:
        words += f"; {exp(gain.log):.2f} x AR {_interval(Ratio(gain.log, gain.lo, gain.hi))}"
    return words


def _interval(ratio: Ratio) -> str:
    return f"[{exp(ratio.lo):.2f}, {exp(ratio.hi):.2f}]"


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
