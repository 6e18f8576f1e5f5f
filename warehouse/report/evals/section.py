"""The page's section about accuracy: all evaluations, whoever asked them."""

from __future__ import annotations

from collections.abc import Callable

from warehouse.report.display.figures import NOTHING, Row, figure, plural, span
from warehouse.report.display.markup import Markup, tag
from warehouse.report.display.plots import score_dots
from warehouse.report.display.section import FEWEST_BARS, plot, section
from warehouse.report.display.speed_sections import plots_of
from warehouse.report.display.tables import Heading, fair_share, more, naming, on_card, table, verdict_mark
from warehouse.report.display.view import View, bench
from warehouse.report.evals.paired_table import TITLE, paired_table
from warehouse.report.evals.readers_table import readers_table

LEAD = (
    "Read off the last answer of the body, thinking on (IFEval: checked by a program). A score's interval says how far "
    "one arm could be off; whether a technique loses accuracy is decided against AR's on the same questions"
)
"""Goes on with where, which only a page with a comparison has."""

MOST_DOTS = 40
"""Most scores in one plot: as many as a phone's screen has lines for."""

MOST_PLOTS = 24
"""Most plots on the page; the tables go on where they end."""


def accuracy_section(view: View) -> Markup:
    """Scores, what each technique costs against AR on the same questions, and what careless readers make of them."""
    shown = sorted(view.scores(), key=lambda row: row["step"])
    if not shown:
        return section("accuracy", "Accuracy", f"{LEAD}.", tag("p", "No evaluation has been scored."))
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in shown:
        groups.setdefault((row["step"], *bench(row)), []).append(row)
    compared = [rows for rows in groups.values() if len(rows) >= FEWEST_BARS]
    card = on_card(shown)
    drawings = [_plot(rows, card(rows[0])) for rows in compared[:MOST_PLOTS]]
    undrawn = len(compared) - MOST_PLOTS
    is_decided = any(pair["kind"] == "accuracy" for pair in view.pairs)
    return section(
        "accuracy",
        "Accuracy",
        f"{LEAD}, below (“{TITLE}”)." if is_decided else f"{LEAD}.",
        plots_of(drawings),
        tag("p", f"{plural(undrawn, 'plot')} more would follow; their scores are below.") if undrawn > 0 else None,
        table("Scores", _columns(view, shown), fair_share(shown, lambda row: row["step"])),
        more(shown, "results_consolidated"),
        paired_table(view),
        readers_table(view),
    )


def _plot(rows: list[Row], card: str) -> Markup:
    first, left = rows[0], len(rows) - MOST_DOTS
    rest = f" {plural(left, 'score')} more in results_consolidated.parquet." if left > 0 else ""
    return plot("Scores", f"{first['step']}: {first['model']}{card}.{rest}", score_dots(rows[:MOST_DOTS]))


def _columns(view: View, rows: list[Row]) -> list[Heading]:
    columns = [
        *naming(view.rows),
        Heading("evaluation", lambda row: row["step"], ""),
        Heading("score", lambda row: figure(row["score"], 3)),
        Heading("95 % interval", lambda row: span(row["score_lo"], row["score_hi"], 3)),
        Heading("verdict", verdict_mark, ""),
        Heading("questions", lambda row: figure(row["n"], 0)),
        Heading("answers each", lambda row: figure(row["samples"], 0)),
        Heading("cut off", _share("truncated")),
        Heading("blank", _share("blank")),
    ]
    if any(row["readers_agree"] is not None for row in rows):
        columns.append(Heading("readers agree", lambda row: _percent(row["readers_agree"])))
    if any(row["framework"] is not None for row in rows):
        columns.append(Heading("asked by", _framework, ""))
    return columns


def _share(column: str) -> Callable[[Row], str]:
    """A count of answers as a share of all; where there are no `samples`, a question has one answer."""

    def shown(row: Row) -> str:
        return NOTHING if row[column] is None else _percent(row[column] / (row["n"] * (row["samples"] or 1)))

    return shown


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.1%}"


def _framework(row: Row) -> str:
    return " ".join(filter(None, (row["framework"], row["framework_version"]))) or NOTHING
