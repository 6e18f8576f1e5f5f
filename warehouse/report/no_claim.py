"""Why the page states no speedup, in words: what was missing is what can be mended."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.ledger.verdicts import Reason
from warehouse.report.display.claims import has_interval, withheld_for
from warehouse.report.display.doubts import flags, is_ar_of
from warehouse.report.display.figures import TIMES, Row, ar_name, figure, rate, technique_label
from warehouse.report.display.view import View, bench, load_name, load_shape

REMEDY = "run it bracketed or mirrored"
"""The designs in which both arms have several starts on one machine: `configs.visits`."""


def no_speedup(view: View, here: Sequence[Row]) -> tuple[str, str]:
    """Verdict and evidence where no trusted row of a condition has a speedup.

    Args:
        view: the page's rows.
        here: the rates of one model, precision and machine under one condition.
    """
    unstated = f"No speedup can be stated{_where(view, here)}."
    baselines = _baselines(view, here)
    trusted = next((row for row in baselines if row["verdict"] == "ok"), None)
    if trusted is None and not _has_control(view, here):
        flagged = "".join(f" It is {flags(row)}." for row in baselines[:1])
        fastest = max((row for row in here if row["verdict"] == "ok"), key=lambda row: row["tok_s"], default=None)
        known = "" if fastest is None else f" {_ran(fastest)}"
        return unstated, f"There is no trusted AR row to divide by.{flagged}{known}"
    others = [row for row in here if row["technique"] != "ar"]
    why = "; ".join(f"{technique_label(row)} ({_why(row)})" for row in others if not fails_parity(row))
    sentences = [
        *([_ran(trusted)] if trusted is not None else []),
        *([f"What stands beside AR can't be divided by it: {why}."] if why else []),
        *parity_sentences(others),
    ]
    return unstated, " ".join(sentences)


def _where(view: View, here: Sequence[Row]) -> str:
    """` at short c=1`, where more was timed of the same model, precision and machine: it says nothing of that."""
    first = here[0]
    alike = [row for row in view.rows if bench(row) == bench(first) and row["precision"] == first["precision"]]
    is_all = all(load_shape(row) == load_shape(first) for row in alike if row["tok_s"] is not None)
    return "" if is_all else f" at {load_name(first)}"


PLACEBO_FAILED = "AR against AR reads as a difference"
ONE_START = "one start each"
NO_INTERVAL = "no interval"
NO_PLACEBO = "AR was not held against itself"


def why_withheld(view: View, row: Row) -> str | None:
    """Why a row with a speedup is no claim whatever its figures, in a few words; None: it may be one."""
    reason = withheld_for(view, row)
    if reason is Reason.PLACEBO_FAILED:
        return PLACEBO_FAILED
    if not has_interval(view, row):
        return NO_INTERVAL if _starts(view, row) > 2 else ONE_START
    return NO_PLACEBO if reason is Reason.NO_PLACEBO else None


def unclaimed(view: View, known: Sequence[Row]) -> tuple[str, str]:
    """Verdict and evidence where speedups are known, and `why_withheld` has a word about every one of them."""
    best = max(known, key=lambda row: row["speedup"])
    seen, why = f"{_ran(best)[:-1]}, {figure(best['speedup'])} {TIMES} {ar_name(best)}", why_withheld(view, best)
    no_claim = f"No claim{_where(view, known)}"
    if why == ONE_START:
        evidence = f"{seen}, within one start each, which says nothing about the next start: {REMEDY}."
        return f"{no_claim}: {ONE_START}.", evidence
    if why == NO_INTERVAL:
        pair = view.speed_pair(best)
        assert pair is not None, "it has starts"
        return f"{no_claim}: {NO_INTERVAL}.", f"{seen}. {technique_label(best)}: {pair['wording']}."
    doubt = "a speedup can't be told from what the machine did"
    if why == NO_PLACEBO:
        missing = f"No AR that passed its guards was started twice beside another arm, so {doubt}"
        return (
            f"{no_claim}: {NO_PLACEBO}.",
            f"{missing}. {seen}. See Placebo; run two cells or more, bracketed or mirrored.",
        )
    remedy = "See Placebo; run it again on a machine that holds still"
    return f"{no_claim}: {PLACEBO_FAILED} in this run.", f"Where AR differs from itself, {doubt}. {seen}. {remedy}."


def _starts(view: View, row: Row) -> int:
    """Of the cell and of AR together, behind its speedup."""
    pair = view.speed_pair(row)
    return 2 if pair is None else pair["visits"] + pair["baseline_visits"]


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


def _baselines(view: View, here: Sequence[Row]) -> list[Row]:
    """AR's rows of the condition: those among them, and of the model that one of them is held against."""
    shape = {(row["condition"], row["mode"]) for row in here}
    rates = [row for row in view.rates() if row["technique"] == "ar" and (row["condition"], row["mode"]) in shape]
    return [row for row in rates if any(is_ar_of(row, each) for each in here)]


def _has_control(view: View, here: Sequence[Row]) -> bool:
    """Whether a cell brought its own AR along and that is ok: an AR cell of the run is not needed then."""
    shapes = {(row["run_id"], row["cell_key"], row["condition"], row["mode"]) for row in here}
    return any(
        visit["role"] == "control"
        and visit["verdict"] == "ok"
        and (visit["run_id"], visit["cell_key"], visit["condition"], visit["mode"]) in shapes
        for visit in view.visits
    )
