"""The page's section about accuracy: each technique against AR, question by question, whatever framework asked."""

from __future__ import annotations

from functools import partial
from operator import itemgetter

from warehouse.dataset.tables import DIAGNOSTIC_EXTRACTORS
from warehouse.ledger.verdicts import Reason
from warehouse.report.display.claims import cut_off_words, lossless
from warehouse.report.display.figures import NOTHING, Row, figure, plural, signed, span
from warehouse.report.display.markup import FEWEST_BARS, Child, Markup, join, part, plot, plots_of, section, tag
from warehouse.report.display.plots import score_dots
from warehouse.report.display.tables import MOST_ROWS, Heading, naming, on_card, percent, table, verdict_mark
from warehouse.report.display.view import View, bench, favour, grouped

TITLE = "Against AR, question by question"
PRECISION, PRECISION_TITLE = "precision", "Against another precision, question by question"
PRECISION_LEAD = (
    "Difference to AR of another precision on the same questions, as the sweep's rows name it (held_against). "
    "Otherwise as above: both tables share one correction."
)

_step, _evaluation = itemgetter("step"), itemgetter("run_id", "cell_key", "step")

PAIRED_LEAD = (
    "Difference to AR on the same questions. p is that of no difference (exact McNemar test; over questions with "
    "several answers, Student's t), that of a loss of the margin is one-sided; both are corrected for all cells of the "
    "run by Holm. “Could have seen” is the smallest difference that so many questions show with 80 % power. “Lossless” "
    "is only written where parity and its control are complete as well, every evaluation of the cell passed and was "
    "compared, none shows a loss of any size, not significantly more answers are cut off than of AR, and no fewer "
    "needles are found."
)

NO_WORSE = {"non-inferior": "yes", "worse": "no: worse", "inconclusive": "can't be said"}
"""Whether a technique is no worse than AR, within the margin."""


def paired_table(view: View, kind: str) -> Child:
    """All comparisons of a kind on the page, one evaluation after the other."""
    pairs = sorted((pair for pair in view.pairs if pair["kind"] == kind), key=_step)
    if not pairs and kind == PRECISION:
        return None
    if not pairs:
        return tag("p", "No technique could be compared with AR question by question.")
    if len(pairs) > MOST_ROWS:  # what is left out must not be the losses
        pairs.sort(key=lambda pair: (pair["step"], *favour(pair)))
    columns = [
        *naming(view.rows),
        *([Heading("compared with", _reference, "")] if kind == PRECISION else []),
        Heading("evaluation", lambda pair: pair["step"], ""),
        Heading("difference", lambda pair: signed(pair["delta"])),
        Heading("95 % interval", lambda pair: f"{signed(pair['delta_lo'])} to {signed(pair['delta_hi'])}"),
        Heading("no worse?", lambda pair: _verdict(view, pair), ""),
        Heading("in words", lambda pair: pair["wording"], "wrap"),
        Heading("questions", lambda pair: figure(pair["n"], 0)),
        Heading("gained / lost", lambda pair: f"{pair['gained']} / {pair['lost']}"),
        Heading("p (Holm)", lambda pair: _p(pair["mcnemar_p_holm"])),
        Heading("p of a loss of the margin", lambda pair: _p(pair["ni_p_holm"])),
        Heading("margin", lambda pair: f"{pair['margin']:g}"),
        Heading("could have seen", lambda pair: figure(pair["mde"], 3)),
        Heading("cut off, difference", lambda pair: signed(pair["truncated_delta"])),
    ]
    if any(pair["served_differently"] for pair in pairs):
        columns.append(Heading("served differently", lambda pair: ", ".join(pair["served_differently"] or ()), ""))
    title, lead = (PRECISION_TITLE, PRECISION_LEAD) if kind == PRECISION else (TITLE, PAIRED_LEAD)
    return part(title, lead, table("Paired accuracy differences", columns, pairs, "pairs", share=_step))


def _reference(pair: Row) -> str:
    return f"AR of {pair['compared_as']} {pair['baseline_precision']}"


def _p(p: float | None) -> str:
    return "< 0.001" if p is not None and p < 0.001 else figure(p, 3)


