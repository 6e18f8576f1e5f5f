"""Toy: the share of greetings that were answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.columns import Column, Table
from warehouse.consolidate.inputs import Group
from warehouse.consolidate.rows import Made, plain_row
from warehouse.display.figures import figure
from warehouse.display.markup import Markup
from warehouse.display.section import Section, section
from warehouse.display.tables import Heading, naming, table
from warehouse.display.view import View
from warehouse.tables import ROW_IDENTITY

if TYPE_CHECKING:
    from warehouse.consolidate.raw import Raw

GREETINGS = Table(
    "greetings",
    "one answered greeting",
    (
        *ROW_IDENTITY,
        Column("number", "i64", "which greeting, from 0", required=True),
        Column("answer", "str", "as the model wrote it"),
    ),
)

TABLES = (GREETINGS,)


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell."""
    made = Made([], [])
    for step in group:
        answers = [row["answer"] for row in raw.rows(step, GREETINGS)]
        score = sum(bool(answer) for answer in answers) / len(answers)
        made.results.append(plain_row(step, raw) | {"metric": "greeted", "score": score, "n": len(answers)})
    return made


def toy_section(view: View) -> Markup | None:
    """Who answers."""
    shown = view.of(step="toy")
    columns = [*naming(view.rows), Heading("answered", lambda row: figure(row["score"], 3))]
    return section("toy", "Greetings", "Who answers a greeting.", table("Greetings", columns, shown)) if shown else None


SECTIONS = (Section("toy", "Greetings", toy_section),)
