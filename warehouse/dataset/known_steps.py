"""From a step to the file that knows its tables and makes its rows."""

from __future__ import annotations

from typing import Protocol, cast

from configs.known_steps import module_of, step_module, step_names
from configs.step import MeasuredStep
from warehouse.dataset.consolidate.inputs import Group
from warehouse.dataset.consolidate.raw import Raw
from warehouse.dataset.consolidate.rows import Made
from warehouse.ledger.tables import COMMON_TABLES, Table


class StepFile(Protocol):
    """What every `warehouse/dataset/steps/<step>.py` provides."""

    TABLES: tuple[Table, ...]
    """Raw tables that only this step writes."""

    def rows(self, group: Group, raw: Raw) -> Made:
        """Rows of the dataset, for all cells of one comparison group at once."""


def file_of(spec: MeasuredStep) -> StepFile:
    """The file that makes a step's rows.

    Raises:
        StepIncomplete: there is none.
    """
    return cast(StepFile, module_of("warehouse.dataset", spec))


def raw_tables() -> dict[str, Table]:
    """All tables that a node writes, by name."""
    files = [cast(StepFile, step_module("warehouse.dataset", name)) for name in step_names()]
    return {table.name: table for table in (*(table for file in files for table in file.TABLES), *COMMON_TABLES)}
