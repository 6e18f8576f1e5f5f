"""What every consolidated row carries, whatever was measured: identity, verdict, cost, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from configs.cell import Cell
from configs.schema import PlannedCell
from warehouse.dataset.consolidate.costs import NOTHING, Spent, placed, row_seconds
from warehouse.dataset.consolidate.inputs import CommittedStep
from warehouse.dataset.consolidate.raw import Raw
from warehouse.ledger.tables import PROVENANCE_COLUMNS, VERDICTS
from warehouse.ledger.verdicts import Reason, Severity, Verdict, worst

Row = dict[str, Any]


class Made(NamedTuple):
    """What a step's file makes of its commits: rows of `results_consolidated`, `pairs`, `visits` and `load`."""

    results: list[Row]
    pairs: list[Row]
    visits: Sequence[Row] = ()
    load: Sequence[Row] = ()


class Judged(NamedTuple):
    """Verdict of one row: reason codes, and sentences with the figures."""

    verdict: Verdict
    reasons: tuple[str, ...]
    details: tuple[str, ...]

    def worsened(self, severity: Severity, reason: Reason, sentence: str) -> Judged:
        """The same with one more finding, and a verdict no better than its severity."""
        verdict = worst((self.verdict, severity))
        return Judged(verdict, (*self.reasons, reason.value), (*self.details, sentence))

    def noting(self, sentence: str) -> Judged:
        """The same verdict with one more sentence."""
        return self._replace(details=(*self.details, sentence))


def judged(step: CommittedStep, raw: Raw, condition: str | None = None, mode: str | None = None) -> Judged:
    """The node's verdict on one condition: what was said about it and about the whole step.

    A condition that no verdict names gets the commit's, which is the step's worst.
    """
    wanted = ((condition, mode), (None, None))
    said = [row for row in raw.rows(step, VERDICTS) if (row["condition"], row["mode"]) in wanted]
    if not said:
        return Judged(step.commit.verdict, step.commit.reasons, ())
    return joined([Judged(row["verdict"], tuple(row["reasons"] or ()), tuple(row["details"] or ())) for row in said])


def base_row(step: CommittedStep, raw: Raw, verdict: Judged, spent: Spent = NOTHING) -> Row:
    """Identity, verdict, cost and provenance of a row.

    Args:
        step: what the row is of.
        raw: has its provenance.
        verdict: of the row.
        spent: the row's share of what the step took; the shares of a step's rows add up to `costs.step_seconds`.
    """
    cell, commit = step.planned.cell, step.commit
    place, names = provenance(step, raw), labels(step.planned)
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
        **verdict_columns(verdict),
    }


def labels(planned: PlannedCell) -> Row:
    """What a cell is called wherever it has a row, and what of it was not really so."""
    cell = planned.cell
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

    vLLM's `rejection_sample_method: synthetic` accepts by dice, at rates that somebody published; a technique of a
    user's own may ask for it, too.
    """
    asked = cell.technique.speculative_config
    if cell.acceptance is not None:
        return cell.acceptance.label
    if not cell.technique.drafts or asked.get("rejection_sample_method") != "synthetic":
        return "measured" if cell.technique.drafts else None
    told = [f"{name}={value}" for name, value in sorted(asked.items()) if name.startswith("synthetic_")]
    return f"replayed:{', '.join(told)}"


def plain_row(step: CommittedStep, raw: Raw) -> Row:
    """The one row of a step, or of one visit of it, with a verdict but no figure."""
    return base_row(step, raw, judged(step, raw), row_seconds(step, raw))


def verdict_columns(verdict: Judged) -> Row:
    """The three columns that say whether a row may be believed."""
    return {"verdict": verdict.verdict, "reasons": list(verdict.reasons), "details": list(verdict.details)}


def joined(verdicts: Sequence[Judged]) -> Judged:
    """Several verdicts as one: the worst, with everything that was said, once."""
    return Judged(
        worst(each.verdict for each in verdicts),
        tuple(dict.fromkeys(reason for each in verdicts for reason in each.reasons)),
        tuple(dict.fromkeys(sentence for each in verdicts for sentence in each.details)),
    )


def verdict_of(row: Row) -> Judged:
    """A row's verdict, read back from `verdict_columns`."""
    return Judged(row["verdict"], tuple(row["reasons"]), tuple(row["details"]))


def provenance(step: CommittedStep, raw: Raw) -> Row:
    """What the attempt that committed said last, else the last attempt; empty if none was written."""
    written = placed(step, raw)
    committing = [row for row in written if row["attempt"] == step.commit.attempt] or written
    if not committing:
        return {}
    return {column.name: committing[-1][column.name] for column in PROVENANCE_COLUMNS}
