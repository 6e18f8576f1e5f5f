"""Each technique against AR, question by question: the figures, the verdict and what it means in words."""

from __future__ import annotations

from warehouse.report.display.claims import lossless
from warehouse.report.display.doubts import cut_off_words
from warehouse.report.display.figures import NOTHING, Row, figure, signed
from warehouse.report.display.markup import Markup, join, tag
from warehouse.report.display.tables import MOST_ROWS, Heading, fair_share, more, naming, table
from warehouse.report.display.view import View, favour

TITLE = "Against AR, question by question"

LEAD = (
    "Difference to AR on the same questions. p is that of no difference (exact McNemar test; over questions with "
    "several answers, Student's t), that of a loss of the margin is one-sided; both are corrected for all cells of the "
    "run by Holm. “Could have seen” is the smallest difference that so many questions show with 80 % power. “Lossless” "
    "is only written where parity and its control are complete as well, every evaluation of the cell passed and was "
    "compared, none shows a loss of any size, not significantly more answers are cut off than of AR, and no fewer "
    "needles are found."
)

NO_WORSE = {"non-inferior": "yes", "worse": "no: worse", "inconclusive": "can't be said"}
"""Whether a technique is no worse than AR, within the margin."""


def paired_table(view: View) -> Markup:
    """All accuracy comparisons on the page, one evaluation after the other."""
    pairs = sorted((pair for pair in view.pairs if pair["kind"] == "accuracy"), key=lambda pair: pair["step"])
    if not pairs:
        return tag("p", "No technique could be compared with AR question by question.")
    if len(pairs) > MOST_ROWS:  # what is left out must not be the losses
        pairs.sort(key=lambda pair: (pair["step"], *favour(pair)))
    columns = [
        *naming(view.rows),
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
    return join(
        [
            tag("h3", TITLE),
            tag("p", LEAD, class_="lead"),
            table("Paired accuracy differences", columns, fair_share(pairs, lambda pair: pair["step"])),
            more(pairs, "pairs"),
        ]
    )


def _p(p: float | None) -> str:
    return "< 0.001" if p is not None and p < 0.001 else figure(p, 3)


def _verdict(view: View, pair: Row) -> str:
    """The answer to "no worse?"; that more answers were cut off belongs to it, whatever the score."""
    if lossless(view, pair):
        return "yes: lossless"
    said, cut_off = NO_WORSE.get(pair["conclusion"], NOTHING), cut_off_words(view, pair)
    joined = "but" if pair["conclusion"] == "non-inferior" else "and"
    return said if cut_off is None else f"{said}, {joined} {cut_off}"
