"""Parity: its sections of the page."""

from __future__ import annotations

from warehouse.report.display.claims import control_of
from warehouse.report.display.figures import NOTHING, Row, figure, technique_label
from warehouse.report.display.markup import Markup, Section, section, tag
from warehouse.report.display.tables import Heading, naming, table, verdict_mark
from warehouse.report.display.view import View


def parity_section(view: View) -> Markup:
    """Token-for-token comparison, with AR against itself for comparison."""
    shown = view.of(step="parity")
    lead = (
        "The same prompts, greedily, with the technique off, on and off again. The control is AR's second pass, by a "
        "second start of its engine where the sweep has two, against its first: where AR does not repeat itself, a "
        "difference says nothing about the technique. Outputs that part "
        "where the two best tokens were all but equal were told apart by rounding; where one was clearly better, not."
    )
    if not shown:
        return section("parity", "Parity", lead, tag("p", "Parity has not been measured."))
    columns = [
        *naming(view.rows),
        Heading("equal outputs", lambda row: tag("span", _equal(row), class_="suspect" if _differs(row) else None)),
        Heading("first difference at token", _first),
        Heading("where they parted", lambda row: parting(row) or NOTHING, "wrap"),
        Heading("control: AR twice", lambda row: NOTHING if row["technique"] == "ar" else _control(view, row)),
        Heading("verdict", verdict_mark, ""),
    ]
    content = table("Greedy outputs compared with AR", columns, shown)
    return section("parity", "Parity", lead, _departures(view, shown), content)


def _departures(view: View, rows: list[Row]) -> Markup | None:
    """The finding that a table alone would hide: techniques that differ from AR although AR repeats itself."""
    left = [
        f"{technique_label(row)} ({_equal(row)} equal, first difference at token {_first(row)}"
        f"{'' if (words := parting(row)) is None else f'; {words}'})"
        for row in rows
        if _differs(row) and (control := control_of(view, row)) is not None and not _differs(control)
    ]
    if not left:
        return None
    return tag("p", f"Not the outputs of AR, though AR repeats itself in full: {', '.join(left)}.", class_="caveat")


def parting(row: Row) -> str | None:
    """Ties or not, in words; None: no output parted, or how sure the model was isn't known."""
    near, margin = row["parity_near_ties"], row["divergence_margin"]
    if near is None or margin is None:
        return None
    parted = row["parity_n"] - row["parity_equal"]
    if near == parted:
        all_of_them = "the one that parted did so" if parted == 1 else f"all {parted} parted"
        return f"{all_of_them} at a near tie (gap at most {margin:.2f} nats): floating-point ties"
    return f"{parted - near} of {parted} parted where the model was sure (gap {margin:.1f} nats): not a tie, look at it"


def _differs(row: Row) -> bool:
    return row["parity_n"] is not None and bool(row["parity_equal"] < row["parity_n"])


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


SECTIONS = (Section("parity", "Parity", parity_section, 50),)
