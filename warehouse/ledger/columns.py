"""How a table is declared: columns as data, turned into pyarrow and polars schemas in one place each."""

from __future__ import annotations

from typing import Literal, NamedTuple

ColumnType = Literal["str", "i64", "f64", "bool", "list[str]", "list[i64]", "list[f64]"]
"""Types a column may have; moments are ISO 8601 strings in UTC, so that every reader agrees on them."""


class Column(NamedTuple):
    """One column. Its name is a promise; its meaning is what the data dictionary says."""

    name: str
    type: ColumnType
    meaning: str
    unit: str = ""
    required: bool = False


class Table(NamedTuple):
    """A named list of columns, with one sentence about what a row is."""

    name: str
    row: str
    columns: tuple[Column, ...]
    is_consolidated: bool = True
    """Whether rows of the dataset are made of it; what is only kept (the tape) is not even fetched for that."""

    def column_names(self) -> list[str]:
        """Names in declared order."""
        return [column.name for column in self.columns]
