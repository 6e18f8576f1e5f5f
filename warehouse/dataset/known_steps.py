"""From a step to the file that knows its tables, its rows and its sections of the page."""

from __future__ import annotations

from typing import Protocol, cast

from configs.known_steps import module_of, step_module, step_names
from configs.step import MeasuredStep
from warehouse.dataset.consolidate.inputs import Group
from warehouse.dataset.consolidate.raw import Raw
from warehouse.dataset.consolidate.rows import Made
from warehouse.ledger.columns import Table
from warehouse.ledger.tables import COMMON_TABLES
from warehouse.report.display.section import Section


class StepFile(Protocol):
    """What every `warehouse/dataset/steps/<step>.py` provides."""

    TABLES: tuple[Table, ...]
    """Raw tables that only this step declares."""

    SECTIONS: tuple[Section, ...]
    """Its sections of the report's page."""

    def rows(self, group: Group, raw: Raw) -> Made:
        """Rows of the dataset, for all cells of one comparison group at once."""


def file_of(spec: MeasuredStep) -> StepFile:
    """The warehouse's file of a step.

    Raises:
        StepIncomplete: there is none.
    """
    return cast(StepFile, module_of("warehouse", spec))


def _files() -> list[StepFile]:
    return [cast(StepFile, step_module("warehouse", name)) for name in step_names()]


def raw_tables() -> dict[str, Table]:
    """All tables that a node writes, by name."""
    return {table.name: table for table in (*(table for file in _files() for table in file.TABLES), *COMMON_TABLES)}


def step_sections() -> list[Section]:
    """All steps' sections, not yet in the page's order."""
    return [section for file in _files() for section in file.SECTIONS]
