"""What the rows on the page support: is a cell lossless, and beside which control is its parity read?"""

from __future__ import annotations

from warehouse.display.figures import Row
from warehouse.display.view import View
from warehouse.statistics.compare import carries_lossless
from warehouse.verdicts import Reason


def lossless(view: View, row: Row) -> bool:
    """Whether a cell's parity, its control and its paired accuracy together support the word.

    One that rambles doesn't deserve it: a score as good as AR's, reached with more answers cut off.
    """
    parity = next(iter(view.of(run_id=row["run_id"], cell_key=row["cell_key"], step="parity")), None)
    pair = view.accuracy_pair(row)
    if parity is None or pair is None or _rambles(view, row):
        return False
    control = control_of(view, parity)
    return carries_lossless(_counts(parity), _counts(control), pair["conclusion"])


def in_words(pair: Row) -> str:
    """What an accuracy comparison says, as it was worded from its figures; of old snapshots, only the conclusion."""
    if pair["wording"] is not None:
        return str(pair["wording"])
    points = f"{100 * pair['margin']:g} points"
    return {
        "non-inferior": f"no worse within {points} (one-sided 95 %)",
        "worse": "worse",
        "inconclusive": f"cannot tell: too few questions to rule out a loss of {points}",
    }[pair["conclusion"]]


def _rambles(view: View, row: Row) -> bool:
    cell = (row["run_id"], row["cell_key"])
    scores = (score for score in view.scores() if (score["run_id"], score["cell_key"]) == cell)
    return any(Reason.TRUNCATION_DIFFERS in score["reasons"] for score in scores)


def control_of(view: View, parity: Row) -> Row | None:
    """The AR cell's parity row (second pass against first), beside which a parity row is read; None: there is none."""
    same = ("run_id", "model", "precision", "engine", "gpu")
    rows = view.of(step="parity", technique="ar", **{name: parity[name] for name in same})
    return next(iter(rows), None)


def _counts(row: Row | None) -> tuple[int, int] | None:
    if row is None or row["parity_n"] is None or row["verdict"] != "ok":
        return None
    return row["parity_equal"], row["parity_n"]
