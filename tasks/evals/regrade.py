"""Grades a finished evaluation again, from its response log alone: recorded answers in, today's reading of them out.

Nothing is asked of an engine or a framework. What a framework itself made of an answer stays as it was recorded: its
own readings and scores. So does whether an instruction of IFEval was followed, which only its checkers can say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from configs.cell import Model
from configs.errors import SpecsweepError
from configs.steps.eval import EvalStep
from tasks.evals.extractors import VERSION
from tasks.evals.grading import READERS, SCORES_OF, clustered, marks, our_scores, right_by_reader
from tasks.guards.answers import EXCERPT_CHARS, JUDGED_HERE, no_thinking, step_findings, thinks
from warehouse.ledger.commits import Commit, Grading
from warehouse.ledger.steps import EVAL_SAMPLES, EVAL_SCORES
from warehouse.ledger.tables import ROW_IDENTITY, Row, Table
from warehouse.ledger.tables import VERDICTS as VERDICT_ROWS
from warehouse.ledger.verdicts import Reason, Verdict, worst


class RegradeError(SpecsweepError):
    """A step can't be graded again: its response log doesn't hold what was graded."""


class Change(NamedTuple):
    """One reader of one step: its score before and after, and in how many items it reads otherwise."""

    reader: str
    before: float
    after: float
    items: int


class Regraded(NamedTuple):
    """A step graded again. `grading` is to be written where anything changed, were it only the readers' version."""

    grading: Grading
    changes: tuple[Change, ...]  # readers that read otherwise in any item
    verdict_before: Verdict
    reasons_before: tuple[str, ...]
    other_marks: int  # answers that are now right, cut off or blank where they were not, or the other way round
    outdated: int  # answers that another version graded: arms are only compared where one version graded both

    @property
    def is_due(self) -> bool:
        """Whether the grading says anything that isn't recorded yet."""
        return self.changed or self.outdated > 0

    @property
    def changed(self) -> bool:
        """Whether anything but the version of the readers differs."""
        before, now = (self.verdict_before, self.reasons_before), (self.grading.verdict, self.grading.reasons)
        return bool(self.changes or self.other_marks or before != now)


def regraded(
    model: Model,
    spec: EvalStep,
    commit: Commit,
    samples: Sequence[Row],
    exchanges: Iterable[Row],
    scores: Sequence[Row],
    verdicts: Sequence[Row],
) -> Regraded:
    """What today's readers and guards say of a step's rows. Raises RegradeError: a graded answer is not in the log."""
    now, said = _read_again(spec, samples, exchanges)
    new_verdicts = [_judged_again(row, model, spec, samples, now, said) for row in verdicts]
    verdict = worst(row["verdict"] for row in new_verdicts)
    reasons = tuple(sorted({reason for row in new_verdicts for reason in row["reasons"] or ()}))
    changes = tuple(_changes(spec, samples, now))
    kept = [row for row in scores if row["source"] != "ours"]
    tables: dict[Table, list[Row]] = {
        EVAL_SAMPLES: [*now],
        EVAL_SCORES: [*_our_scores(spec, now, scores), *kept],
        VERDICT_ROWS: [*new_verdicts],
    }
    others = ("correct", "truncated", "blank")
    differ = sum(any(old[name] != new[name] for name in others) for old, new in zip(samples, now, strict=True))
    before = tuple(sorted(commit.reasons))
    outdated = sum(row["extractor_version"] != VERSION for row in samples)
    return Regraded(Grading(tables, verdict, reasons, VERSION), changes, commit.verdict, before, differ, outdated)


def _read_again(
    spec: EvalStep, samples: Sequence[Row], exchanges: Iterable[Row]
) -> tuple[list[dict[str, Any]], list[Row]]:
    """The graded answers as they are read today, and the end of each, which a sentence may show."""
    by_key: dict[tuple[str, int], list[int]] = {}
    for index, row in enumerate(samples):
        by_key.setdefault((row["request_hash"], row["occurrence"]), []).append(index)
    now: dict[int, dict[str, Any]] = {}
    said: dict[int, Row] = {}
    for exchange in exchanges:
        for index in by_key.get((exchange["request_hash"], exchange["occurrence"]), ()):
            row = samples[index]
            details = json.loads(row["details"] or "{}")
            now[index] = {**row, **marks(spec.suite, row["gold"], details, exchange)}
            ends = {name: (exchange[name] or "")[-EXCERPT_CHARS * 2 :] for name in ("body", "reasoning")}
            said[index] = {**ends, "thinks": thinks(exchange)}
    lost = [row["item_id"] for index, row in enumerate(samples) if index not in now]
    if lost:
        raise RegradeError(
            f"{len(lost)} of {len(samples)} graded answers of {spec.step} are not in its log, e.g. of {lost[0]}: it "
            "can't be graded again; leave it out with --cell"
        )
    return [now[index] for index in range(len(samples))], [said[index] for index in range(len(samples))]


def _our_scores(spec: EvalStep, now: Sequence[Row], scores: Sequence[Row]) -> list[dict[str, Any]]:
    if not scores:
        return []
    common = {name: scores[0][name] for name in (*(column.name for column in ROW_IDENTITY), *SCORES_OF)}
    return [common | row for row in our_scores(now, spec.suite)]


def _changes(spec: EvalStep, before: Sequence[Row], now: Sequence[Row]) -> Iterable[Change]:
    """Readers of letters that find something else in any item."""
    scored = [
        {name: clustered(right)[0] for name, right in right_by_reader(rows, spec.suite)} for rows in (before, now)
    ]
    for reader, column in READERS.items() if spec.suite.letters else ():
        items = {old["item_id"] for old, new in zip(before, now, strict=True) if old[column] != new[column]}
        if items:
            yield Change(reader, scored[0][reader], scored[1][reader], len(items))


def _judged_again(
    row: Row, model: Model, spec: EvalStep, before: Sequence[Row], now: Sequence[Row], said: Sequence[Row]
) -> dict[str, Any]:
    """A verdict row with what the guards over answers say today; findings of other guards stay as they are.

    Rows don't keep how bad each reason was. If the guards over answers don't explain the row's verdict, its other
    reasons do, and keep it. Otherwise those count as suspect, the least that a reason can be.
    """
    if (row["condition"], row["mode"]) != (None, None):
        return dict(row)
    pairs = zip_longest(row["reasons"] or (), row["details"] or (), fillvalue="")
    others = [(reason, sentence) for reason, sentence in pairs if reason not in JUDGED_HERE]
    unthinking = no_thinking(model, [each["thinks"] for each in said])
    found = [*step_findings(now, spec.suite, said), *([unthinking] if unthinking else [])]
    known = row["reasons"] or ()
    explained = worst(
        [finding.severity for finding in step_findings(before, spec.suite)]
        + ["suspect" for reason in known if reason == Reason.NO_THINKING]
    )
    verdicts: list[Verdict] = [finding.severity for finding in found]
    if others:
        verdicts.append("suspect" if worst((explained, row["verdict"])) == explained else row["verdict"])
    return {
        **row,
        "verdict": worst(verdicts),
        "reasons": [*(reason for reason, _ in others), *(finding.reason.value for finding in found)],
        "details": [*(sentence for _, sentence in others), *(finding.sentence for finding in found)],
    }
