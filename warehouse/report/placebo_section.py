"""AR against AR: what the same comparison says where nothing can be different, and how noisy the machine was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import fsum
from operator import itemgetter
from statistics import geometric_mean

from configs.steps.load import category_of
from warehouse.dataset.statistics.starts import best_repeats
from warehouse.dataset.tables import SMOKE
from warehouse.ledger.verdicts import Reason
from warehouse.report.display.claims import has_interval, withheld_for
from warehouse.report.display.figures import NOTHING, Row, figure, plural, signed, span, technique_name
from warehouse.report.display.markup import Child, Markup, join, part, section, tag
from warehouse.report.display.tables import Heading, beside, naming, percent, table
from warehouse.report.display.view import MEMORY_STEP, View, cell_of, grouped, load_name

SHAPE = ("run_id", "gpu", "condition", "mode")
"""What a spread is of."""

_shape_of = itemgetter(*SHAPE)


def noises(view: View) -> list[Row]:
    """One per run, kind of machine and condition that has a spread, in the order of the rows.

    Several where parts of a run were consolidated apart (leases whose stores are gone): each has a spread of its own.
    """
    known = [row for row in view.rates if row["repeat_sd"] is not None or row["start_sd"] is not None]
    found = list[Row]()
    for rows in grouped(known, _shape_of).values():
        fits = dict.fromkeys(row["start_sd"] for row in rows if row["start_sd"] is not None)
        several = [[row for row in rows if row["start_sd"] == fit] for fit in fits] if len(fits) > 1 else [rows]
        for alike in several:
            names = dict.fromkeys(f"{row['model']} {technique_name(row)}" for row in alike)
            found.append({**_noise_of(view, alike), "whose": ", ".join(names) if len(several) > 1 else ""})
    return found


def _noise_of(view: View, rows: Sequence[Row]) -> Row:
    """Of one condition on one kind of machine in one run; shares of the rate, None where nothing shows it.

    `repeat_sd` is the root mean square over cells, `drift` is from one start to the next, `repeats` are per start.
    """
    first, shape, cells = rows[0], _shape_of(rows[0]), {row["cell_key"] for row in rows}
    start_sd = next((row["start_sd"] for row in rows if row["start_sd"] is not None), None)
    squares = [row["repeat_sd"] ** 2 for row in rows if row["repeat_sd"] is not None]
    repeat_var = fsum(squares) / len(squares) if squares else None
    visits, pairs = (
        [each for each in table if _shape_of(each) == shape and each["cell_key"] in cells]
        for table in (view.visits, view.pairs)
    )
    whole = [visit for visit in visits if visit["complete"] and visit["repeats"]]
    timed, start_s, best = [visit for visit in whole if visit["gpu_s"]], start_seconds(view, first["run_id"]), None
    if start_sd is not None and repeat_var is not None and start_s is not None and timed:
        repeat_s = fsum(visit["gpu_s"] for visit in timed) / fsum(visit["repeats"] for visit in timed)
        best = best_repeats(start_sd**2, repeat_var, start_s, repeat_s)
    return {
        **{name: first[name] for name in SHAPE},
        "start_sd": start_sd,
        "repeat_sd": None if repeat_var is None else math.sqrt(repeat_var),
        "drift": next((pair["drift"] for pair in pairs if pair["drift"] is not None), None),
        "repeats": fsum(visit["repeats"] for visit in whole) / len(whole) if whole else None,
        "best": best,
    }


def start_seconds(view: View, run_id: str) -> float | None:
    """Seconds of an engine start, mean over the run: weights, compiling, until it answers. None: not known.

    Of tries that ended well and recorded what starting took: in any other, a start may have left nothing to count.
    """
    tries = [row for row in view.attempts if row["run_id"] == run_id and row["outcome"] == "completed"]
    counted = [(row["load_s"], _starts_of(view, row)) for row in tries if row["load_s"] is not None]
    counted = [(load_s, starts) for load_s, starts in counted if starts]
    return fsum(load_s for load_s, _ in counted) / sum(starts for _, starts in counted) if counted else None


def _starts_of(view: View, tried: Row) -> int:
    """Engine starts of a try, by what they left: `visits`, and what isn't timed where that had its own start.

    That is the fourth start beside a control (`configs.visits.starts_of`), else it shares the cell's own start, which
    an earlier try may have done. Memory is read in the starts of the speeds, and leaves no rows there.
    """
    own = [visit for visit in view.visits if cell_of(visit) == cell_of(tried)]
    timed = {(visit["role"], visit["visit"]) for visit in own if visit["attempt"] == tried["attempt"]}
    steps = {MEMORY_STEP, *(visit["step"] for visit in own)}
    rows = view.of(run_id=tried["run_id"], cell_key=tried["cell_key"])
    others = [row for row in rows if row["step"] not in steps and row["metric"] != SMOKE]
    is_beside_control = any(visit["role"] == "control" for visit in own)
    is_apart = is_beside_control or not any(role == "cell" for role, _ in timed)
    return len(timed) + (is_apart and any(row["attempt"] == tried["attempt"] for row in others))


LEAD = (
    "AR's starts held against each other as any technique is held against AR. Nothing differs between them, so no "
    "difference should be seen; p is corrected for the conditions of the run (Holm). Where one is, the machine or the "
    "method saw what isn't there, and the run makes no claim about speed; nor where AR could not be held against "
    "itself. Each condition is tested alone: that none shows a difference doesn't say that all together show none."
)

NOISE_LEAD = (
    "Start sd is the spread from one engine start to the next, pooled over the run; repeat sd that within a start; "
    "drift what the machine changed by from one start to the next, which the comparisons have taken out (a dash: too "
    "few starts to tell one, so none is). The last column is how many repeats per start make the narrowest interval of "
    "the same machine time (Kalibera and Jones, arXiv 2007.10899): with fewer, starts are wasted; with more, repeats."
)


def placebo_section(view: View) -> Markup | None:
    """The A/A checks, what they cast doubt on, and the noise; None where no speed was measured."""
    if not view.rates:
        return None
    pairs = view.placebos()
    return section(
        "placebo",
        "A/A check",
        LEAD,
        _finding(pairs),
        _unheld(view, pairs),
        _pairs(view, pairs),
        _starts(view, pairs),
        _cut_short(view),
        _left_out(view),
        _noise(view),
    )


def _finding(pairs: Sequence[Row]) -> Markup:
    if not pairs:
        words = "No AR that passed its guards was started twice beside another arm, so it was not held against itself."
        return tag("p", f"{words} No speed on this page is a claim.", class_="caveat")
    failed = [pair for pair in pairs if pair["conclusion"] == "differs"]
    if not failed:
        return tag("p", f"AR against AR: no difference seen under any condition.{_power(pairs)}")
    where = "; ".join(dict.fromkeys(f"{pair['condition']} in run {pair['run_id']}" for pair in failed))
    words = f"AR against AR reads as a difference: {where}."
    runs = {pair["run_id"] for pair in failed}
    whose = "this run" if len(runs) == 1 else "these runs"
    return tag("p", tag("b", words), f" The speed claims of {whose} are withheld.", class_="caveat")


def _power(pairs: Sequence[Row]) -> str:
    """The least that the A/A checks of each run could have seen; nothing of a snapshot that doesn't know."""
    known = grouped([pair for pair in pairs if pair["ratio_detectable"] is not None], lambda pair: pair["run_id"])
    told = []
    for run_id, of_run in known.items():
        ratios = [pair["ratio_detectable"] for pair in of_run]
        least, most = _change(min(ratios), "a factor of"), _change(max(ratios), "a factor of")
        seen = least if least == most else f"{least} to {most} by condition"
        told.append(f"{seen} in run {run_id}" if len(known) > 1 else seen)
    smaller = "a smaller difference does not survive the correction of p"
    return f" It could not have seen less than {'; '.join(told)}: {smaller}." if told else ""


