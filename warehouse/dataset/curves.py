"""Curves over K: cells of a run that differ in nothing but how many tokens they draft, and which K to take.

The rule of a recommendation is in `statistics/speculation.py`. It refuses incomplete data, then takes the smallest K
within noise of the fastest, AR among them as a draft of no token. Each load or category that was measured has its own.

A K is out after one start if it is so much slower in every condition that another start can't change it. What starts
may differ by is allowed for, since one start can't show it. Where anything is in doubt, the K is kept: a row that isn't
ok or has no interval, a condition that was not measured. A cell is no yardstick for others, however fast, if its text
differs from AR's, or if it ran on another machine or under other serving arguments. So the rule can waste a start, and
never a winner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

from configs.schema import PlannedCell
from configs.steps.depth import PREFILL
from configs.visits import Role
from warehouse.dataset.consolidate.comparable import failure
from warehouse.dataset.consolidate.inputs import baseline_among
from warehouse.dataset.consolidate.rows import Row, acceptance_source, made_up
from warehouse.dataset.consolidate.speed.settled import WITHHELD, Known
from warehouse.dataset.consolidate.speed.starts import Starts
from warehouse.dataset.statistics.proportions import ALPHA
from warehouse.dataset.statistics.speculation import SAME, Ratio, Smallest, apart, smallest_within_noise
from warehouse.dataset.statistics.starts import Components, Estimate, ratio_interval
from warehouse.ledger.verdicts import Reason

StepCondition = tuple[str, Any, Any]  # step, condition and mode
AR_K = 0  # what plain decoding is on a curve: a draft of no token


class Curve(NamedTuple):
    """Cells of one run that differ in K alone, and the AR cell of the run; two values of K or more."""

    run_id: str
    cells: Mapping[int, PlannedCell]
    baseline: PlannedCell | None

    @property
    def first(self) -> PlannedCell:
        """Its cell of the smallest K."""
        return self.cells[min(self.cells)]

    @property
    def unreal(self) -> str | None:
        """What was made up in any of its cells; None: all were really run."""
        for cell in (planned.cell for planned in self.cells.values()):
            source = acceptance_source(cell) or ""
            found = made_up(cell) or (f"acceptance={source}" if source.startswith("replayed:") else None)
            if found:
                return found
        return None

    def identity(self) -> Row:
        """The columns that name it."""
        cell, draft = self.first.cell, self.first.cell.draft
        return {
            "run_id": self.run_id,
            "model": cell.model.name,
            "precision": cell.precision.name,
            "technique": cell.technique.name,
            "draft": None if draft is None else draft.hub_id or draft.family_member or draft.shape,
            "made_up": self.unreal,
            "engine": cell.engine.name,
            "gpu": self.first.gpu.name,
        }


def curves_of(run_id: str, planned: Sequence[PlannedCell]) -> list[Curve]:
    """The curves of a run, from its plan: cells that were never measured are part of them."""
    groups: dict[str, dict[int, PlannedCell]] = {}
    for each in planned:
        if each.cell.k is not None and each.cell.technique.drafts:
            groups.setdefault(_without_k(each), {})[each.cell.k] = each
    return [
        Curve(run_id, dict(sorted(cells.items())), baseline_among(next(iter(cells.values())), planned))
        for cells in groups.values()
        if len(cells) > 1
    ]


def shapes_of(rows: Iterable[Row]) -> list[StepCondition]:
    """What was measured of a curve's cells, each a curve of its own; not prefill, about which K changes nothing."""
    return sorted({shape_of(row) for row in rows if row.get("tok_s") is not None and row.get("mode") != PREFILL})


def shape_of(row: Row) -> StepCondition:
    """What a row was measured under; a step without conditions has none."""
    return row["step"], row.get("condition"), row.get("mode")


def _without_k(planned: PlannedCell) -> str:
    """What the cells of a curve share; of a replayed acceptance its source, because each K has rates of its own."""
    shared = planned.cell.model_copy(update={"k": None, "acceptance": None})
    return f"{shared.cell_key} {planned.gpu.name} {planned.cell.acceptance and planned.cell.acceptance.label}"


class Point(NamedTuple):
    """One K under one condition: its row of `results_consolidated`, its starts, and AR's on its machine."""

    row: Row
    starts: Starts | None
    baseline: Starts | None
    found: Components  # what varies from start to start in its run

    @property
    def is_ok(self) -> bool:
        """Whether it may be recommended, or hold another one back."""
        return self.row["verdict"] == "ok" and self.row.get("tok_s") is not None and self.starts is not None


