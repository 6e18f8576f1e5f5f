"""Why the page states no speedup (what is missing can be mended), and how far a recommendation of it reaches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from warehouse.dataset.curves import AR_K
from warehouse.ledger.verdicts import Reason
from warehouse.report.display.claims import (
    doubts,
    flags,
    has_claim,
    has_interval,
    is_ar_of,
    is_faster,
    lost_needles,
    withheld_for,
)
from warehouse.report.display.figures import TIMES, Row, ar_name, figure, rate, technique_label
from warehouse.report.display.view import View, bench, cell_of, curve_of, load_name, load_shape, measured_in


def no_speedup(view: View, here: Sequence[Row]) -> tuple[str, str]:
    """Verdict and evidence where no trusted row has a speedup; `here`: of a model, precision, machine and condition."""
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
    """Verdict and evidence where speedups are known, and `why_withheld` has a reason for every one of them."""
    best = max(known, key=lambda row: row["speedup"])
    seen, why = f"{_ran(best)[:-1]}, {figure(best['speedup'])} {TIMES} {ar_name(best)}", why_withheld(view, best)
    no_claim = f"No claim{_where(view, known)}"
    if why == ONE_START:
        remedy = "run it bracketed or mirrored"
        evidence = f"{seen}, within one start each, which says nothing about the next start: {remedy}."
        return f"{no_claim}: {ONE_START}.", evidence
    if why == NO_INTERVAL:
        pair = view.speed_pair(best)
        assert pair is not None, "it has starts"
        return f"{no_claim}: {NO_INTERVAL}.", f"{seen}. {technique_label(best)}: {pair['wording']}."
    doubt = "a speedup can't be told from what the machine did"
    if why == NO_PLACEBO:
        missing = f"No AR that passed its guards was started twice beside another arm, so {doubt}"
        evidence = f"{missing}. {seen}. See A/A check; run two cells or more, bracketed or mirrored."
        return f"{no_claim}: {NO_PLACEBO}.", evidence
    remedy = "See A/A check; run it again on a machine that holds still"
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
    """AR's rows of the condition: those in `here`, and those of a model that a row of `here` is compared with."""
    shape = {(row["condition"], row["mode"]) for row in here}
    rates = [row for row in view.rates if row["technique"] == "ar" and (row["condition"], row["mode"]) in shape]
    return [row for row in rates if any(is_ar_of(row, each) for each in here)]


def _has_control(view: View, here: Sequence[Row]) -> bool:
    """Whether a cell brought its own AR along and that is ok: an AR cell of the run is not needed then."""
    shape = itemgetter("run_id", "cell_key", "condition", "mode")
    controls = (visit for visit in view.visits if (visit["role"], visit["verdict"]) == ("control", "ok"))
    return not {*map(shape, here)}.isdisjoint(map(shape, controls))


MOST_NAMED = 4
"""Loads that a sentence names; of more it has the number."""


def is_carried(view: View, row: Row) -> bool:
    """Whether the data support a cell's accuracy: it has evaluations, each ok, compared with AR's and no worse."""
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
    """What the rule said of the row's curve, where there was a choice, and, if it isn't followed, why."""
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
    rates = (row for row in view.rates if load_shape(row) == load_shape(best))
    return next((row for row in rates if cell_of(row) in cells), None)


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
    loads = [each for each in view.rates if cell_of(each) == cell_of(row)]
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
    """Where claims about the same model, precision and machine are, under other conditions than these rows'."""
    first = here[0]
    alike = (row for row in view.rows if bench(row) == bench(first) and row["precision"] == first["precision"])
    others = [row for row in alike if load_shape(row) != load_shape(first) and has_claim(view, row)]
    if not others:
        return []
    gains = [f"{figure(row['speedup'])} {TIMES} {ar_name(row)} at {load_name(row)}" for row in others]
    told = [f"{technique_label(row)} {gain}" for row, gain in zip(others, gains, strict=True)]
    if len(others) > MOST_NAMED:
        told = [f"{number} of {step}" for step, number in Counter(row["step"] for row in others).items()]
    return [f"Claims stand under other conditions: {', '.join(told)}."]


def _points(view: View, row: Row) -> list[Row]:
    """The curve over K that the row is a point of; empty: it is of none."""
    load = itemgetter("step", "condition", "mode")
    mine = (point for point in view.k_curves if _cell_of(point) == cell_of(row))
    own = next((point for point in mine if load(point) == load(row)), None)
    return [] if own is None else [point for point in view.k_curves if curve_of(point) == curve_of(own)]


def _cell_of(point: Row) -> tuple[str, str]:
    return measured_in(point), point["cell_key"]


def _recommendation(view: View, points: Sequence[Row]) -> Row | None:
    """What was recommended of these points together."""
    return next((each for each in view.recommendations if points and curve_of(each) == curve_of(points[0])), None)
