"""How far a recommendation reaches: is its accuracy carried, which K by the rule, and under which other loads?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from warehouse.dataset.speculation.curves import AR_K
from warehouse.report.display.claims import has_claim, is_faster
from warehouse.report.display.doubts import doubts, flags, lost_needles
from warehouse.report.display.figures import TIMES, Row, ar_name, figure, technique_label
from warehouse.report.display.view import View, bench, curve_of, load_name, load_shape, measured_in
from warehouse.report.no_claim import why_withheld

MOST_NAMED = 4
"""Loads that a sentence names; of more it has the number."""


def is_carried(view: View, row: Row) -> bool:
    """Whether the data carry a cell's accuracy: it has evaluations, and each is ok, compared with AR's and no worse.

    A speed alone says nothing of it, nor does a comparison that can't tell, nor one that finds fewer needles than AR.
    """
    pairs = view.accuracy_pairs(row)
    shown = bool(pairs) and all(pair["conclusion"] == "non-inferior" for pair in pairs)
    return shown and not doubts(view, row) and not lost_needles(view, row)


def fails_accuracy(view: View, row: Row) -> bool:
    """Whether an evaluation of the cell shows a loss, or was rejected, which is no better."""
    pair = view.accuracy_pair(row)
    is_rejected = any(doubt.verdict == "rejected" for doubt in doubts(view, row))
    return is_rejected or (pair is not None and pair["conclusion"] == "worse")


def takes_ar(view: View, row: Row) -> bool:
    """Whether "Which K" takes no draft at all on the row's curve: what any K gains there is too little, or in doubt."""
    chosen = _recommendation(view, _points(view, row))
    return chosen is not None and chosen["k"] == AR_K


def by_rule(view: View, best: Row, usable: Sequence[Row]) -> Row:
    """The row of the K that "Which K" recommends on the curve of the best one; that one itself where it says none."""
    ruled = _ruled(view, best)
    return best if ruled is None or ruled not in usable else ruled


def which_k(view: View, row: Row) -> list[str]:
    """What the rule said of the row's curve, where there was a choice, and why it isn't followed where it isn't."""
    points = _points(view, row)
    chosen = _recommendation(view, points)
    measured = {point["k"] for point in points if point["tok_s"] is not None}
    if chosen is None or (len(measured - {AR_K}) < 2 and chosen["k"] != AR_K):
        return []
    said = [f"Which K: {chosen['wording']}."]
    if chosen["excluded"]:
        said.append(f"Left out: {'; '.join(chosen['excluded'])}.")
    ruled = _ruled(view, row)
    if ruled is not None and ruled is not row:
        said.append(f"K={ruled['k']} is not run: {_why_not(view, ruled)}.")
    return said


def _ruled(view: View, best: Row) -> Row | None:
    """The row of the K that the rule recommends on another row's curve, under its load; None: it takes none, or AR."""
    points = _points(view, best)
    chosen = _recommendation(view, points)
    cells = {_cell_of(point) for point in points if chosen is not None and point["k"] == chosen["k"] != AR_K}
    rates = (row for row in view.rates() if load_shape(row) == load_shape(best))
    return next((row for row in rates if (row["run_id"], row["cell_key"]) in cells), None)


def _why_not(view: View, row: Row) -> str:
    """Why a row is not run though its K is recommended, in a few words."""
    if row["verdict"] != "ok":
        return flags(row)
    if (withheld := why_withheld(view, row)) is not None:
        return withheld
    if not is_faster(view, row):
        return "it is not surely faster than AR"
    return "it loses accuracy, or failed in it" if fails_accuracy(view, row) else "its accuracy is not shown to hold"


def elsewhere(view: View, row: Row) -> list[str]:
    """Under how many of its loads the cell was shown to be faster, where not under all; so, too, of other steps."""
    rated = [each for each in view.of(run_id=row["run_id"], cell_key=row["cell_key"]) if each["speedup"] is not None]
    loads = [each for each in view.rates() if (each["run_id"], each["cell_key"]) == (row["run_id"], row["cell_key"])]
    others = [each for each in rated if each not in loads]
    return [*_under(view, loads, "of its {} loads"), *_under(view, others, "of {} conditions of other steps")]


def _under(view: View, loads: Sequence[Row], of_them: str) -> list[str]:
    faster = [each for each in loads if is_faster(view, each)]
    if len(faster) == len(loads):
        return []
    slower = [each for each in loads if (pair := view.speed_pair(each)) is not None and pair["conclusion"] == "slower"]
    open_ones = [load_name(each) for each in loads if each not in (*faster, *slower)]
    said = f"Shown to be faster under {len(faster)} {of_them.format(len(loads))}"
    if 0 < len(open_ones) <= MOST_NAMED:
        said += f", not at {', '.join(open_ones)}"
    if slower:
        told = [f"{figure(each['speedup'])} {TIMES} {ar_name(each)} at {load_name(each)}" for each in slower]
        said += f", and slower under others: {', '.join(told)}"
    return [f"{said}."]


def claimed_elsewhere(view: View, here: Sequence[Row]) -> list[str]:
    """Where claims about the same model, precision and machine stand, under other conditions than these rows'."""
    first = here[0]
    others = [
        row
        for row in view.rows
        if (*bench(row), row["precision"]) == (*bench(first), first["precision"])
        and load_shape(row) != load_shape(first)
        and has_claim(view, row)
    ]
    if not others:
        return []
    told = [
        f"{technique_label(row)} {figure(row['speedup'])} {TIMES} {ar_name(row)} at {load_name(row)}" for row in others
    ]
    if len(others) > MOST_NAMED:
        told = [f"{number} of {step}" for step, number in Counter(row["step"] for row in others).items()]
    return [f"Claims stand under other conditions: {', '.join(told)}."]


def _points(view: View, row: Row) -> list[Row]:
    """The curve over K that the row is a point of; empty: it is of none."""
    names = ("step", "condition", "mode")
    mine = (point for point in view.k_curves if _cell_of(point) == (row["run_id"], row["cell_key"]))
    own = next((point for point in mine if all(point[name] == row[name] for name in names)), None)
    return [] if own is None else [point for point in view.k_curves if curve_of(point) == curve_of(own)]


def _cell_of(point: Row) -> tuple[str, str]:
    return measured_in(point), point["cell_key"]


def _recommendation(view: View, points: Sequence[Row]) -> Row | None:
    """What was recommended of these points together."""
    return next((each for each in view.recommendations if points and curve_of(each) == curve_of(points[0])), None)
