"""What every consolidated row has, whatever was measured: identity, verdict, cost, provenance.

A verdict stays apart from its columns until all passes of the build have had their say. Seconds and dollars of a step
are shared among its rows, so that any selection of rows may be summed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from types import MappingProxyType
from typing import Any, NamedTuple

from configs.cell import Cell
from configs.schema import PlannedCell
from configs.visits import Role
from warehouse.dataset.consolidate.inputs import CommittedStep, Group, Raw
from warehouse.dataset.statistics.accuracy import Comparison
from warehouse.dataset.statistics.starts import StartRates
from warehouse.ledger.clock import usd_of
from warehouse.ledger.tables import PROVENANCE, PROVENANCE_COLUMNS, VERDICTS
from warehouse.ledger.verdicts import Reason, Severity, Verdict, worst

Row = dict[str, Any]


class Judged(NamedTuple):
    """Verdict of one row: reason codes, and sentences with the figures."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    details: tuple[str, ...] = ()

    def worsened(self, severity: Severity, reason: Reason, sentence: str) -> Judged:
        """The same with one more finding, and a verdict no better than its severity."""
        verdict = worst((self.verdict, severity))
        return Judged(verdict, (*self.reasons, reason.value), (*self.details, sentence))

    def noting(self, sentence: str) -> Judged:
        """The same verdict with one more sentence."""
        return self._replace(details=(*self.details, sentence))


class Result(NamedTuple):
    """A row of `results_consolidated` on its way: its columns, and the verdict as far as it is known."""

    columns: Row
    judged: Judged

    @property
    def is_ok(self) -> bool:
        """Whether nothing was found so far that keeps it from being believed."""
        return self.judged.verdict == "ok"

    @property
    def row(self) -> Row:
        """The row as it is published."""
        verdict, reasons, details = self.judged
        return self.columns | {"verdict": verdict, "reasons": list(reasons), "details": list(details)}

    def plus(self, columns: Row) -> Result:
        """The same row with these columns."""
        return self._replace(columns=self.columns | columns)

    def worsened(self, severity: Severity, reason: Reason, sentence: str) -> Result:
        """`Judged.worsened`."""
        return self._replace(judged=self.judged.worsened(severity, reason, sentence))

    def noting(self, sentence: str) -> Result:
        """`Judged.noting`."""
        return self._replace(judged=self.judged.noting(sentence))


class Start(NamedTuple):
    """What one engine start measured of one condition: a row of `visits`, and what the run's comparisons need of it."""

    columns: Row
    judged: Judged
    rates: StartRates | None
    served: Cell
    place: Row  # provenance of the attempt that committed
    left_out: bool = False  # of its cell's figure

    @property
    def row(self) -> Row:
        """The row as it is published."""
        return self.columns | {"verdict": self.judged.verdict, "reasons": list(self.judged.reasons)}


class Pair(NamedTuple):
    """A comparison of accuracies with AR that waits for the others of its run."""

    columns: Row
    comparison: Comparison


Machine = str | None  # None: it was not recorded

ArmKey = tuple[str, str, str, Role, Machine]
"""Run, cell, step, role and machine: engine starts of one thing on one machine."""


class Standing(NamedTuple):
    """What a cell's speed is compared with."""

    arm: ArmKey
    baseline_arm: ArmKey | None  # None for AR itself, and where `refusal` says why there is none
    refusal: str  # reason and sentence, where there is nothing to compare with; else empty


CellStep = tuple[str, str, str]  # run, cell, and a step's name without its start


class Made(NamedTuple):
    """What a step's file makes of its commits; `standings`: of cells whose speed may be compared."""

    results: Sequence[Result]
    pairs: Sequence[Pair] = ()
    visits: Sequence[Start] = ()
    load: Sequence[Row] = ()
    standings: Mapping[CellStep, Standing] = MappingProxyType({})


def judged(step: CommittedStep, raw: Raw, condition: str | None = None, mode: str | None = None) -> Judged:
    """The node's verdict on one condition and on the whole step; unless there is one, the commit's (the worst)."""
    wanted = ((condition, mode), (None, None))
    said = [row for row in raw.rows(step, VERDICTS) if (row["condition"], row["mode"]) in wanted]
    if not said:
        return Judged(step.commit.verdict, step.commit.reasons, ())
    return joined([Judged(row["verdict"], tuple(row["reasons"] or ()), tuple(row["details"] or ())) for row in said])


class Spent(NamedTuple):
    """Seconds of nodes and dollars for them, by the names of their columns; no dollars where a price is unknown."""

    gpu_s: float | None
    cost_usd: float | None


NOTHING = Spent(None, None)  # on a row that took no time of a node: it reads anew what another row was measured for


def base_row(step: CommittedStep, raw: Raw, spent: Spent = NOTHING) -> Row:
    """Identity, cost and provenance of a row; `spent` is its share of `step_seconds`."""
    cell, commit = step.planned.cell, step.commit
    place, names = provenance(step, raw), labels(cell, step.planned)
    return {
        **place,
        **names,
        "run_id": step.run_id,
        "cell_key": step.cell_key,
        "family": cell.model.family,
        "compared_as": cell.model.compared_as,
        "weights": place.get("weights") or names["weights"],
        "step": step.name,
        **spent._asdict(),
        "attempts": step.attempts,
        "attempt": commit.attempt,
        "measured_at": commit.committed_at,
    }


