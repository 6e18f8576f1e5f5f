"""Toy: its sections of the page."""

from __future__ import annotations

from warehouse.report.display.figures import figure
from warehouse.report.display.markup import Markup, Section, section
from warehouse.report.display.tables import Heading, naming, table
from warehouse.report.display.view import View


def toy_section(view: View) -> Markup | None:
    """Who answers."""
    shown = view.of(step="toy")
    columns = [*naming(view.rows), Heading("answered", lambda row: figure(row["score"], 3))]
    return section("toy", "Greetings", "Who answers a greeting.", table("Greetings", columns, shown)) if shown else None


SECTIONS = (Section("toy", "Greetings", toy_section),)
