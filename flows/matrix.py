"""Tables that lose nothing where the terminal is narrow: words wrap, figures are never cut, columns go on below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

SENTENCE_COLUMNS = 24  # narrowest that a sentence may get


class Column(NamedTuple):
    """A column of a `Matrix`: figures, which are never cut; or words, that wrap down to `narrowest` columns.

    Figures may have line breaks. They are made only where the table would be too wide otherwise.
    """

    name: str
    values: Sequence[str | Text]
    total: str = ""
    narrowest: int | None = None

    @property
    def longest(self) -> int:
        """Characters of its longest line."""
        return max(cell_len(line) for text in (self.name, self.total, *self.values) for line in str(text).split("\n"))

    @property
    def width(self) -> int:
        """Characters that it needs at the least, the space before it included."""
        return 1 + (self.longest if self.narrowest is None else min(self.narrowest, self.longest))

    def flat(self) -> Column:
        """The same without the line breaks of its figures."""
        return self._replace(
            values=[text if isinstance(text, Text) else text.replace("\n", " ") for text in self.values]
        )


def words(name: str, values: Sequence[str | Text], total: str = "", narrowest: int = 0) -> Column:
    """A column that wraps between words, and breaks none."""
    every = (word for text in (name, total, *values) for word in str(text).split())
    return Column(name, values, total, max(narrowest, *map(cell_len, every)))


def sentences(name: str, values: Sequence[str | Text]) -> Column:
    """Words that need some room to be read."""
    return words(name, values, narrowest=SENTENCE_COLUMNS)


class Matrix(NamedTuple):
    """A table that goes on below itself, with the same names in front, where the terminal is too narrow for it."""

    names: Sequence[Column]
    columns: Sequence[Column]
    title: str | None = None
    has_total: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As many of the columns, in their order, as fit beside the names, and then the next ones.

        Names are folded within a word where the widest column would not fit beside them.
        """
        names, width = [*self.names], options.max_width - 1
        widest = max((column.width for column in self.columns), default=0)
        for _ in range(sum(column.width for column in names) + widest - width):  # rich would cut figures instead
            at = max(range(len(names)), key=lambda at: names[at].width)
            names[at] = names[at]._replace(narrowest=max(1, names[at].width - 2))
        room = width - sum(column.width for column in names)
        flat = [column.flat() for column in self.columns]
        left = flat if sum(column.width for column in flat) <= room else list(self.columns)
        title = self.title
        while True:
            spare = room
            here: list[Column] = []
            while left and (not here or left[0].width <= spare):
                spare -= left[0].width
                here.append(left.pop(0))
            yield self._table([*names, *here], max(0, spare), title)
            title = None
            if not left:
                return

    def _table(self, columns: Sequence[Column], spare: int, title: str | None) -> Table:
        """One table; the room that is to spare goes to the words, in their order."""
        table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", show_footer=self.has_total, padding=0)
        for column in columns:
            is_words = column.narrowest is not None
            more = min(spare, column.longest + 1 - column.width) if is_words else 0
            spare -= more
            table.add_column(
                Text(column.name),
                Text(column.total),
                justify="left" if is_words else "right",
                width=column.width - 1 + more,
                no_wrap=not is_words,
                overflow="fold",
            )
        for row in zip(*(column.values for column in columns), strict=True):
            table.add_row(*(text if isinstance(text, Text) else Text(text) for text in row))
        return table
