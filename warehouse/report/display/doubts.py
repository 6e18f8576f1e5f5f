"""What keeps a cell's accuracy from being vouched for: evaluations that weren't compared with AR, needles it lost."""

from __future__ import annotations

from typing import NamedTuple

from warehouse.ledger.verdicts import Reason, Verdict
from warehouse.report.display.figures import Row, ar_model
from warehouse.report.display.view import View

AR_OF = ("run_id", "precision", "engine", "gpu")
"""What a cell shares with the AR cell that it is compared with, whose model is `ar_model`."""


class Doubt(NamedTuple):
    """One evaluation of a cell that doesn't speak for it."""

    step: str
    verdict: Verdict | None
    """Of the cell's own row; None: it has none."""
    is_compared: bool
    """Whether there is a comparison with AR nevertheless, as the evidence for a finding."""
    why: str


def doubts(view: View, row: Row) -> list[Doubt]:
    """Evaluations that count and whose row is not ok, or that have no comparison though AR has that evaluation."""
    ours = {each["step"]: each for each in view.scores() if _is_of(each, row)}
    theirs = {each["step"]: each for each in view.scores() if is_ar_of(each, row)}
    unscored = {each["step"]: each for each in view.rows if each["step"] in theirs and _is_of(each, row)}
    compared = {pair["step"] for pair in view.accuracy_pairs(row)}
    found = []
    for step in sorted({*ours, *theirs}):
        own = ours.get(step) or unscored.get(step)
        why = _why(own, theirs.get(step), is_compared=step in compared)
        if why is not None:
            found.append(Doubt(step, None if own is None else own["verdict"], step in compared, why))
    return found


def _why(own: Row | None, ar: Row | None, *, is_compared: bool) -> str | None:
    if own is None:
        return "not measured"
    if own["verdict"] != "ok":
        return flags(own)
    if is_compared or ar is None:
        return None
    return "not the same questions, or read otherwise" if ar["verdict"] == "ok" else f"AR's is {flags(ar)}"


def flags(row: Row) -> str:
    """Verdict and reason codes, `rejected: looping_text`."""
    reasons = ", ".join(row["reasons"] or ())
    return f"{row['verdict']}: {reasons}" if reasons else str(row["verdict"])


def cut_off_words(view: View, pair: Row) -> str | None:
    """`cuts off more`, or fewer, where that was a finding in the evaluation of this comparison; None: it wasn't."""
    rows = (each for each in view.scores() if each["step"] == pair["step"] and _is_of(each, pair))
    if not any(Reason.TRUNCATION_DIFFERS in each["reasons"] for each in rows):
        return None
    return "cuts off fewer" if (pair["truncated_delta"] or 0) < 0 else "cuts off more"


def lost_needles(view: View, row: Row) -> list[str]:
    """Places at which both were asked and the cell found fewer hidden sentences than AR, or its row can't be used."""
    asked = [each for each in view.of(step="needle") if each["score"] is not None]
    theirs = {each["condition"]: each for each in asked if is_ar_of(each, row) and each["verdict"] == "ok"}
    found = []
    for each in asked:
        ar = theirs.get(each["condition"])
        if ar is None or not _is_of(each, row):
            continue
        if each["verdict"] != "ok":
            found.append(f"{each['condition']} ({flags(each)})")
        elif each["score"] < ar["score"]:
            found.append(f"{each['condition']} ({_found(each)}, AR {_found(ar)})")
    return found


def _found(row: Row) -> str:
    return f"{round(row['score'] * row['n'])} of {row['n']}"


def _is_of(each: Row, row: Row) -> bool:
    return (each["run_id"], each["cell_key"]) == (row["run_id"], row["cell_key"])


def is_ar_of(each: Row, row: Row) -> bool:
    """Whether the first row is of the AR cell with which the second one's is compared, or which it is."""
    is_its_model = each["technique"] == "ar" and each["model"] == ar_model(row)
    return is_its_model and all(each[name] == row[name] for name in AR_OF)
