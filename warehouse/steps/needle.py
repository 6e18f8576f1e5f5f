"""Needle: how many sentences hidden in long texts were found again, by length and depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from configs.steps.needle import NeedleStep, condition_name, length_name
from warehouse.columns import Column, Table
from warehouse.consolidate.costs import Spent, shared, step_seconds
from warehouse.consolidate.inputs import STEP, CommittedStep, Group
from warehouse.consolidate.rows import Made, Row, base_row, judged, plain_row
from warehouse.display import figures
from warehouse.display.figures import NOTHING, technique_label
from warehouse.display.markup import Child, Markup, join, tag
from warehouse.display.section import Section, section
from warehouse.display.tables import Heading, table
from warehouse.display.view import View, bench
from warehouse.statistics.compare import proportion_stderr
from warehouse.statistics.proportions import exact_interval
from warehouse.tables import ROW_IDENTITY

if TYPE_CHECKING:  # nodes import this file and have no polars
    import polars as pl

    from warehouse.consolidate.raw import Raw

NEEDLES = Table(
    "needles",
    "one question for a hidden sentence",
    (
        *ROW_IDENTITY,
        Column("context_tokens", "i64", "length of the whole prompt, as asked for", "tokens", required=True),
        Column("depth_percent", "i64", "share of it before the hidden sentence, as asked for", "%", required=True),
        Column("seed", "i64", "which text of this length and depth, from 0", required=True),
        Column("prompt_tokens", "i64", "length that was sent, from usage: the chat template included", "tokens"),
        Column("depth_tokens", "i64", "text that stood before the hidden sentence", "tokens"),
        Column("prompt_hash", "str", "first 16 hex digits of sha256 over the user message"),
        Column("needle", "str", "the hidden sentence"),
        Column("gold", "str", "its number"),
        Column("answer", "str", "extractor exact: the last number of the body; null: it has none"),
        Column("correct", "bool", "whether they are the same"),
        Column("truncated", "bool", "whether the answer was cut off by the length limit"),
        Column("blank", "bool", "whether it has no body"),
        Column("completion_tokens", "i64", "from usage", "tokens"),
        Column("body", "str", "the answer without the thinking, as the model wrote it"),
    ),
)

TABLES = (NEEDLES,)


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell, length and depth; needles make no pairs: a few per place could tell no two cells apart."""
    return Made([row for step in group for row in _rows(step, raw)], [])


def _rows(step: CommittedStep, raw: Raw) -> list[Row]:
    asked: dict[tuple[int, int], list[Row]] = {}
    for each in raw.rows(step, NEEDLES, _without_texts):
        asked.setdefault((each["context_tokens"], each["depth_percent"]), []).append(each)
    if not asked:
        return [plain_row(step, raw)]
    spent = shared(step_seconds(step, raw), [len(each) for each in asked.values()])
    shares = dict(zip(asked, spent, strict=True))
    return [_row(step, raw, *place, asked[place], shares[place]) for place in sorted(asked)]


