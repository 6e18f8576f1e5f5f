"""Tables of the page: columns as data, so that a section is a list of headings and the rows below them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from configs.steps.throughput import NATURAL
from warehouse.ledger.verdicts import VERDICTS
from warehouse.report.display.figures import (
    NOTHING,
    Row,
    ar_name,
    figure,
    marks,
    plural,
    rate,
    significant,
    span,
    technique_sign,
    usd,
)
from warehouse.report.display.markup import Child, Markup, join, tag
from warehouse.report.display.view import LOAD_STEP

MOST_ROWS = 400
"""Most rows of one kind on the page: years of them wouldn't fit a phone. Tables say how many more there are."""

Cell = Callable[[Row], Child]
"""Turns a row into the content of one of its cells."""


class Heading(NamedTuple):
    """One column of a page's table; kinds: "n" numbers, to the right; "wrap" long text; "short" some words; "" else."""

    title: str
    cell: Cell
    kind: str = "n"


def table(
    label: str,
    headings: Sequence[Heading],
    rows: Sequence[Row],
    file: str | None = None,
    *,
    share: Callable[[Row], object] = lambda _: None,
    named: Sequence[Row] = (),
) -> Markup:
    """Rows in a box that scrolls sideways on its own; the first column stays in sight.

    `label` is for screen readers. `file`: the table with the rows beyond `MOST_ROWS`; None: all are shown. `share`: the
    group of a row, each shown as far as the room goes. `named`: others whose names a column has.
    """
    shown, left = (rows, 0) if file is None else (fair_share(rows, share), len(rows) - MOST_ROWS)
    first, *others = headings
    head = tag("tr", *(tag("th", column.title, scope="col", class_=column.kind or None) for column in headings))
    body = []
    for row in shown:
        cells = (tag("td", column.cell(row), class_=column.kind or None) for column in others)
        body.append(tag("tr", tag("th", first.cell(row), scope="row"), *cells))
    inside = tag("table", tag("thead", head), tag("tbody", *body))
    box = tag("div", inside, class_="scroll", role="region", aria_label=label, tabindex=0)
    signs = dict.fromkeys(mark for row in (*shown, *named) for mark in marks(row))
    legend = "; ".join(f"{mark.sign} {mark.words}" for mark in signs)
    more = tag("p", f"{plural(left, 'row')} more in {file}.parquet.") if left > 0 else None
    return join([box, tag("p", legend, class_="signs") if signs else None, more])


def beside(cells: Sequence[Row], controls: Sequence[Row]) -> tuple[Heading, list[Row]]:
    """The column that names the cell which a control was started for, and the rows whose signs it shows."""
    asked = {control["cell_key"] for control in controls}
    named = {row["cell_key"]: row for row in cells if row["cell_key"] in asked}
    names = {key: technique_sign(row) for key, row in named.items()}
    return Heading("beside", lambda control: names.get(control["cell_key"], NOTHING), ""), [*named.values()]


def fair_share(rows: Sequence[Row], group: Callable[[Row], object]) -> list[Row]:
    """At most `MOST_ROWS` of the rows, in their order: of every group its first ones, so that none hides the others."""
    if len(rows) <= MOST_ROWS:
        return [*rows]
    seen: Counter[object] = Counter()
    ranks = []
    for place, row in enumerate(rows):
        ranks.append((seen[group(row)], place))
        seen[group(row)] += 1
    return [rows[place] for place in sorted(place for _, place in sorted(ranks)[:MOST_ROWS])]


def without_empty(columns: Sequence[Heading], rows: Sequence[Row]) -> list[Heading]:
    """Columns in which any row has something: what a kind of machine never reports is left out."""
    first, *others = columns
    return [first, *(each for each in others if any(each.cell(row) != NOTHING for row in rows))]


def verdict_mark(row: Row) -> Markup:
    """The verdict, in its colour."""
    return tag("span", row["verdict"], class_=row["verdict"] if row["verdict"] in VERDICTS else None)


def on_card(rows: Sequence[Row]) -> Callable[[Row], str]:
    """What names the card of each of these rows in a sentence; nothing where they have one."""
    has_several = len({row["gpu"] for row in rows}) > 1
    return lambda row: f" on {row['gpu']}" if has_several else ""


def naming(rows: Sequence[Row]) -> list[Heading]:
    """The column that names a cell: technique and K, then whatever else tells the cells of these rows apart."""
    facts = ("model", "precision", "engine", "gpu", "run_id")
    names = [name for name in facts if len({row.get(name) for row in rows}) > 1]

    def cell(row: Row) -> Markup:
        others = [str(row[name]) for name in names if row[name] is not None]
        others += [f"beside {ar_name(row)}"] if row.get("compared_as") and ar_name(row) != "AR" else []
        return join([technique_sign(row), tag("small", " · ".join(others)) if others else None])

    return [Heading("technique", cell, "")]


def condition_cell(row: Row) -> Child:
    """The condition's name; with what isn't as it says: the prompts' real length, answers that end by themselves."""
    sent, asked, notes = row["prompt_tokens"], row["context_tokens"], []
    if row["mode"] == NATURAL and row["step"] != LOAD_STEP:  # of a prompt suite all do
        mean = row.get("answer_tokens")
        notes.append("answers end by themselves" + ("" if mean is None else f", {figure(mean, 0)} tokens on average"))
    if sent is not None and asked and abs(sent / asked - 1) > 0.01:  # less isn't worth a word
        notes.append(f"sent {figure(sent, 0)} tokens, not {figure(asked, 0)}")
    return join([str(row["condition"]), *(tag("small", note) for note in notes)])


CONDITION = Heading("condition", condition_cell, "")


def rate_columns(rows: Sequence[Row]) -> list[Heading]:
    """Rate, interval and what is behind it; bandwidth and price where there are any."""
    scope = Heading("interval holds", lambda row: NOTHING if row["tok_s_lo"] is None else row["interval_scope"], "")
    columns = [
        Heading("tok/s", lambda row: rate(row["tok_s"])),
        Heading("95 % interval", lambda row: span(row["tok_s_lo"], row["tok_s_hi"], 0)),
        *([] if all(row["interval_scope"] == "between starts" for row in rows) else [scope]),
        Heading("starts", lambda row: figure(row["visits"], 0)),
        Heading("repeats", lambda row: figure(row["repeats"], 0)),
        Heading("cv", lambda row: percent(row["cv"])),
        Heading("chars/s", lambda row: rate(row["chars_s"])),
    ]
    if any(row["mbu"] is not None for row in rows):
        columns.append(Heading("MBU \N{GREATER-THAN OR EQUAL TO}", lambda row: _used(row["mbu"])))
    if any(row["usd_per_mtok"] for row in rows):
        columns.append(Heading("USD per M tokens", lambda row: usd(row["usd_per_mtok"])))
    return columns


def percent(value: float | None, digits: int = 1) -> str:
    """A share of 1, in percent."""
    return NOTHING if value is None else f"{value:.{digits}%}"


def _used(value: float | None) -> str:
    """A share that is there, however small: of a tiny model 0 % would say that nothing is read."""
    return NOTHING if value is None else f"{significant(100 * value, 2)}%"
