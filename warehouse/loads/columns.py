"""Columns and notes that the sections about load share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from configs.steps.load import category_of
from warehouse.display.figures import Row, figure, technique_sign
from warehouse.display.markup import Markup, tag
from warehouse.display.rate_columns import share
from warehouse.display.tables import Heading
from warehouse.display.view import View

Value = Callable[[Row], float | None]

TITLES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "chunk": "chunk gap", "e2e": "end to end"}
"""Of latencies, by their names in the dataset."""


def value_of(view: View, column: str) -> Value:
    """A column of the row of `load` beside a row; None where there is none."""

    def found(row: Row) -> float | None:
        beside = view.latencies(row)
        return None if beside is None else beside[column]

    return found


def shown(view: View, column: str, digits: int) -> Callable[[Row], str]:
    """The same as text."""
    value = value_of(view, column)
    return lambda row: figure(value(row), digits)


def latency(view: View, name: str, percent: int) -> Heading:
    """A percentile of a latency."""
    return Heading(f"{TITLES[name]} p{percent}, ms", shown(view, f"{name}_p{percent}_ms", 1))


def goodput_columns(view: View, rows: Sequence[Row]) -> list[Heading]:
    """Goodput, where any limit was stated; `limits_note` says which."""
    if not _stated(view, rows):
        return []
    return [
        Heading("goodput/s", shown(view, "goodput_s", 2)),
        Heading("good", lambda row: share(value_of(view, "goodput_share")(row), 0)),
    ]


def limits_note(view: View, rows: Sequence[Row]) -> Markup | None:
    """What a request must keep to be good; None: no limit was stated."""
    said = _stated(view, rows)
    return tag("p", f"Good are requests that keep {' or '.join(said)}.", class_="lead") if said else None


def _stated(view: View, rows: Sequence[Row]) -> list[str]:
    beside = [each for row in rows if (each := view.latencies(row)) is not None]
    limits = {(row["ttft_limit_ms"], row["tpot_limit_ms"], row["e2e_limit_s"]) for row in beside} - {(None,) * 3}
    return sorted(_limits(*each) for each in limits)


def _limits(ttft_ms: float | None, tpot_ms: float | None, e2e_s: float | None) -> str:
    named = (("TTFT", ttft_ms, "ms"), ("TPOT", tpot_ms, "ms"), ("end to end", e2e_s, "s"))
    return ", ".join(f"{name} {limit:g} {unit}" for name, limit, unit in named if limit is not None)


def in_order(rows: Sequence[Row], load: Value) -> list[Row]:
    """AR first, then by name; within a cell by category and load."""
    return sorted(
        rows,
        key=lambda row: (
            row["technique"] != "ar",
            technique_sign(row),
            row["precision"],
            row["run_id"],
            category_of(row["condition"]) or "",
            load(row) or 0.0,
        ),
    )


def in_flight(row: Row) -> float | None:
    """The load of a closed loop."""
    number: float | None = row["concurrency"]
    return number


def note_of(rows: Sequence[Row]) -> str:
    """What a plot is of."""
    first = rows[0]
    return f"{first['model']} {first['precision']}, {first['engine']} on {first['gpu']}."
