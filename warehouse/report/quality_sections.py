"""Sections about outputs: are they the same, and are they as right?"""

from __future__ import annotations

from warehouse.report.answer import control_of, lossless
from warehouse.report.figures import NOTHING, Row, figure, signed, technique_label
from warehouse.report.markup import Child, Markup, join, tag
from warehouse.report.plots import score_dots
from warehouse.report.speed_sections import plot, section
from warehouse.report.tables import Heading, naming, table, verdict_mark
from warehouse.report.view import View, bench


def parity_section(view: View) -> Markup:
    """Token-for-token comparison, with AR against itself beside it."""
    rows = view.of(step="parity")
    lead = (
        "The same prompts, greedily, with the technique off, on and off again. The control is AR's second pass against "
        "its first: where AR does not repeat itself, a difference says nothing about the technique."
    )
    if not rows:
        return section("parity", "Parity", lead, tag("p", "Parity has not been measured."))
    columns = [
        *naming(view.rows),
        Heading("equal outputs", _equal_mark),
        Heading("first difference at token", lambda row: _first(row)),
        Heading("control: AR twice", lambda row: NOTHING if row["technique"] == "ar" else _control(view, row)),
        Heading("verdict", verdict_mark, ""),
    ]
    return section(
        "parity", "Parity", lead, _departures(view, rows), table("Greedy outputs compared with AR", columns, rows)
    )  # fmt: skip


def _departures(view: View, rows: list[Row]) -> Markup | None:
    """The finding that a table alone would hide: techniques that differ from an AR that does not."""
    left = [
        f"{technique_label(row)} ({_equal(row)} equal, first difference at token {_first(row)})"
        for row in rows
        if _differs(row) and (control := control_of(view, row)) is not None and not _differs(control)
    ]
    if not left:
        return None
    return tag("p", f"Not the outputs of AR, though AR repeats itself in full: {', '.join(left)}.", class_="caveat")


def _differs(row: Row) -> bool:
    return row["parity_n"] is not None and bool(row["parity_equal"] < row["parity_n"])


def _equal_mark(row: Row) -> Markup:
    return tag("span", _equal(row), class_="suspect" if _differs(row) else None)


def _equal(row: Row) -> str:
    if row["parity_n"] is None:
        return NOTHING
    text = f"{row['parity_equal']} of {row['parity_n']}"
    return f"{text} (twice itself)" if row["technique"] == "ar" else text


def _first(row: Row) -> str:
    if row["parity_n"] is None:
        return NOTHING
    return "none" if row["first_divergence"] is None else figure(row["first_divergence"], 0)


def _control(view: View, row: Row) -> str:
    control = control_of(view, row)
    return NOTHING if control is None else _equal(control).removesuffix(" (twice itself)")


def accuracy_section(view: View) -> Markup:
    """Scores, and what each technique costs against AR on the same questions."""
    rows = view.scores()
    lead = (
        "Read off the last answer letter of the body, thinking on. A score's interval says how far one arm could be "
        "off; whether a technique loses accuracy is decided on the same questions, in the second table."
    )
    if not rows:
        return section("accuracy", "Accuracy", lead, tag("p", "No evaluation has been scored."))
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((*bench(row), row["step"]), []).append(row)
    drawings = [plot("Scores", f"{key[0]}, {key[3]}.", score_dots(groups[key])) for key in sorted(groups)]
    columns = [
        *naming(view.rows),
        Heading("step", lambda row: row["step"], ""),
        Heading("score", lambda row: figure(row["score"], 3)),
        Heading("standard error", lambda row: figure(row["score_stderr"], 3)),
        Heading("questions", lambda row: figure(row["n"], 0)),
        Heading("cut off", lambda row: figure(row["truncated"], 0)),
        Heading("blank", lambda row: figure(row["blank"], 0)),
        Heading("verdict", verdict_mark, ""),
    ]
    return section(
        "accuracy", "Accuracy", lead,
        tag("div", *drawings, class_="plots"), table("Scores", columns, rows), _paired(view), _traps(view),
    )  # fmt: skip


def _paired(view: View) -> Markup:
    pairs = [pair for pair in view.pairs if pair["kind"] == "accuracy"]
    if not pairs:
        return tag("p", "No technique could be compared with AR question by question.")
    margin = pairs[0]["margin"]
    columns = [
        *naming(view.rows),
        Heading("difference", lambda pair: signed(pair["delta"])),
        Heading("95 % interval", lambda pair: f"{signed(pair['delta_lo'])} to {signed(pair['delta_hi'])}"),
        Heading("questions", lambda pair: figure(pair["n"], 0)),
        Heading("gained / lost", lambda pair: f"{pair['gained']} / {pair['lost']}"),
        Heading("McNemar p", lambda pair: figure(pair["mcnemar_p"], 3)),
        Heading("could have seen", lambda pair: figure(pair["mde"], 3)),
        Heading(f"no worse within {margin:g}?", lambda pair: _words(view, pair), ""),
    ]
    lead = (
        "Difference to AR on the same questions (Tango's interval, exact McNemar test). “Could have seen” is the "
        "smallest difference that so many questions show with 80 % power; “lossless” is only written where parity and "
        "its control are complete as well."
    )
    return join([tag("h3", "Against AR, question by question"), tag("p", lead, class_="lead"),
                 table("Paired accuracy differences", columns, pairs)])  # fmt: skip


def _words(view: View, pair: Row) -> str:
    if lossless(view, pair):
        return "yes: lossless"
    return {"non-inferior": "yes", "worse": "no: worse", "inconclusive": "can't be said"}[pair["conclusion"]]


def _traps(view: View) -> Child:
    rows = view.diagnostics()
    if not rows:
        return None
    columns = [
        *naming(view.rows),
        Heading("first letter", lambda row: figure(row["score"], 3)),
        Heading("verdict", verdict_mark, ""),
        Heading("why", lambda row: "; ".join(row["details"] or ()), "wrap"),
    ]
    lead = (
        "The same answers, read at the first letter anywhere, the thinking included: what a careless grader would have "
        "published. Kept as a diagnostic, never used."
    )
    return join([
        tag("h3", "The grading trap"), tag("p", lead, class_="lead"), table("Scores by the first letter", columns, rows)
    ])  # fmt: skip
