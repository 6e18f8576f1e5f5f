"""Published figures of the same cells, next to what was measured here."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from warehouse.report.display.figures import NOTHING, Row, figure, plural, rate, span
from warehouse.report.display.markup import Child, Markup, section, tag
from warehouse.report.display.tables import Heading, naming, table, verdict_mark
from warehouse.report.display.view import View
from warehouse.report.published.read import Published
from warehouse.report.published.twins import Twin, twins

NAMES = {
    "speedup": "speedup over AR",
    "tok_s": "tokens/s",
    "prefill_tok_s": "prompt tokens/s",
    "decode_tok_s": "tokens/s without prefill",
    "peak_tok_s": "tokens/s at the best moment",
    "chars_s": "characters/s",
    "wall_s": "seconds of an answer",
    "ttft_ms": "TTFT, ms",
    "tpot_ms": "TPOT, ms",
    "score": "score",
    "memory_gb": "GB of memory",
}
"""Figures as people call them."""

DIGITS = {"ttft_ms": 1, "score": 3, "memory_gb": 1}
"""Decimals; two for any other, and for rates what rates have."""

RATES = ("tok_s", "peak_tok_s", "chars_s")
"""Columns that are rates."""

LEAD = (
    "Of the same model, precision, technique, K and load, as far as each source says. Figures that "
    "contradict others of their source or the card are marked; only ok ones are divided. A speedup is a ratio "
    "over AR on one machine and is compared across machines, with that caveat, and so are scores and memory; rates and "
    "latencies of another card are shown and never divided. Prompts are rarely the same."
)


def beside_section(view: View) -> Markup | None:
    """Our rows that have a published twin, and both figures; None where none has."""
    found = twins([row for row in view.rows if row["verdict"] != "rejected"], view.published)
    if not found:
        return None
    rows = [{**twin.row, "twin": twin} for twin in found]
    flagged = {id(twin.published): twin.published for twin in found if twin.published.row.verdict != "ok"}
    title, columns, share = "Published beside measured", [*naming(view.rows), *_HEADINGS], itemgetter("cell_key")
    shown = table(title, columns, rows, "results_consolidated", share=share)
    return section("beside", title, LEAD, shown, _flagged([*flagged.values()]), _sources(found))


def _flagged(published: Sequence[Published]) -> Child:
    """Why published rows of the table are not ok, in the guards' own words."""
    if not published:
        return None
    items = []
    for write_up, row in published:
        noted = "" if row.note is None else f" (noted there: {row.note})"
        items.append(tag("p", tag("b", f"{write_up.name}, {row.condition}: "), f"{'; '.join(row.details)}{noted}."))
    title = f"{plural(len(published), 'published row')} that our guards flag"
    return tag("details", tag("summary", title), *items)


def _sources(found: Sequence[Twin]) -> Markup:
    """What each source of the table measured on and how, folded up."""
    known = {twin.published.write_up.name: twin.published.write_up for twin in found}
    items = [
        tag("p", tag("b", f"{each.name}: "), f"{each.title}. {each.source}. {each.date}; {each.hardware}; "
            f"{each.engine}. {each.method}")
        for each in known.values()
    ]  # fmt: skip
    return tag("details", tag("summary", f"How {plural(len(items), 'source')} measured"), *items)


def _ours(row: Row) -> str:
    twin: Twin = row["twin"]
    return rate(twin.ours) if twin.column in RATES else figure(twin.ours, DIGITS.get(twin.figure, 2))


def _theirs(row: Row) -> Markup:
    """As its source prints it, in the colour of its verdict."""
    verdict = row["twin"].published.row.verdict
    return tag("span", f"{row['twin'].theirs:.10g}", class_=None if verdict == "ok" else verdict)


def _interval(row: Row) -> str:
    twin: Twin = row["twin"]
    if twin.interval is None:
        return NOTHING
    digits = (0 if twin.ours >= 100 else 1) if twin.column in RATES else DIGITS.get(twin.figure, 2)
    return span(*twin.interval, digits)


_HEADINGS = (
    Heading("figure", lambda row: NAMES[row["twin"].figure], ""),
    Heading("ours", _ours),
    Heading("published", _theirs),
    Heading("ours / theirs", lambda row: figure(row["twin"].ratio)),
    Heading("our 95 % interval", _interval),
    Heading("theirs within", lambda row: {None: NOTHING, True: "yes", False: "no"}[row["twin"].is_within], ""),
    Heading("our condition", lambda row: row["condition"] or row["metric"] or NOTHING, ""),
    Heading("source, card, date", lambda row: "{0.name}, {0.gpu}, {0.date}".format(row["twin"].published.write_up), ""),
    Heading("their verdict", lambda row: verdict_mark({"verdict": row["twin"].published.row.verdict}), ""),
    Heading("what differs", lambda row: "; ".join(row["twin"].differs) or NOTHING, "wrap"),
)
