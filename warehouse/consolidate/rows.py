"""What every consolidated row carries, whatever was measured: identity, verdict, cost, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from warehouse.consolidate.frames import Reduced, Rows
from warehouse.consolidate.inputs import CommittedStep
from warehouse.price import usd_of
from warehouse.tables import PROVENANCE_COLUMNS

Row = dict[str, Any]

NO_BASELINE = "no_baseline"
"""The run has no measured AR cell to compare with (spelled as in `tasks.guards.finding`)."""

SPEEDUP_ABOVE_ACCEPTANCE = "speedup_above_acceptance"
"""A speculative cell gains more than it commits per step (spelled as in `tasks.guards.finding`)."""

EXTRACTORS_DISAGREE = "extractors_disagree"
"""The answer read at another place gives another score (spelled as in `tasks.guards.finding`)."""

UNDRAFTED_METHODS = ("ar", "diffusion")
"""Techniques that have no draft, hence no acceptance."""

SEVERITY = {"ok": 0, "suspect": 1, "rejected": 2}
"""How bad a verdict is."""


class Judged(NamedTuple):
    """Verdict of one row: reason codes, and sentences with the figures."""

    verdict: str
    reasons: tuple[str, ...]
    details: tuple[str, ...]

    def worsened(self, verdict: str, reason: str, sentence: str) -> Judged:
        """The same with one more finding."""
        worst = max(self.verdict, verdict, key=SEVERITY.__getitem__)
        return Judged(worst, (*self.reasons, reason), (*self.details, sentence))

    def noting(self, sentence: str) -> Judged:
        """The same verdict with one more sentence."""
        return self._replace(details=(*self.details, sentence))


def judged(step: CommittedStep, verdicts: Rows, condition: str | None, mode: str | None) -> Judged:
    """The node's verdict on one condition: what was said of it and of the whole step.

    A condition that no verdict names has the commit's, which is the step's worst.
    """
    said = [row for row in verdicts if (row["condition"], row["mode"]) in ((condition, mode), (None, None))]
    if not said:
        return Judged(step.commit.verdict, step.commit.reasons, ())
    worst = max((row["verdict"] for row in said), key=SEVERITY.__getitem__)
    return Judged(
        worst,
        tuple(dict.fromkeys(reason for row in said for reason in row["reasons"] or ())),
        tuple(dict.fromkeys(sentence for row in said for sentence in row["details"] or ())),
    )


def base_row(step: CommittedStep, reduced: Reduced, verdict: Judged) -> Row:
    """Identity, verdict, cost and provenance of a row."""
    cell, commit = step.planned.cell, step.commit
    place = _provenance(step, reduced)
    price = place.get("price_usd_h")
    return {
        **place,
        "run_id": step.run_id,
        "cell_key": step.cell_key,
        "model": cell.model.name,
        "family": cell.model.family,
        "precision": cell.precision.name,
        "technique": cell.technique.name,
        "k": cell.k,
        "engine": cell.engine.name,
        "gpu": step.planned.gpu.name,
        "weights": place.get("weights") or cell.model.weights,
        "acceptance_source": None if cell.technique.method in UNDRAFTED_METHODS else "measured",
        "step": commit.step,
        "gpu_s": commit.wall_s,
        "cost_usd": usd_of(price, commit.wall_s),
        "attempts": step.attempts,
        "attempt": commit.attempt,
        "measured_at": commit.committed_at,
        **verdict_columns(verdict),
    }


def verdict_columns(verdict: Judged) -> Row:
    """The three columns that say whether a row may be believed."""
    return {"verdict": verdict.verdict, "reasons": list(verdict.reasons), "details": list(verdict.details)}


def verdict_of(row: Row) -> Judged:
    """Those columns, read back."""
    return Judged(row["verdict"], tuple(row["reasons"]), tuple(row["details"]))


def _provenance(step: CommittedStep, reduced: Reduced) -> Row:
    """The provenance row of the attempt that committed, else the last one; empty if none was written."""
    written: Sequence[Row] = reduced.provenance.get(step.identity, [])
    committing = [row for row in written if row["attempt"] == step.commit.attempt] or list(written)
    if not committing:
        return {}
    return {column.name: committing[-1][column.name] for column in PROVENANCE_COLUMNS}
