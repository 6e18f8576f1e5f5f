"""From a step to the file that knows what it leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from configs.known_steps import module_of, step_file, step_names
from configs.step import MeasuredStep
from warehouse.columns import Table
from warehouse.consolidate.inputs import Group
from warehouse.consolidate.rows import Made
from warehouse.display.section import Section
from warehouse.tables import COMMON_TABLES

if TYPE_CHECKING:
    from warehouse.consolidate.raw import Raw


class StepFile(Protocol):
    """What `warehouse/steps/<step>.py` has."""

    TABLES: tuple[Table, ...]
    """Raw tables that it alone declares."""

    SECTIONS: tuple[Section, ...]
    """What it shows on the page."""

    def rows(self, group: Group, raw: Raw) -> Made:
        """Rows of the dataset, of all cells of one comparison group at once."""


def file_of(spec: MeasuredStep) -> StepFile:
    """The file of a step.

    Raises:
        StepIncomplete: there is none.
    """
    return cast(StepFile, module_of("warehouse", spec))


def _files() -> list[StepFile]:
    return [cast(StepFile, step_file("warehouse", name)) for name in step_names()]


def raw_tables() -> dict[str, Table]:
    """All tables that a node writes, by name."""
    return {table.name: table for table in (*(table for file in _files() for table in file.TABLES), *COMMON_TABLES)}


def step_sections() -> list[Section]:
    """The sections of the page that steps bring along."""
    return [section for file in _files() for section in file.SECTIONS]
