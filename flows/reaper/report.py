"""What the reaper found and did: as rows, as one JSON document, and for people."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rich import box
from rich.table import Table

from flows.reaper.found import Fate, Found
from warehouse.ledger.clock import duration

Done = Literal["left", "down", "would go down", "not down"]

STYLES: dict[Done, str | None] = {"left": "dim", "down": "green", "would go down": "yellow", "not down": "red"}


class Reaped(NamedTuple):
    """One cluster, what became of it, and what it costs an hour. `remark`: what went wrong on the way."""

    found: Found
    fate: Fate
    done: Done
    age_s: float | None
    usd_h: float | None
    remark: str = ""

    def document(self) -> dict[str, object]:
        """The cluster for `--json`."""
        return {
            "cluster": self.found.cluster,
            "status": self.found.status,
            "where": self.found.where,
            "instances": [each.instance_id for each in self.found.instances],
            "age_s": None if self.age_s is None else round(self.age_s),
            "owner": self.fate.owner,
            "usd_h": self.usd_h,
            "done": self.done,
            "why": self.fate.why,
            "remark": self.remark,
        }

    def texts(self) -> dict[str, str]:
        """The cluster's columns as people read them."""
        return {
            "cluster": self.found.cluster,
            "what": self.found.status,
            "where": self.found.where,
            "age": "?" if self.age_s is None else duration(self.age_s),
            "owner": self.fate.owner,
            "$/h": "?" if self.usd_h is None else f"{self.usd_h:.2f}",
            "done": self.done,
            "why": f"{self.fate.why} ({self.remark})" if self.remark else self.fate.why,
        }


class ReapReport(NamedTuple):
    """One look at everything that is rented.

    Attributes:
        store: whose leases decided.
        dry_run: nothing was done.
        reaped: one per cluster, including those that were left.
        asked: SkyPilot and the clouds that answered.
        not_asked: who was not asked, and why; nothing can be rented there either.
        problems: who should have answered, and did not.
        closed: clusters of open records that were gone already.
    """

    store: str
    dry_run: bool
    reaped: tuple[Reaped, ...]
    asked: tuple[str, ...]
    not_asked: tuple[str, ...]
    problems: tuple[str, ...]
    closed: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything was looked at, and nothing is left that should be down."""
        return not self.problems and all(each.done != "not down" for each in self.reaped)

    @property
    def saved_usd_h(self) -> float:
        """Dollars an hour of what went down, or would; machines without a known price count as 0."""
        return sum((each.usd_h or 0.0 for each in self._taken()), start=0.0)

    def document(self) -> dict[str, object]:
        """The report for `--json`."""
        return {
            "store": self.store,
            "dry_run": self.dry_run,
            "ok": self.ok,
            "clusters": [each.document() for each in self.reaped],
            "saved_usd_h": round(self.saved_usd_h, 4),
            "asked": list(self.asked),
            "not_asked": list(self.not_asked),
            "problems": list(self.problems),
            "closed": list(self.closed),
        }

    def table(self) -> Table:
        """One line per cluster."""
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for name in ("cluster", "what", "where", "age", "owner", "$/h", "done", "why"):
            table.add_column(name, justify="right" if name in ("age", "$/h") else "left", no_wrap=name == "cluster")
        for each in self.reaped:
            table.add_row(*each.texts().values(), style=STYLES[each.done])
        return table

    def lines(self) -> list[str]:
        """What to print besides the table; the total comes last."""
        said = [f"not asked: {each}" for each in self.not_asked]
        said += [f"closed the record of {each}: it was gone" for each in self.closed]
        said += [f"problem: {each}" for each in self.problems]
        said += [
            f"not down: {each.found.cluster} in {each.found.where}: {each.remark}"
            for each in self.reaped
            if each.done == "not down"
        ]
        return [*said, self.summary()]

    def summary(self) -> str:
        """The total in one line: how much went down, and what that saves."""
        asked = f"asked: {', '.join(self.asked) or 'nobody'}"
        taken = self._taken()
        if not taken:
            left = len(self.reaped)
            return f"nothing to reap{f', {left} left' if left else ': nothing of ours is rented'} ({asked})"
        unpriced = sum(each.usd_h is None for each in taken)
        money = f"{self.saved_usd_h:.2f} USD an hour"
        money += f", and {unpriced} of unknown price" if unpriced else ""
        count = f"{len(taken)} of {len(self.reaped)}"
        if self.dry_run:
            return f"dry run, nothing was done: {count} would go down and save {money} ({asked})"
        return f"{count} went down, which saves {money} ({asked})"

    def _taken(self) -> list[Reaped]:
        return [each for each in self.reaped if each.done in ("down", "would go down")]
