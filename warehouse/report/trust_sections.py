"""Sections about trust: what is not measured or was flagged, how the tries went, where every number comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum

from warehouse.ledger.placement import Offer
from warehouse.ledger.tables import PROVENANCE_COLUMNS
from warehouse.report.display.figures import NOTHING, Row, figure, moment, plural, rate, technique_label, usd
from warehouse.report.display.markup import Markup, section, tag
from warehouse.report.display.tables import MOST_ROWS, Heading, naming, table, verdict_mark
from warehouse.report.display.view import View, cell_of, grouped, load_shape

UNMEASURED, UNMEASURED_TITLE = "not-measured", "Not measured"

MOST_NAMED = 4
"""Cells that the page's head names; the table has all."""

UNMEASURED_LEAD = (
    "Cells that were tried and ended without all that their suite asks: the engine did not start, the machine was lost "
    "too often, smoke rejected the cell. What they lack is in no table here. Why is what their last attempt said; "
    "Attempts has the others, and logs."
)


def unfinished(view: View) -> list[Row]:
    """The last attempt of every cell and kind of machine that did not end well and left something unmeasured."""
    ordered = sorted(view.attempts, key=lambda row: (row["ended_at"] or "", row["attempt"] or 0))
    last = {(row["cell_key"], row["gpu"]): row for row in ordered}
    found = [row for row in last.values() if row["outcome"] != "completed" and row["unmeasured"]]
    return sorted(found, key=lambda row: (row["model"], row["precision"], technique_label(row), row["run_id"]))


def unmeasured_section(view: View) -> Markup | None:
    """A row per such cell; None: there is none."""
    rows = unfinished(view)
    if not rows:
        return None
    tries = Counter(map(cell_of, view.attempts))
    begun = set(map(cell_of, view.rows))
    columns = [
        *naming([*view.rows, *rows]),
        Heading("why", lambda row: row["reason"] or NOTHING, "wrap"),
        Heading("lacks", lambda row: ", ".join(row["unmeasured"]) if cell_of(row) in begun else "everything", "wrap"),
        Heading("ended", lambda row: row["outcome"], ""),
        Heading("tries", lambda row: figure(tries[cell_of(row)], 0)),
    ]
    content = table("Cells that are not measured", columns, rows, "attempts")
    return section(UNMEASURED, UNMEASURED_TITLE, UNMEASURED_LEAD, content)


def unmeasured_caveats(view: View) -> list[str]:
    """A sentence with the names of such cells; none where there is none."""
    rows = unfinished(view)
    if not rows:
        return []
    several = len({row["model"] for row in [*view.rows, *rows]}) > 1
    names = [*dict.fromkeys(f"{row['model']} " * several + technique_label(row) for row in rows)]
    left = len(names) - MOST_NAMED
    others = f" and {plural(left, 'other')}" if left > 0 else ""
    return [f"Tried, and not measured or not whole: {', '.join(names[:MOST_NAMED])}{others}. See {UNMEASURED_TITLE}."]


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
    shown = table("Rejected and suspect rows", columns, rows, "results_consolidated")
    return section("flagged", "Rejected and suspect", lead, shown)


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
    logs: list[Markup] = []
    for row in attempts[:MOST_ROWS]:
        title = f"Log of {_cell_name(row)} in {row['run_id']}, try {row['attempt']} ({row['outcome']})"
        end = (row["log_tail"] or "")[-2000:]  # all of it is in the dataset
        logs += [tag("details", tag("summary", title), tag("pre", end))] if end else []
    shown = table("Attempts", columns, attempts, "attempts")
    return section("attempts", "Attempts", lead, tag("p", _spent(view, attempts)), shown, *logs)


def _spent(view: View, attempts: Sequence[Row]) -> str:
    """What all tries took. Only known prices are summed, and a note says where cells have no try on record."""
    spent_s = fsum(row["rented_s"] or row["wall_s"] or 0.0 for row in attempts)
    priced = [row["cost_usd"] for row in attempts if row["cost_usd"] is not None]
    said = [plural(len(attempts), "attempt"), f"{figure(spent_s / 60, 1)} minutes of machines"]
    if priced:
        of_some = "" if len(priced) == len(attempts) else f" for the {len(priced)} with a price"
        said.append(f"{usd(fsum(priced))}{of_some}")
    lacking = len({*map(cell_of, view.rows)} - {*map(cell_of, attempts)})
    missing = f" Of {plural(lacking, 'cell')} on this page no attempt is on record." if lacking else ""
    return f"{', '.join(said)}.{missing}"


def _cell_name(row: Row) -> str:
    return f"{row['model']} {row['precision']} {technique_label(row)}"


def _where(row: Row) -> str:
    """The rented machine, e.g. `aws/us-east-1a spot`."""
    if row["rented_s"] is None:
        return NOTHING
    return Offer.model_validate({name: row[name] for name in Offer.model_fields}).where


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
    shown = [_recorded(rows) for rows in [*grouped(view.rows, cell_of).values()][:MOST_ROWS]]
    return section("provenance", "Conditions and provenance", lead, conditions, *shown)


def _recorded(rows: Sequence[Row]) -> Markup:
    """Each column's distinct values over a cell's steps: more than one is worth seeing."""
    names = ["cell_key", "run_id", "engine", "gpu", "weights", *(column.name for column in PROVENANCE_COLUMNS)]
    items: list[Markup] = []
    for name in dict.fromkeys(names):
        if text := " | ".join(dict.fromkeys(str(row[name]) for row in rows if row[name] is not None)):
            items += [tag("dt", name), tag("dd", tag("code", text))]
    reproduce = tag("p", "Run it again: ", tag("code", f"sweep reproduce {rows[0]['cell_key']}"))
    return tag("details", tag("summary", _cell_name(rows[0])), tag("dl", *items), reproduce)