class Points(NamedTuple):
    """A curve under one condition."""

    curve: Curve
    shape: StepCondition
    by_k: Mapping[int, Point]
    """Of every K that has a row, whatever its verdict; 0 is the run's AR cell, where it has one."""
    withheld: Reason | None  # why a run of theirs claims no speed under this condition; None: all may

    @property
    def concurrency(self) -> int | None:
        """Requests in flight."""
        return next((point.row["concurrency"] for point in self.by_k.values()), None)

    def compared(self, one: int, other: int) -> Ratio | None:
        """Log of one K's rate over another's: of starts on one machine, else by what each gains over its own AR."""
        if one == other:
            return SAME
        direct = self._direct(one, other)
        if direct is not None:
            return Ratio(direct.log, direct.lo, direct.hi)
        ours, theirs = self.gain(one), self.gain(other)
        return None if ours is None or theirs is None else apart(ours, theirs)

    def gain(self, k: int) -> Estimate | None:
        """Log of its rate over AR's on its machine; AR over itself is exactly 0."""
        if k == AR_K:
            return Estimate(0.0, 0.0, 0.0, 1.0, 1.0)
        point = self.by_k[k]
        return _ratio(point.starts, point.baseline, point.found)

    def _direct(self, one: int, other: int) -> Estimate | None:
        starts = {k: self.by_k[k].starts if k in self.by_k else None for k in (one, other)}
        beside = other if one == AR_K else one
        if AR_K in starts:  # the other's own AR: it was started beside it
            starts[AR_K] = self.by_k[beside].baseline
        ours, theirs = starts[one], starts[other]
        if ours is None or theirs is None or _place(ours) != _place(theirs):
            return None
        return _ratio(ours, theirs, self.by_k[beside].found)


def points_of(curve: Curve, shape: StepCondition, rows: Sequence[Row], known: Known) -> Points:
    """The points of a curve, from the rows of its cells and of its AR cell."""
    here = {row["cell_key"]: row for row in rows if shape_of(row) == shape}
    cells = curve.cells if curve.baseline is None else {AR_K: curve.baseline, **curve.cells}
    points = {}
    for k, planned in cells.items():
        row = here.get(planned.cell.cell_key)
        if row is not None:
            found = known.components.get((row["run_id"], *shape)) or Components(0.0, 0.0, 0.0)
            beside = _baseline(row, planned, curve, known)
            points[k] = Point(row, _starts(row, planned, "cell", known), beside, found)
    withheld = (known.placebos.withholds((point.row["run_id"], *shape)) for point in points.values())
    return Points(curve, shape, points, next(filter(None, withheld), None))


def _place(starts: Starts) -> tuple[str, str | None]:
    """Run and machine: what differs from start to start is known of each run by itself."""
    first = starts.starts[0].columns
    return first["run_id"], first["machine"]


def _ratio(ours: Starts | None, theirs: Starts | None, found: Components) -> Estimate | None:
    if ours is None or theirs is None or not (ours.is_ok and theirs.is_ok):
        return None
    return ratio_interval(ours.rates, theirs.rates, found)


def _baseline(row: Row, planned: PlannedCell, curve: Curve, known: Known) -> Starts | None:
    """AR's starts on the machine of the row: those that the cell brought along, else the AR cell's."""
    if planned.control is not None:
        return _starts(row, planned, "control", known)
    return None if curve.baseline is None else _starts(row, curve.baseline, "cell", known)


def _starts(row: Row, planned: PlannedCell, role: Role, known: Known) -> Starts | None:
    arm = (row["run_id"], planned.cell.cell_key, row["step"], role, row.get("machine"))
    return known.arms.get((arm, (row["condition"], row["mode"])))


OUT = "out after its first visit"  # why a K is no candidate that was dropped on the way back


class Choice(NamedTuple):
    """What was found of one curve under one condition."""

    k: int | None  # recommended; 0: draft nothing; None: `refusal` says why there is no recommendation
    fastest: int | None
    ratios: Mapping[int, Ratio]  # of each K over the fastest
    excluded: tuple[str, ...]  # K that were measured and can't be recommended, with the reason
    refusal: str
    wording: str


def choose(points: Points, rows: Sequence[Row], dropped: Collection[str] = ()) -> Choice:
    """The recommendation, from all rows of the curve's cells; of `dropped` ones a first start has shown enough."""
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
    """What is missing for one K: its rate, planned starts of it or of its own AR, planned parity; empty: nothing."""
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
H200 showed 0.05 %, bench/h200): a start that is saved by mistake costs a result."""


def out_after_first_visit(curves: Iterable[Curve], results: Sequence[Row]) -> dict[str, str]:
    """Cells that need no further start, with the sentence that says why.

    AR's own control comes on the way back, so a cell that will fail parity isn't barred yet: rows of parity say it
    here.
    """
    parity = [row for row in results if row["step"] == "parity"]
    doubted = {
        row["cell_key"]
        for row in parity
        if row["verdict"] != "ok" or (row.get("parity_n") is not None and failure(row) is not None)
    }
    rows: dict[str, dict[StepCondition, Row]] = {}
    for row in results:
        if row.get("tok_s") is not None:
            rows.setdefault(row["cell_key"], {})[shape_of(row)] = row
    found: dict[str, str] = {}
    for curve in curves:
        keys = {k: planned.cell.cell_key for k, planned in curve.cells.items()}
        shapes = sorted({shape for key in keys.values() for shape in rows.get(key, {})})
        beside, ar = dict(keys), curve.baseline
        if ar is not None and ar.cell.serving == curve.first.cell.serving:  # else its speed is another one, too
            beside[AR_K] = ar.cell.cell_key
        conditions = [
            {k: rows[key][shape] for k, key in beside.items() if shape in rows.get(key, {})} for shape in shapes
        ]
        for k, key in keys.items():
            sentences = [_out(k, points, doubted) for points in conditions]
            if sentences and all(sentences):
                found[key] = f"{name_of(k)} is out: {'; '.join(filter(None, sentences))}"
    return found


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
