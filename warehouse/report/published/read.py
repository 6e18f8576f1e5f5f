"""The write-ups themselves: `load_write_up("mtp-gb10")` reads the file of that name beside this one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from configs.files.document import ConfigError, accepted, read_document
from configs.files.library import parse
from configs.frozen import Frozen
from warehouse.report.published.figures import PublishedRow, PublishedTable

FOLDER = Path(__file__).parent


class WriteUp(Frozen):
    """One publication: where it is, on what it measured and how, and its tables."""

    name: str = Field(description="short name, as in docs/sources.md")
    title: str
    source: str
    date: str = Field(description="as far as the source says")
    gpu: str = Field(description="of configs/gpus")
    hardware: str
    engine: str
    method: str
    tables: tuple[PublishedTable, ...]

    @property
    def rows(self) -> tuple[PublishedRow, ...]:
        """Rows of all its tables."""
        return tuple(row for table in self.tables for row in table.rows)


class Published(NamedTuple):
    """One published row, and who published it."""

    write_up: WriteUp
    row: PublishedRow


@cache
def published_rows() -> tuple[Published, ...]:
    """Every row of every write-up."""
    return tuple(Published(write_up, row) for write_up in map(load_write_up, write_ups()) for row in write_up.rows)


def write_ups() -> tuple[str, ...]:
    """Names of all write-ups, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def load_write_up(name: str) -> WriteUp:
    """Read one write-up; raises `ConfigError`, with the line of what is wrong, or with the names that there are."""
    if name not in write_ups():
        raise ConfigError("warehouse/published", "", f"no file for {name!r}; {accepted(name, [*write_ups()])}")
    document = read_document(FOLDER / f"{name}.yaml")
    tables = [_spread(table) for table in document.data.get("tables") or ()]
    return parse(replace(document, data=document.data | {"tables": tables}), WriteUp, stem=name)


def _spread(table: dict[str, Any]) -> dict[str, Any]:
    """A table whose rows all have what its `each` says of them, unless they say otherwise."""
    each = table.get("each") or {}
    rows = [each | row for row in table.get("rows") or ()]
    return {name: value for name, value in table.items() if name != "each"} | {"rows": rows}
