"""What other readers would have published of the same answers, side by side: the traps that graders fall into."""

from __future__ import annotations

from warehouse.ledger.verdicts import Reason
from warehouse.report.display.figures import NOTHING, Row, figure
from warehouse.report.display.markup import Child, Markup, join, tag
from warehouse.report.display.tables import Cell, Heading, fair_share, more, naming, table
from warehouse.report.display.view import View

LEAD = (
    "The same answers, read otherwise. Strict: what follows “The answer is”; flexible: the last option in brackets; "
    "first: the first letter anywhere, the thinking included; framework: its own default, answer by answer, and what "
    "it reported under its own metrics. Coloured figures are not the score that counts. Diagnostics, never used."
)

READERS = {
    "strict": ("strict",),
    "flexible": ("flexible",),
    "first": ("first", "first-letter"),
    "framework": ("framework",),
}
"""Columns of the table, and the extractors that are shown in each."""


def readers_table(view: View) -> Child:
    """One row per cell and evaluation; nothing where only one reader read."""
    others: dict[tuple[str, ...], list[Row]] = {}
    for row in view.diagnostics():
        others.setdefault(_evaluation(row), []).append(row)
    shown = [
        {**score, "others": others[_evaluation(score)]}
        for score in sorted(view.scores(), key=lambda row: row["step"])
        if _evaluation(score) in others
    ]
    if not shown:
        return None
    columns = [
        *naming(view.rows),
        Heading("evaluation", lambda row: row["step"], ""),
        Heading("counts", lambda row: figure(row["score"], 3)),
        *(Heading(title, _reader(extractors)) for title, extractors in READERS.items()),
        Heading("reported by the framework", _reported, ""),
    ]
    return join(
        [
            tag("h3", "What other readers would have published"),
            tag("p", LEAD, class_="lead"),
            table("Scores by other readers", columns, fair_share(shown, lambda row: row["step"])),
            more(shown, "results_consolidated"),
        ]
    )


def _evaluation(row: Row) -> tuple[str, ...]:
    return row["run_id"], row["cell_key"], row["step"]


def _reader(extractors: tuple[str, ...]) -> Cell:
    def shown(row: Row) -> Child:
        found = [other for other in row["others"] if other["extractor"] in extractors]
        return _score(found[0]) if found else NOTHING

    return shown


def _reported(row: Row) -> Markup:
    """Figures under the framework's own names."""
    read = {extractor for extractors in READERS.values() for extractor in extractors}
    found = [other for other in row["others"] if other["extractor"] not in read]
    if not found:
        return tag("span", NOTHING)
    first, *more = (join([f"{other['metric']} ", _score(other)]) for other in found)
    return join([first, *(join([", ", each]) for each in more)])


def _score(row: Row) -> Markup:
    """In colour where it is not what counts."""
    disagrees = Reason.EXTRACTORS_DISAGREE in (row["reasons"] or ())
    return tag("span", figure(row["score"], 3), class_="suspect" if disagrees else None)
