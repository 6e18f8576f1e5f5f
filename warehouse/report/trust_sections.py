"""Sections about trust: what was flagged, how the tries went, and where every number comes from."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from warehouse.ledger.placement import Offer
from warehouse.ledger.tables import PROVENANCE_COLUMNS
from warehouse.report.display.figures import NOTHING, Row, figure, moment, plural, rate, technique_label, usd
from warehouse.report.display.markup import Markup, tag
from warehouse.report.display.section import section
from warehouse.report.display.tables import MOST_ROWS, Heading, more, naming, table, verdict_mark
from warehouse.report.display.view import View, load_shape

LOG_CHARS = 2000
"""Last characters of an attempt's log on the page; all of it is in the dataset."""


def flagged_section(view: View) -> Markup:
    """Every row that is not ok, with its reasons in full."""
    rows = view.flagged()
    lead = (
        "Rejected rows can't be true or can't be used; suspect ones need a look. None enters a comparison above, "
        "except that one flagged only for cutting off more or fewer answers than AR keeps its own, which says so."
    )
    if not rows:
        return section("flagged", "Rejected and suspect", lead, tag("p", "Every row passed its guards."))
    columns = [
        *naming(view.rows),
        Heading("reasons", lambda row: ", ".join(row["reasons"]), "short"),
        Heading("condition", lambda row: " ".join(filter(None, (row["condition"], row["mode"]))) or NOTHING, "short"),
        Heading("verdict", verdict_mark, ""),
        Heading("what was found", lambda row: "; ".join(row["details"] or ()) or NOTHING, "wrap"),
        Heading("figure", _figure),
        Heading("step", lambda row: row["step"], ""),
    ]
    shown = table("Rejected and suspect rows", columns, rows[:MOST_ROWS])
    return section("flagged", "Rejected and suspect", lead, shown, more(rows, "results_consolidated"))


def _figure(row: Row) -> str:
    if row["tok_s"] is not None:
        return f"{rate(row['tok_s'])} tok/s"
    if row["score"] is not None:
        return f"score {figure(row['score'], 3)}"
    if row["tpot_ms"] is not None:
        return f"TPOT {figure(row['tpot_ms'])} ms"
    return NOTHING


def attempts_section(view: View) -> Markup:
    """How every try of every cell went, the newest first, and the logs that were kept."""
    attempts = sorted(view.attempts, key=lambda row: row["ended_at"] or "", reverse=True)
    lead = "Failed and preempted tries are rows too, and what they cost is counted."
    if not attempts:
        return section("attempts", "Attempts", lead, tag("p", "No attempt has been closed yet."))
    columns = [
        *naming(attempts),
        Heading("try", lambda row: figure(row["attempt"], 0)),
        Heading("ended", lambda row: row["outcome"], ""),
        Heading("why", lambda row: row["reason"] or NOTHING, "wrap"),
        Heading("seconds", lambda row: figure(row["rented_s"] or row["wall_s"], 0)),
        Heading("cost", lambda row: usd(row["cost_usd"])),
        Heading("at", lambda row: moment(row["ended_at"]), ""),
    ]
    if any(row["rented_s"] is not None for row in attempts):
        columns.append(Heading("where", _where, ""))
    if any(row["tried"] for row in attempts):
        columns.append(Heading("tried before", lambda row: row["tried"] or NOTHING, "wrap"))
    logs = [_log(row) for row in attempts[:MOST_ROWS] if row["log_tail"]]
    shown = table("Attempts", columns, attempts[:MOST_ROWS])
    summary = tag("p", _spent(view, attempts))
    return section("attempts", "Attempts", lead, summary, shown, more(attempts, "attempts"), *logs)


def _spent(view: View, attempts: Sequence[Row]) -> str:
    """What all tries took: no sum of prices that nobody knows, and a word where cells have none on record."""
    spent_s = fsum(row["rented_s"] or row["wall_s"] or 0.0 for row in attempts)
    priced = [row["cost_usd"] for row in attempts if row["cost_usd"] is not None]
    said = [plural(len(attempts), "attempt"), f"{figure(spent_s / 60, 1)} minutes of machines"]
    if priced:
        of_some = "" if len(priced) == len(attempts) else f" for the {len(priced)} with a price"
        said.append(f"{usd(fsum(priced))}{of_some}")
    tried = {(row["run_id"], row["cell_key"]) for row in attempts}
    lacking = len({(row["run_id"], row["cell_key"]) for row in view.rows} - tried)
    missing = f" Of {plural(lacking, 'cell')} on this page no attempt is on record." if lacking else ""
    return f"{', '.join(said)}.{missing}"


def _cell_name(row: Row) -> str:
    return f"{row['model']} {row['precision']} {technique_label(row)}"


def _where(row: Row) -> str:
    """The rented machine, e.g. `aws/us-east-1a spot`."""
    if row["rented_s"] is None:
        return NOTHING
    return Offer.model_validate({name: row[name] for name in Offer.model_fields}).where


def _log(row: Row) -> Markup:
    title = f"Log of {_cell_name(row)} in {row['run_id']}, try {row['attempt']} ({row['outcome']})"
    return tag("details", tag("summary", title), tag("pre", row["log_tail"][-LOG_CHARS:]))


def provenance_section(view: View) -> Markup:
    """Conditions, and for every cell what served it, where, and at which versions."""
    lead = "Where every number comes from: command lines, versions, revisions and machines, as recorded with the rows."
    shapes = {load_shape(row): row for row in view.rows if row["condition"]}
    columns = [
        Heading("condition", lambda row: row["condition"], ""),
        Heading("mode", lambda row: row["mode"], ""),
        Heading("context, tokens", lambda row: figure(row["context_tokens"], 0)),
        Heading("output, tokens", lambda row: figure(row["output_tokens"], 0)),
        Heading("concurrency", lambda row: figure(row["concurrency"], 0)),
    ]
    conditions = table("Conditions", columns, list(shapes.values())) if shapes else None
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in view.rows:
        cells.setdefault((row["run_id"], row["cell_key"]), []).append(row)
    shown = [_cell(rows) for rows in list(cells.values())[:MOST_ROWS]]
    return section("provenance", "Conditions and provenance", lead, conditions, *shown)


def _cell(rows: Sequence[Row]) -> Markup:
    first = rows[0]
    title = _cell_name(first)
    names = ["cell_key", "run_id", "engine", "gpu", "weights", *(column.name for column in PROVENANCE_COLUMNS)]
    values = {name: _values(rows, name) for name in dict.fromkeys(names)}
    items = [part for name, text in values.items() if text for part in (tag("dt", name), tag("dd", tag("code", text)))]
    reproduce = tag("p", "Run it again: ", tag("code", f"sweep reproduce {first['cell_key']}"))
    return tag("details", tag("summary", title), tag("dl", *items), reproduce)


def _values(rows: Sequence[Row], name: str) -> str:
    """The column's distinct values over the cell's steps; more than one is worth seeing."""
    return " | ".join(dict.fromkeys(str(row[name]) for row in rows if row[name] is not None))