def _change(ratio: float | None, factor: str = "factor") -> str:
    """A ratio above 1 as a share; from a doubling on as a factor, since 6790.2% is hard to read.

    A hundred and more are all called that: more says nothing of a machine.
    """
    if ratio is None or ratio < 2:
        return percent(None if ratio is None else ratio - 1)
    return f"{factor} {figure(ratio, 1)}" if ratio < 100 else f"{factor} 100 or more"


def _unheld(view: View, pairs: Sequence[Row]) -> Child:
    """Whose claims are withheld because there is no A/A check of theirs, though there are some."""
    rows = [row for row in view.rates if has_interval(view, row) and withheld_for(view, row) is Reason.NO_PLACEBO]
    if not rows or not pairs:
        return None
    where = "; ".join(dict.fromkeys(f"{row['condition']} in run {row['run_id']}" for row in rows))
    words = f"AR was not held against itself: {where}. No speedup there is a claim."
    return tag("p", words, class_="caveat")


def _pairs(view: View, pairs: Sequence[Row]) -> Child:
    if not pairs:
        return None
    columns = [
        *naming([*view.rows, *pairs]),
        Heading("condition", load_name, ""),
        Heading("AR over AR", lambda pair: figure(pair["ratio"], 3)),
        Heading("95 % interval", lambda pair: span(pair["ratio_lo"], pair["ratio_hi"], 3)),
        Heading("could have seen", lambda pair: _change(pair["ratio_detectable"])),
        Heading("p (Holm)", lambda pair: figure(pair["ratio_p_holm"], 3)),
        Heading("conclusion", _conclusion, ""),
        Heading("starts", lambda pair: figure(pair["visits"] + pair["baseline_visits"], 0)),
        Heading("machine", lambda pair: pair["machine"] or NOTHING, ""),
    ]
    calm = [pair for pair in pairs if pair["conclusion"] == "inconclusive" and category_of(pair["condition"])]
    told = [pair for pair in pairs if not any(pair is each for each in calm)]
    shown = table("AR against AR", columns, told, "pairs", share=lambda pair: pair["run_id"])
    said = f"{len(calm)} more by category of prompts, no difference seen: in pairs.parquet."
    return join([shown, tag("p", said) if calm else None])


