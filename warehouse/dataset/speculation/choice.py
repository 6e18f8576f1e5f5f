"""Which K: a recommendation for one curve under one condition, or the reason why there is none.

The rule is in `statistics/speculation/smallest.py`: refuse incomplete data, then take the smallest K within noise of
the fastest, with AR among them as a draft of no token. A load or a category that wasn't measured gets no
recommendation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import exp
from typing import NamedTuple

from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.consolidate.speed.claims import WITHHELD
from warehouse.dataset.speculation.curves import AR_K
from warehouse.dataset.speculation.points import Points
from warehouse.dataset.statistics.speculation.smallest import Ratio, Smallest, smallest_within_noise
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