def labels(cell: Cell, planned: PlannedCell) -> Row:
    """What this cell, or AR served for it, is called wherever it has a row, and what of it was not really so."""
    return {
        "model": cell.model.name,
        "precision": cell.precision.name,
        "technique": cell.technique.name,
        "k": cell.k,
        "engine": cell.engine.name,
        "gpu": planned.gpu.name,
        "weights": cell.model.weights,
        "acceptance_source": acceptance_source(cell),
        "denoising_steps": cell.denoising_steps,
        "canvas_length": cell.canvas_length,
        "made_up": made_up(cell),
    }


def made_up(cell: Cell) -> str | None:
    """What was not really so when it was served, in the cell's own words; None: nothing."""
    return ", ".join(cell.unreal) or None


def acceptance_source(cell: Cell) -> str | None:
    """Where its acceptance comes from: measured of real drafts, or `replayed:`; None: nothing is drafted.

    A technique of a user's own may ask for vLLM's `synthetic`, too, which accepts at random, at published rates.
    """
    asked = cell.technique.speculative_config
    if cell.acceptance is not None:
        return cell.acceptance.label
    if not cell.technique.drafts or asked.get("rejection_sample_method") != "synthetic":
        return "measured" if cell.technique.drafts else None
    told = [f"{name}={value}" for name, value in sorted(asked.items()) if name.startswith("synthetic_")]
    return f"replayed:{', '.join(told)}"


def plain_row(step: CommittedStep, raw: Raw) -> Result:
    """The one row of a step, or of one start of it, with a verdict but no figure; the first start has all seconds."""
    spent = step_seconds(step, raw) if is_first(step, raw) else NOTHING
    return Result(base_row(step, raw, spent), judged(step, raw))


NOT_MEASURED = Judged(
    "suspect",
    (Reason.NOT_MEASURED,),
    ("the cell's control was measured, the cell itself was not (yet): these are the control's seconds",),
)


def by_cell(group: Group, raw: Raw) -> tuple[list[list[CommittedStep]], list[Result]]:
    """A step's commits of the cells themselves, in the order of their starts, and rows of cells that have none.

    Of those the control was measured, which took its seconds.
    """
    cells: dict[str, list[CommittedStep]] = {}
    for step in sorted(group, key=lambda each: each.visit.number):
        if step.visit.role == "cell":
            cells.setdefault(step.cell_key, []).append(step)
    only_control = [step for step in group if step.cell_key not in cells and is_first(step, raw)]
    unmeasured = [Result(base_row(step, raw, step_seconds(step, raw)), NOT_MEASURED) for step in only_control]
    return list(cells.values()), unmeasured


def joined(verdicts: Sequence[Judged]) -> Judged:
    """Several verdicts as one: the worst, with everything that was said, once."""
    return Judged(
        worst(each.verdict for each in verdicts),
        tuple(dict.fromkeys(reason for each in verdicts for reason in each.reasons)),
        tuple(dict.fromkeys(sentence for each in verdicts for sentence in each.details)),
    )


def provenance(step: CommittedStep, raw: Raw) -> Row:
    """What the attempt that committed said last, else the last attempt; empty if none was written."""
    written = placed(step, raw)
    committing = [row for row in written if row["attempt"] == step.commit.attempt] or written
    if not committing:
        return {}
    return {column.name: committing[-1][column.name] for column in PROVENANCE_COLUMNS}


def step_seconds(step: CommittedStep, raw: Raw) -> Spent:
    """What all attempts of a step of a cell took, in all its starts and those of its control."""
    return _sum(commit_seconds(each, raw) for each in _visits(step, raw))


def is_first(step: CommittedStep, raw: Raw) -> bool:
    """Whether no start of its step stands before it: the cell's own come before its control's."""
    return step is min(_visits(step, raw), key=lambda each: each.visit)


def _visits(step: CommittedStep, raw: Raw) -> list[CommittedStep]:
    return [each for each in raw.beside(step) if each.name == step.name]


def commit_seconds(step: CommittedStep, raw: Raw) -> Spent:
    """What one commit took, i.e. a timed step in one start: its parts' seconds, each at its own attempt's price."""
    provenance = placed(step, raw)
    prices = {row["attempt"]: row["price_usd_h"] for row in provenance}
    price = prices.get(step.commit.attempt, provenance[-1]["price_usd_h"] if provenance else None)
    parts = (*step.commit.parts, *step.commit.replaced)
    timed = [(part.spent_s, prices.get(part.attempt, price)) for part in parts if part.spent_s is not None]
    amounts = timed or [(step.commit.wall_s, price)]  # no part says its seconds
    return _sum(Spent(seconds, usd_of(its_price, seconds)) for seconds, its_price in amounts)


def shared(spent: Spent, weights: Sequence[float]) -> list[Spent]:
    """A sum divided in proportion to weights; equally where none weighs anything."""
    total = fsum(weights)
    shares = [weight / total if total else 1 / len(weights) for weight in weights]
    return [Spent(*(None if amount is None else amount * share for amount in spent)) for share in shares]


def window_seconds(windows: Iterable[Mapping[str, Any]]) -> float:
    """Seconds of windows, including their prefills: the weight of the row that they make."""
    return fsum(window["wall_s"] + (window.get("prefill_s") or 0.0) for window in windows)


def placed(step: CommittedStep, raw: Raw) -> list[dict[str, Any]]:
    """Provenance of every attempt that wrote some, in order; what an attempt said last counts."""
    return sorted(raw.rows(step, PROVENANCE), key=lambda row: (row["attempt"], row["measured_at"]))


def _sum(amounts: Iterable[Spent]) -> Spent:
    """The sum; of unknown dollars when any amount's are."""
    found = list(amounts)
    dollars = [each.cost_usd for each in found]
    known = [usd for usd in dollars if usd is not None]
    return Spent(fsum(each.gpu_s or 0.0 for each in found), fsum(known) if len(known) == len(dollars) else None)
