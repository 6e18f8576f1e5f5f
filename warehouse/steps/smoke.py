"""Smoke: did the cell pass? What it asked is in the tables of the steps that it tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.columns import Table
from warehouse.consolidate.inputs import Group
from warehouse.consolidate.rows import Made
from warehouse.consolidate.scores import smoke_row
from warehouse.display.section import Section
from warehouse.steps.eval_tiny import EVAL_ITEMS

if TYPE_CHECKING:  # nodes import this file and have no polars
    from warehouse.consolidate.raw import Raw

TABLES: tuple[Table, ...] = ()

SECTIONS: tuple[Section, ...] = ()


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell; scored if it tried questions."""
    return Made([smoke_row(step, raw, EVAL_ITEMS) for step in group], [])
