"""Why the page states no speedup, in words: what was missing is what can be mended."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.display.claims import has_interval, placebo_failed
from warehouse.display.doubts import flags
from warehouse.display.figures import TIMES, Row, figure, rate, technique_label
from warehouse.display.view import View
from warehouse.verdicts import Reason

REMEDY = "run it bracketed or mirrored"
"""The designs in which both arms have several starts on one machine: `configs.visits`."""


def no_speedup(view: View, here: Sequence[Row]) -> tuple[str, str]:
    """Verdict and evidence where no row of a condition has a speedup.

    Args:
        view: the page's rows.
        here: the rates of one model, precision and machine under one condition.
    """
    baselines = [row for row in here if row["technique"] == "ar"]
    trusted = next((row for row in baselines if row["verdict"] == "ok"), None)
    if trusted is None and not _has_control(view, here):
        flagged = "".join(f" It is {flags(row)}." for row in baselines[:1])
        fastest = max((row for row in here if row["verdict"] == "ok"), key=lambda row: row["tok_s"], default=None)
        known = "" if fastest is None else f" {_ran(fastest)}"
        return "No speedup can be stated.", f"There is no trusted AR row to divide by.{flagged}{known}"
    others = [row for row in here if row["technique"] != "ar"]
    why = "; ".join(f"{technique_label(row)} ({_why(row)})" for row in others if not fails_parity(row))
    sentences = [
        *([_ran(trusted)] if trusted is not None else []),
        *([f"Nothing beside it can be divided by that: {why}."] if why else []),
        *parity_sentences(others),
    ]
    return "No speedup can be stated.", " ".join(sentences)


def withheld(view: View, drafted: Sequence[Row]) -> tuple[str, str] | None:
    """Verdict and evidence where speedups are known, and none of them is a claim; None: some may be."""
    best = max(drafted, key=lambda row: row["speedup"])
    seen = f"{_ran(best)[:-1]}, {figure(best['speedup'])} {TIMES} AR"
    if placebo_failed(view, best):
        verdict = "No claim: AR against AR reads as a difference in this run."
        why = "Where AR differs from itself, a speedup can't be told from what the machine did"
        return verdict, f"{why}. {seen}. See Placebo; run it again on a machine that holds still."
    if any(has_interval(view, row) for row in drafted):
        return None
    verdict = "No claim: one start each."
    return verdict, f"{seen}, within one start each, which says nothing about the next start: {REMEDY}."


def fails_parity(row: Row) -> bool:
    """Whether the row's cell is lossless by its method and its outputs aren't AR's."""
    return Reason.PARITY_FAILED in (row["reasons"] or ())


def parity_sentences(rows: Sequence[Row]) -> list[str]:
    """Why cells whose outputs aren't AR's are not recommended, however fast; none where all are."""
    failed = [f"{technique_label(row)}, {rate(row['tok_s'])} tokens/s" for row in rows if fails_parity(row)]
    if not failed:
        return []
    their = "its outputs leave" if len(failed) == 1 else "their outputs leave"
    return [f"Not recommended: {their} AR's where AR repeats itself ({'; '.join(failed)})."]


def _why(row: Row) -> str:
    if row["verdict"] != "ok":
        return flags(row)
    return "; ".join(row["details"] or ()) or "no AR was measured on its machine"


def _ran(row: Row) -> str:
    return f"{technique_label(row)} ran at {rate(row['tok_s'])} tokens/s."


def _has_control(view: View, here: Sequence[Row]) -> bool:
    """Whether a cell brought its own AR along and that is ok: an AR cell of the run is not needed then."""
    shapes = {(row["run_id"], row["cell_key"], row["condition"], row["mode"]) for row in here}
    return any(
        visit["role"] == "control"
        and visit["verdict"] == "ok"
        and (visit["run_id"], visit["cell_key"], visit["condition"], visit["mode"]) in shapes
        for visit in view.visits
    )