STARTS_LEAD = (
    "The conditions of a pair of starts share what the machine did between the two, which a test of each alone may "
    "miss: by chance the second start is slower in about half of them."
)


def _starts(view: View, pairs: Sequence[Row]) -> Child:
    """A line per pair of AR's starts: how the second was over all conditions; no claim hangs on it."""
    whole = [pair for pair in pairs if category_of(pair["condition"]) is None]
    found = grouped(whole, lambda pair: (*cell_of(pair), pair["machine"] or NOTHING))
    joint = [{**each[0], "ratios": [pair["ratio"] for pair in each]} for each in found.values() if len(each) > 1]
    if not joint:
        return None
    cells, named = beside(view.rows, joint)
    columns = [
        *naming([*view.rows, *joint]),
        cells,
        Heading("conditions", lambda pair: figure(len(pair["ratios"]), 0)),
        Heading("AR over AR, geometric mean", lambda pair: figure(geometric_mean(pair["ratios"]), 3)),
        Heading("second start slower in", lambda pair: figure(sum(ratio < 1 for ratio in pair["ratios"]), 0)),
        Heading("machine", lambda pair: pair["machine"] or NOTHING, ""),
    ]
    shown = table("AR's second start over its first", columns, joint, "pairs", named=named)
    return part("All conditions of two starts together", STARTS_LEAD, shown)


def _conclusion(pair: Row) -> Markup:
    if pair["conclusion"] == "inconclusive":
        return tag("span", "no difference seen", class_="ok")
    return tag("span", f"{pair['conclusion']}: it must not", class_="rejected")


def _cut_short(view: View) -> Child:
    """A note about starts that no figure is made of."""
    number = sum(not visit["complete"] for visit in view.visits)
    if not number:
        return None
    rows = f"{plural(number, 'row')} of visits.parquet {'was' if number == 1 else 'were'}"
    return tag("p", f"{rows} cut short and measured again on another machine: in no figure.")


_figure_of = itemgetter("run_id", "cell_key", "step", "condition", "mode", "machine")


def _left_out(view: View) -> Child:
    """A note about unsteady starts of cells whose figures are made of their other starts."""
    trusted = {_figure_of(row) for row in view.rates if row["verdict"] == "ok"}
    own = [visit for visit in view.visits if visit["role"] == "cell" and visit["complete"]]
    found = [visit for visit in own if visit["verdict"] != "ok" and _figure_of(visit) in trusted]
    if not found:
        return None
    names = "; ".join(f"{technique_name(each)}, start {each['visit']}, {load_name(each)}" for each in found)
    return tag("p", f"Unsteady, and left out of a figure that rests on the cell's other starts: {names}.")


def _noise(view: View) -> Child:
    rows = noises(view)
    if not rows:
        return None
    columns = [
        Heading("condition", _shape, ""),
        *(Heading(name, itemgetter(name), "") for name in ("gpu", "run_id") if len({row[name] for row in rows}) > 1),
        Heading("start sd", lambda row: percent(row["start_sd"])),
        Heading("repeat sd", lambda row: percent(row["repeat_sd"])),
        Heading("drift per start", _drift),
        Heading("repeats per start", lambda row: figure(row["repeats"], 1)),
        Heading("worth their cost", lambda row: figure(row["best"], 0)),
    ]
    return part("How much a speed varies", NOISE_LEAD, table("Noise by condition", columns, rows, "visits"))


def _drift(row: Row) -> str:
    return NOTHING if row["drift"] is None else f"{signed(100 * row['drift'], 2)} %"


def _shape(row: Row) -> Child:
    name = str(row["condition"]) if row["mode"] == "fixed" else f"{row['condition']} ({row['mode']})"
    return join([name, tag("small", row["whose"]) if row["whose"] else None])