def _verdict(view: View, pair: Row) -> str:
    """The answer to "no worse?"; that more answers were cut off belongs to it, whatever the score."""
    if pair["kind"] != PRECISION and lossless(view, pair):
        return "yes: lossless"
    said, cut_off = NO_WORSE.get(pair["conclusion"], NOTHING), cut_off_words(view, pair)
    joined = "but" if pair["conclusion"] == "non-inferior" else "and"
    return said if cut_off is None else f"{said}, {joined} {cut_off}"


READERS_LEAD = (
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
    others = grouped([row for row in view.rows if row["extractor"] in DIAGNOSTIC_EXTRACTORS], _evaluation)
    scores = [score for score in sorted(view.scores, key=_step) if _evaluation(score) in others]
    shown = [{**score, "others": others[_evaluation(score)]} for score in scores]
    if not shown:
        return None
    columns = [
        *naming(view.rows),
        Heading("evaluation", lambda row: row["step"], ""),
        Heading("counts", lambda row: figure(row["score"], 3)),
        *(Heading(title, partial(_read_by, extractors)) for title, extractors in READERS.items()),
        Heading("reported by the framework", _reported, ""),
    ]
    content = table("Scores by other readers", columns, shown, "results_consolidated", share=_step)
    return part("What other readers would have published", READERS_LEAD, content)


def _read_by(extractors: tuple[str, ...], row: Row) -> Child:
    found = [other for other in row["others"] if other["extractor"] in extractors]
    return _score(found[0]) if found else NOTHING


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
    shown = sorted(view.scores, key=_step)
    if not shown:
        return section("accuracy", "Accuracy", f"{LEAD}.", tag("p", "No evaluation has been scored."))
    groups = grouped(shown, lambda row: (row["step"], *bench(row))).values()
    compared = [rows for rows in groups if len(rows) >= FEWEST_BARS]
    card, drawings = on_card(shown), []
    for rows in compared[:MOST_PLOTS]:
        first, left = rows[0], len(rows) - MOST_DOTS
        rest = f" {plural(left, 'score')} more in results_consolidated.parquet." if left > 0 else ""
        note = f"{first['step']}: {first['model']}{card(first)}.{rest}"
        drawings.append(plot("Scores", note, score_dots(rows[:MOST_DOTS])))
    undrawn = len(compared) - MOST_PLOTS
    is_decided = any(pair["kind"] == "accuracy" for pair in view.pairs)
    return section(
        "accuracy",
        "Accuracy",
        f"{LEAD}, below (“{TITLE}”)." if is_decided else f"{LEAD}.",
        plots_of(drawings),
        tag("p", f"{plural(undrawn, 'plot')} more would follow; their scores are below.") if undrawn > 0 else None,
        table("Scores", _columns(view, shown), shown, "results_consolidated", share=_step),
        paired_table(view, "accuracy"),
        paired_table(view, PRECISION),
        readers_table(view),
    )


def _columns(view: View, rows: list[Row]) -> list[Heading]:
    columns = [
        *naming(view.rows),
        Heading("evaluation", lambda row: row["step"], ""),
        Heading("score", lambda row: figure(row["score"], 3)),
        Heading("95 % interval", lambda row: span(row["score_lo"], row["score_hi"], 3)),
        Heading("verdict", verdict_mark, ""),
        Heading("questions", lambda row: figure(row["n"], 0)),
        Heading("answers each", lambda row: figure(row["samples"], 0)),
        Heading("cut off", partial(_share, "truncated")),
        Heading("blank", partial(_share, "blank")),
    ]
    if any(row["readers_agree"] is not None for row in rows):
        columns.append(Heading("readers agree", lambda row: percent(row["readers_agree"])))
    if any(row["framework"] is not None for row in rows):
        columns.append(Heading("asked by", _framework, ""))
    return columns


def _share(column: str, row: Row) -> str:
    """A count of answers as a share of all; where there are no `samples`, a question has one answer."""
    return NOTHING if row[column] is None else percent(row[column] / (row["n"] * (row["samples"] or 1)))


def _framework(row: Row) -> str:
    return " ".join(filter(None, (row["framework"], row["framework_version"]))) or NOTHING
