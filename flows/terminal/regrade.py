"""`sweep regrade`: grades a run's evaluations again from their response logs, shows what changed, and records it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from configs.checkout import git_head
from configs.schema import PlannedCell
from configs.steps.eval import EvalStep
from flows.matrix import Column, Matrix, words
from tasks.evals.extractors import VERSION
from tasks.evals.regrade import Regraded, RegradeError, regraded
from warehouse.ledger.commits import Ledger, in_force, newest, read_regrade, rows_in_force, write_regrade
from warehouse.ledger.steps import EVAL_SAMPLES, EVAL_SCORES, EXCHANGES
from warehouse.ledger.store import StoreError
from warehouse.ledger.tables import VERDICTS
from warehouse.report.display.figures import plural


class Graded(NamedTuple):
    """One evaluation step of one cell, graded again; `again` is None where it has no response log."""

    cell_key: str
    label: str
    step: str
    checked: bool
    """Its answers are no letters: whether one is right was said by the framework's checkers, and stands."""
    again: Regraded | None
    number: int | None
    """Of the regrade that was written; None: nothing was."""

    @property
    def state(self) -> str:
        """What became of it: changed, confirmed (other readers read the same), unchanged, or no response log."""
        if self.again is None:
            return "no response log"
        return "changed" if self.again.changed else "confirmed" if self.again.is_due else "unchanged"

    def document(self) -> dict[str, Any]:
        """For --json."""
        known = {"cell_key": self.cell_key, "cell": self.label, "step": self.step, "state": self.state}
        if self.again is None:
            return known
        grading = self.again.grading
        return known | {
            "regrade": self.number,
            "framework_stands": self.checked,
            "readers": [change._asdict() for change in self.again.changes],
            "verdict": {"before": self.again.verdict_before, "after": grading.verdict},
            "reasons": {"before": list(self.again.reasons_before), "after": list(grading.reasons)},
        }


def regrade(ledger: Ledger, cell: str | None, *, dry_run: bool) -> list[Graded]:
    """Grade a run's evaluations again, all or one cell's, and write what changed; or SpecsweepError."""
    plan = ledger.plan()
    chosen = [planned for planned in plan.cells if planned.cell.cell_key.startswith(cell or "")]
    if not chosen:
        known = ", ".join(planned.cell.cell_key for planned in plan.cells[:12])
        raise StoreError(f"run {ledger.run_id!r} has no cell {cell!r}: use one of {known}")
    keys = ledger.keys()
    committed, numbers = ledger.committed_steps(keys), newest(keys)
    graded = []
    for planned in chosen:
        key, label = planned.cell.cell_key, planned.cell.label
        for spec in planned.steps:
            if spec.step not in committed.get(key, ()) or not spec.step.startswith("eval-"):
                continue
            again: Regraded | None = None
            number: int | None = None
            if isinstance(spec, EvalStep):
                again, number = _step(ledger, planned, spec, numbers.get((key, spec.step), 0), dry_run)
            checked = isinstance(spec, EvalStep) and not spec.suite.letters
            graded.append(Graded(key, label, spec.step, checked, again, number))
    return graded


def _step(
    ledger: Ledger, planned: PlannedCell, spec: EvalStep, after: int, dry_run: bool
) -> tuple[Regraded | None, int | None]:
    """The step graded again, and the number of the regrade that was written; nothing of a step that graded nothing."""
    cell_key, model = planned.cell.cell_key, planned.cell.model
    measured = ledger.read_commit(cell_key, spec.step)
    if measured is None:
        raise StoreError(f"the commit of {spec.step} of cell {cell_key} was listed but is gone: restore it")
    commit = in_force(measured, read_regrade(ledger, cell_key, spec.step, after) if after else None)
    samples, scores, verdicts = (
        list(rows_in_force(ledger, commit, table)) for table in (EVAL_SAMPLES, EVAL_SCORES, VERDICTS)
    )
    if not samples:
        return None, None
    try:
        again = regraded(model, spec, commit, samples, rows_in_force(ledger, commit, EXCHANGES), scores, verdicts)
    except RegradeError as error:
        raise RegradeError(f"cell {cell_key}: {error}") from error
    if dry_run or not again.is_due:
        return again, None
    return again, write_regrade(ledger, cell_key, spec.step, after, again.grading, git_head()).number


def document(run_id: str, graded: list[Graded], *, dry_run: bool) -> dict[str, Any]:
    """For --json."""
    steps = [each.document() for each in graded]
    return {"run_id": run_id, "extractor_version": VERSION, "dry_run": dry_run, "steps": steps}


def render(graded: list[Graded], *, dry_run: bool) -> Group:
    """What changed, and what did not, for people."""
    changed = [each for each in graded if each.state == "changed"]
    table: list[RenderableType] = [_table(changed)] if changed else []
    return Group(*table, *(Text(line) for line in _lines(graded, dry_run)))


def _table(changed: list[Graded]) -> Matrix:
    rows: list[tuple[str, ...]] = []
    for each in changed:
        assert each.again is not None, "what changed was graded again"
        for change in each.again.changes:
            figures = f"{change.before:.3f}", f"{change.after:.3f}", str(change.items)
            rows.append((each.label, each.step, change.reader, *figures, ""))
        before, after = each.again.verdict_before, each.again.grading.verdict
        reasons = ", ".join(each.again.grading.reasons)
        if (before, each.again.reasons_before) != (after, each.again.grading.reasons):
            rows.append((each.label, each.step, "verdict", before, after, "", reasons))
    makes = (words, words, words, Column, Column, Column, words)
    named = zip(makes, ("cell", "step", "reader", "before", "after", "items", "reasons now"), strict=True)
    columns = [make(name, [row[number] for row in rows]) for number, (make, name) in enumerate(named)]
    return Matrix(columns[:3], columns[3:])


def _lines(graded: list[Graded], dry_run: bool) -> Iterator[str]:
    counts = Counter(each.state for each in graded)
    done = "would be recorded (--dry-run)" if dry_run else "recorded; `sweep report` builds the dataset from it"
    confirmed = f", {counts['confirmed']} read the same by another version" if counts["confirmed"] else ""
    yield (
        f"extractors of version {VERSION}: {plural(counts['changed'], 'step')} changed{confirmed}"
        f"{', ' + done if counts['changed'] or confirmed else ''}, {counts['unchanged']} unchanged"
    )
    if checked := sorted({each.step for each in graded if each.checked}):
        yield f"{', '.join(checked)}: what the framework's own checkers said when it was measured stands"
    if bare := sorted({each.step for each in graded if each.state == "no response log"}):
        yield f"{', '.join(bare)}: has no response log, left as it is"
    if not graded:
        yield "the run has no committed evaluation"