def _without_texts(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Who found what."""
    flags = ("correct", "truncated", "blank")
    return frame.select(*STEP, "context_tokens", "depth_percent", "seed", *flags).sort("seed")


def _row(
    step: CommittedStep, raw: Raw, context_tokens: int, depth_percent: int, asked: Sequence[Row], spent: Spent
) -> Row:
    """Found out of asked at one place. A lost needle is a result: its row stays ok, and says which were lost."""
    condition = condition_name(context_tokens, depth_percent)
    verdict = judged(step, raw, condition)
    n, lost = len(asked), [each["seed"] for each in asked if not each["correct"]]
    if lost:
        verdict = verdict.noting(f"{len(lost)} of {n} needles were not found (seeds {', '.join(map(str, lost))})")
    score = (n - len(lost)) / n
    low, high = exact_interval(n - len(lost), n)
    return base_row(step, raw, verdict, spent) | {
        "condition": condition,
        "context_tokens": context_tokens,
        "depth_percent": depth_percent,
        "concurrency": step.spec.concurrency if isinstance(step.spec, NeedleStep) else None,
        "metric": "needle",
        "extractor": "exact",
        "score": score,
        "score_stderr": proportion_stderr(score, n),
        "score_lo": low,
        "score_hi": high,
        "n": n,
        "truncated": sum(each["truncated"] for each in asked),
        "blank": sum(each["blank"] for each in asked),
    }


def needle_section(view: View) -> Markup | None:
    """A grid per cell: lengths down, depths across."""
    shown = [row for row in view.of(step="needle") if row["score"] is not None]
    if not shown:
        return None
    lead = (
        "A sentence with a number, hidden in prose at a depth of the prompt; the question for it stands at the end. "
        "Found out of asked, with the exact 95 % interval of the share: so few can show that needles are lost, hardly "
        "that none is. A dash: the cell doesn't serve that length."
    )
    grids = [_grid(rows, shown) for rows in _by_cell(shown)]
    return section("needle", "Needles in long texts", lead, *(child for grid in grids for child in grid))


def _by_cell(shown: Sequence[figures.Row]) -> list[list[figures.Row]]:
    cells: dict[tuple[str, str], list[figures.Row]] = {}
    for row in shown:
        cells.setdefault((row["run_id"], row["cell_key"]), []).append(row)
    return [*cells.values()]


def _grid(rows: Sequence[figures.Row], shown: Sequence[figures.Row]) -> tuple[Markup, Markup]:
    """A cell's name and its grid, with the lengths and depths of all cells of its bench, so that grids compare."""
    beside = [row for row in shown if bench(row) == bench(rows[0])]
    there = {(row["context_tokens"], row["depth_percent"]): row for row in rows}
    depths = sorted({row["depth_percent"] for row in beside})
    lines = [
        {"length": tokens} | {_depth_name(depth): there.get((tokens, depth)) for depth in depths}
        for tokens in sorted({row["context_tokens"] for row in beside})
    ]
    columns = [
        Heading("prompt", lambda line: length_name(line["length"]), ""),
        *(Heading(f"at {_depth_name(depth)}", _found_at(depth)) for depth in depths),
    ]
    name = _cell_name(rows[0], shown)
    return tag("h3", name), table(f"Needles found, {name}", columns, lines)


def _cell_name(row: figures.Row, shown: Sequence[figures.Row]) -> str:
    """Model, precision and technique, and what else tells the cells of the page apart."""
    others = [name for name in ("engine", "gpu", "run_id") if len({each[name] for each in shown}) > 1]
    return " · ".join(
        (f"{row['model']} {row['precision']}", technique_label(row), *(str(row[name]) for name in others))
    )


def _depth_name(percent: int) -> str:
    """A depth for people."""
    return f"{percent} %"


def _found_at(depth: int) -> Callable[[figures.Row], Child]:
    return lambda line: _mark(line[_depth_name(depth)])


def _mark(row: figures.Row | None) -> Child:
    """`3 of 3 (0.29 to 1.00)`; what is lost, cut off or not to be believed is said in words: colour only repeats it."""
    if row is None:
        return NOTHING
    found = round(row["score"] * row["n"])
    said = [f"{found} of {row['n']}{'' if found == row['n'] else ' found'}"]
    said += [f"{row[what]} {words}" for what, words in (("truncated", "cut off"), ("blank", "blank")) if row[what]]
    said += [row["verdict"]] if row["verdict"] != "ok" else []
    colour = "ok" if found == row["n"] else "rejected" if found == 0 else "suspect"
    interval = f" ({figures.span(row['score_lo'], row['score_hi'])})"
    return join([tag("span", ", ".join(said), class_=colour), tag("small", interval)])


SECTIONS = (Section("needle", "Needles", needle_section, 55),)
