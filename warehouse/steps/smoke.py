"""Smoke: did the cell pass? What else it asked is in the tables of the steps that it tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warehouse.columns import Column, Table
from warehouse.consolidate.inputs import CommittedStep, Group
from warehouse.consolidate.rows import Made
from warehouse.consolidate.scores import counted, smoke_row
from warehouse.display.section import Section
from warehouse.evals.readings import tallied
from warehouse.evals.tables import EVAL_SAMPLES
from warehouse.steps.eval_tiny import EVAL_ITEMS
from warehouse.tables import ROW_IDENTITY

if TYPE_CHECKING:  # nodes import this file and have no polars
    from warehouse.consolidate.raw import Raw

SANITY = Table(
    "sanity",
    "one answer to a question that no working model misses",
    (
        *ROW_IDENTITY,
        Column("question_id", "str", "one of ten, the same for all models but the demo family", required=True),
        Column("language", "str", "of the question: en, de, ko, zh; demo: the demo family's own words"),
        Column("prompt", "str", "the question"),
        Column("wanted", "str", "the answer as a reader would write it; what is read is more tolerant"),
        Column("body", "str", "the answer without the thinking, as the model wrote it: data, never markup"),
        Column("reasoning", "str", "the thinking, as the model wrote it"),
        Column("is_right", "bool", "the wanted answer was read in the body; cut off: never", required=True),
        Column("finish_reason", "str", "as the engine said; length means cut off"),
        Column("completion_tokens", "i64", "from usage, thinking included", "tokens"),
        Column("mean_logprob", "f64", "of the answer's tokens under the model itself; null: not sent", "nats"),
    ),
)

TABLES = (SANITY,)

SECTIONS: tuple[Section, ...] = ()


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell; scored if it tried questions."""
    return Made([smoke_row(step, raw, tried(step, raw)) for step in group], [])


def tried(step: CommittedStep, raw: Raw) -> dict[str, Any] | None:
    """Sums over all questions that smoke tried, the demo's own and those of every suite; None: it tried none."""
    own = [row | {"right": row["right_last"]} for row in raw.rows(step, EVAL_ITEMS, counted)]
    suites = raw.rows(step, EVAL_SAMPLES, tallied)
    if not own and not suites:
        return None
    sums = {name: sum(row[name] for row in (*own, *suites)) for name in ("n", "right", "truncated", "blank")}
    return sums | {"extractor": "last-in-body" if suites else "last-letter"}
