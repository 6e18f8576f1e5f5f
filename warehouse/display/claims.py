"""What the rows on the page carry: is a cell lossless, and which control is its parity read beside?"""

from __future__ import annotations

from warehouse.display.figures import Row
from warehouse.display.view import View
from warehouse.statistics.compare import carries_lossless


def lossless(view: View, row: Row) -> bool:
    """Whether parity, its control and the paired accuracy of a cell carry the word."""
    parity = next(iter(view.of(run_id=row["run_id"], cell_key=row["cell_key"], step="parity")), None)
    pair = view.accuracy_pair(row)
    if parity is None or pair is None:
        return False
    control = control_of(view, parity)
    return carries_lossless(_counts(parity), _counts(control), pair["conclusion"])


def control_of(view: View, parity: Row) -> Row | None:
    """The AR cell's parity row, second pass against first, that a parity row is read beside."""
    same = ("run_id", "model", "precision", "engine", "gpu")
    rows = view.of(step="parity", technique="ar", **{name: parity[name] for name in same})
    return next(iter(rows), None)


def _counts(row: Row | None) -> tuple[int, int] | None:
    if row is None or row["parity_n"] is None or row["verdict"] != "ok":
        return None
    return row["parity_equal"], row["parity_n"]
