"""Eval-tiny: how many questions a cell answers correctly, and what it loses against AR on the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.columns import Column, Table
from warehouse.consolidate.inputs import Group
from warehouse.consolidate.rows import Made
from warehouse.consolidate.scores import scores_and_pairs
from warehouse.display.claims import lossless
from warehouse.display.figures import Row, figure, signed
from warehouse.display.markup import Child, Markup, join, tag
from warehouse.display.plots import score_dots
from warehouse.display.section import Section, plot, section
from warehouse.display.tables import Heading, naming, table, verdict_mark
from warehouse.display.view import View, bench
from warehouse.tables import ROW_IDENTITY

if TYPE_CHECKING:  # nodes import this file and have no polars
    from warehouse.consolidate.raw import Raw

EVAL_ITEMS = Table(
    "eval_items",
    "one answered question",
    (
        *ROW_IDENTITY,
        Column("item_id", "str", "the question, the same in every cell", required=True),
        Column("kind", "str", "which sort of question"),
        Column("gold", "str", "the right answer"),
        Column("last_letter", "str", "extractor last-letter: last answer letter of the body; null: none found"),
        Column("first_letter", "str", "extractor first-letter: first letter anywhere, thinking included"),
        Column("finish_reason", "str", "as the engine said; length means cut off"),
        Column("completion_tokens", "i64", "from usage", "tokens"),
        Column("body", "str", "the answer without the thinking, as the model wrote it"),
        Column("reasoning", "str", "the thinking, as the model wrote it"),
    ),
)

TABLES = (EVAL_ITEMS,)


def rows(group: Group, raw: Raw) -> Made:
    """The score that counts, the one that shows where a grader would lie, and the comparison with AR."""
    return scores_and_pairs(group, raw, EVAL_ITEMS)


def accuracy_section(view: View) -> Markup:
    """Scores, and what each technique costs against AR on the same questions."""
    shown = view.scores()
    lead = (
        "Read off the last answer letter of the body, thinking on. A score's interval says how far one arm could be "
        "off; whether a technique loses accuracy is decided on the same questions, in the second table."
    )
    if not shown:
        return section("accuracy", "Accuracy", lead, tag("p", "No evaluation has been scored."))
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in shown:
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
        "accuracy",
        "Accuracy",
        lead,
        tag("div", *drawings, class_="plots"),
        table("Scores", columns, shown),
        _paired(view),
        _traps(view),
    )


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
    return join(
        [
            tag("h3", "Against AR, question by question"),
            tag("p", lead, class_="lead"),
            table("Paired accuracy differences", columns, pairs),
        ]
    )


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
    return join(
        [
            tag("h3", "The grading trap"),
            tag("p", lead, class_="lead"),
            table("Scores by the first letter", columns, rows),
        ]
    )


SECTIONS = (Section("accuracy", "Accuracy", accuracy_section, 40),)
