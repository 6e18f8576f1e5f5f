"""Published acceptance by draft position, replayed where dummy weights can't have any of their own.

vLLM's `rejection_sample_method: synthetic` accepts drafts by dice, at the rates that it is given.
"""

from __future__ import annotations

from pydantic import Field, JsonValue

from configs.errors import SpecsweepError
from configs.frozen import Frozen


class KTooLong(SpecsweepError):
    """No published table reaches as far as the cell drafts."""


class Replay(Frozen):
    """What a row asks for: the name of a file in `replays/`."""

    replay: str


class MeasuredRates(Frozen):
    """Share of the drafts that were accepted up to each position, from a run that drafted `k` tokens."""

    k: int = Field(gt=0)
    rates: tuple[float, ...] = Field(min_length=1)


class PublishedAcceptance(Frozen):
    """A published table. Rates are unconditional: that of position i counts drafts whose first i tokens all held."""

    name: str
    source: str = Field(description="title, author, date")
    url: str
    of: str = Field(description="what was measured: model, technique, text")
    tables: tuple[MeasuredRates, ...] = Field(min_length=1)

    def at(self, k: int) -> ReplayedAcceptance:
        """The rates for a K: those measured at that K, else the first of the shortest longer table.

        Raises:
            KTooLong: no table is that long; what wasn't published isn't guessed.
        """
        long_enough = [table for table in self.tables if table.k >= k]
        if not long_enough:
            longest = max(table.k for table in self.tables)
            raise KTooLong(f"{k} is more than {self.name!r} was published for; accepted: 1 to {longest}")
        table = min(long_enough, key=lambda each: each.k)
        return ReplayedAcceptance(name=self.name, rates=table.rates[:k])

    def problem(self) -> str | None:
        """What the engine would refuse, or what no measurement can have shown; None: nothing."""
        for table in self.tables:
            if len(table.rates) != table.k:
                return f"K={table.k} has {len(table.rates)} rates; accepted: one for each position"
            if not all(1 >= a >= b >= 0 for a, b in zip(table.rates, (*table.rates[1:], 0.0), strict=True)):
                return f"the rates of K={table.k} must fall from 1 to 0: a position counts only after those before it"
        return None


class ReplayedAcceptance(Frozen):
    """What a cell is served with: which table, and its rates up to the cell's K. It says so wherever it is shown."""

    name: str
    rates: tuple[float, ...]

    @property
    def label(self) -> str:
        """As in the dataset's `acceptance_source`."""
        return f"replayed:{self.name}"

    @property
    def speculative_config(self) -> dict[str, JsonValue]:
        """What vLLM is told."""
        return {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": list(self.rates)}
