"""What the rows on the page support: is a cell faster, is it lossless, and what keeps its accuracy from being so?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from warehouse.dataset.statistics.accuracy import carries_lossless
from warehouse.ledger.verdicts import Reason, Verdict
from warehouse.report.display.figures import NOTHING, Row, ar_model, figure, span
from warehouse.report.display.tables import Heading
from warehouse.report.display.view import View, cell_of


class Doubt(NamedTuple):
    """One evaluation of a cell that doesn't support its accuracy."""

    step: str
    verdict: Verdict | None
    """Of the cell's own row; None: it has none."""
    is_compared: bool
    """Whether there is a comparison with AR nevertheless, as the evidence for a finding."""
    why: str


def doubts(view: View, row: Row) -> list[Doubt]:
    """Evaluations that count and whose row is not ok, or that have no comparison though AR has that evaluation."""
    ours = {each["step"]: each for each in view.scores if _is_of(each, row)}
    theirs = {each["step"]: each for each in view.scores if is_ar_of(each, row)}
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
    rows = (each for each in view.scores if each["step"] == pair["step"] and _is_of(each, pair))
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
    return cell_of(each) == cell_of(row)


def is_ar_of(each: Row, row: Row) -> bool:
    """Whether the first row is of the AR cell with which the second one's is compared, or which it is."""
    is_its_model = each["technique"] == "ar" and each["model"] == ar_model(row)
    return is_its_model and all(each[name] == row[name] for name in ("run_id", "precision", "engine", "gpu"))


def is_faster(view: View, row: Row) -> bool:
    """Whether the comparison of its starts with AR's says so, in a run whose AR was seen to be as fast as itself."""
    return has_claim(view, row, ("faster",))


def has_claim(view: View, row: Row, conclusions: Sequence[str] = ("faster", "slower")) -> bool:
    """Whether that comparison says one of these."""
    pair = view.speed_pair(row)
    is_claimed = pair is not None and pair["conclusion"] in conclusions
    return row["verdict"] == "ok" and is_claimed and withheld_for(view, row) is None


def has_interval(view: View, row: Row) -> bool:
    """Whether its speedup has an interval over starts, so that it is a claim, or fails to be one."""
    pair = view.speed_pair(row)
    return pair is not None and pair["ratio_lo"] is not None


def withheld_for(view: View, row: Row) -> Reason | None:
    """Why its speed is no claim: AR against AR read as a difference in its run, or was not made under its condition.

    The pair says so; so do the A/A checks, of which a snapshot may have none though its pairs don't know their need.
    """
    pair = view.speed_pair(row)
    said = () if pair is None else pair["reasons"] or ()
    placebos = [each for each in view.placebos() if each["run_id"] == row["run_id"]]
    if Reason.PLACEBO_FAILED in said or any(each["conclusion"] == "differs" for each in placebos):
        return Reason.PLACEBO_FAILED
    load = (row["step"], row["condition"], row["mode"])
    is_made = any((each["step"], each["condition"], each["mode"]) == load for each in placebos)
    return Reason.NO_PLACEBO if Reason.NO_PLACEBO in said or not is_made else None


def lossless(view: View, row: Row) -> bool:
    """Whether a cell's parity, its control and its paired accuracy together support the word, in every evaluation.

    An evaluation that was rejected, could not be compared or cuts off more answers denies it. Needles are too few to
    compare, but the cell must not find fewer of them than AR.
    """
    parity = next(iter(view.of(run_id=row["run_id"], cell_key=row["cell_key"], step="parity")), None)
    pairs = view.accuracy_pairs(row)
    if parity is None or not pairs:
        return False
    counts, control = _counts(parity), _counts(control_of(view, parity))
    for pair in pairs:
        p = pair["mcnemar_p"] if pair["mcnemar_p_holm"] is None else pair["mcnemar_p_holm"]  # a cell may claim nothing
        if not carries_lossless(counts, control, pair["conclusion"], pair["delta"], p):
            return False
    return not doubts(view, row) and not lost_needles(view, row)


def control_of(view: View, parity: Row) -> Row | None:
    """The AR cell's parity row (second pass against first), with which a parity row is compared; None: it has none."""
    return next((row for row in view.of(step="parity") if is_ar_of(row, parity)), None)


def _counts(row: Row | None) -> tuple[int, int] | None:
    if row is None or row["parity_n"] is None or row["verdict"] != "ok":
        return None
    return row["parity_equal"], row["parity_n"]


def speedup_columns(view: View) -> list[Heading]:
    """Speedup, its interval, and what the comparison with AR says, corrected for the run's other cells."""

    def claim(row: Row) -> str:
        pair = view.speed_pair(row)
        return NOTHING if pair is None else str(pair["conclusion"])

    return [
        Heading("speedup", lambda row: figure(row["speedup"])),
        Heading("95 % interval", lambda row: span(row["speedup_lo"], row["speedup_hi"])),
        Heading("claim", claim, ""),
    ]
