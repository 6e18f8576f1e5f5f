"""What the rows on the page support: is a cell faster, is it lossless, beside which control is its parity read?"""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.dataset.statistics.compare import carries_lossless
from warehouse.ledger.verdicts import Reason
from warehouse.report.display.doubts import doubts, is_ar_of, lost_needles
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View


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

    The pair says so; so do the placebos, of which a snapshot may have none though its pairs don't know that they need
    one. None: AR was held against itself, and no difference was seen.
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

    One evaluation that was rejected or could not be compared takes it away, and so does one that rambles: a score as
    good as AR's, reached with more answers cut off. Of needles, too few to compare, it may not find fewer than AR.
    """
    parity = next(iter(view.of(run_id=row["run_id"], cell_key=row["cell_key"], step="parity")), None)
    pairs = view.accuracy_pairs(row)
    if parity is None or not pairs:
        return False
    counts, control = _counts(parity), _counts(control_of(view, parity))
    carried = all(carries_lossless(counts, control, pair["conclusion"], pair["delta"], _p(pair)) for pair in pairs)
    return carried and not doubts(view, row) and not lost_needles(view, row)


def _p(pair: Row) -> float:
    """That there is no difference; uncorrected where the cell may claim nothing."""
    p: float = pair["mcnemar_p"] if pair["mcnemar_p_holm"] is None else pair["mcnemar_p_holm"]
    return p


def control_of(view: View, parity: Row) -> Row | None:
    """The AR cell's parity row (second pass against first), beside which a parity row is read; None: there is none."""
    return next((row for row in view.of(step="parity") if is_ar_of(row, parity)), None)


def _counts(row: Row | None) -> tuple[int, int] | None:
    if row is None or row["parity_n"] is None or row["verdict"] != "ok":
        return None
    return row["parity_equal"], row["parity_n"]
