"""Every evaluation of the table: the score that counts, what other readers made of the answers, the comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from configs.steps.eval import EvalStep
from warehouse.dataset.consolidate.costs import step_seconds
from warehouse.dataset.consolidate.inputs import CommittedStep, Group, baseline_of
from warehouse.dataset.consolidate.paired import Arm, paired
from warehouse.dataset.consolidate.raw import Raw
from warehouse.dataset.consolidate.readings import READERS, answered, counted
from warehouse.dataset.consolidate.rows import Judged, Made, Row, base_row, verdict_columns
from warehouse.dataset.consolidate.serving import judged_as_served
from warehouse.dataset.consolidate.speed.rows import counted_acceptance
from warehouse.dataset.statistics.compare import Z_TWO_SIDED, proportion_stderr, wilson_interval
from warehouse.dataset.statistics.proportions import pass_at_k
from warehouse.dataset.tables import ANY_OF
from warehouse.ledger.steps.evaluation import EVAL_SAMPLES, EVAL_SCORES, EVAL_TABLES
from warehouse.ledger.verdicts import Reason

TABLES = EVAL_TABLES

Counts = Mapping[str, Any]
"""What `readings.counted` says of one step."""

SAME_SCORE = 1e-9
"""Scores closer than this are the same share of right answers, summed in another order."""

FEWEST_TRIES = 2
"""Answers per item from which pass@k says more than the score."""

REPORTED = "reported"
"""Extractor of a figure that the framework itself published, under its own metric's name."""


def rows(group: Group, raw: Raw) -> Made:
    """Per cell a row that counts and one per other reader; a comparison with AR where both cells' rows are ok."""
    made = Made([], [])
    for step in group:
        counts = next(iter(raw.rows(step, EVAL_SAMPLES, counted)), None)
        verdict = judged_as_served(step, raw)
        if counts is None:
            made.results.append(base_row(step, raw, verdict, step_seconds(step, raw)))
            continue
        first, *others = _score_rows(step, counts, verdict, raw)
        baseline = baseline_of(step, group)
        if baseline is not None:
            first, pair = paired(first, *(_arm(each, raw) for each in (step, baseline)))
            made.pairs.extend([] if pair is None else [pair])
        made.results.extend((first, *others))
    return made


def _arm(step: CommittedStep, raw: Raw) -> Arm:
    spec = _spec(step)
    return Arm(step, judged_as_served(step, raw).verdict, raw.frame(step, EVAL_SAMPLES, answered), spec.margin)


def _spec(step: CommittedStep) -> EvalStep:
    assert isinstance(step.spec, EvalStep), "the build gives a step's file its own kind of steps only"
    return step.spec


def _score_rows(step: CommittedStep, counts: Counts, verdict: Judged, raw: Raw) -> list[Row]:
    """The row that counts, then the diagnostics: one per reader of letters, and what the framework said itself."""
    spec, reported = _spec(step), _reported(step, raw)
    metric, extractor = spec.suite.counting
    row = base_row(step, raw, verdict) | {
        "metric": metric,
        "samples": counts["samples"],
        "truncated": counts["truncated"],
        "blank": counts["blank"],
        "framework": spec.framework,
        **_framework(raw.rows(step, EVAL_SCORES)),
    }
    agreed = counts["agreed"] / counts["answers"] if spec.suite.letters else None
    score = _score(counts, "right", counts["n"])
    first = row | {"extractor": extractor, "readers_agree": agreed, **score, **step_seconds(step, raw)._asdict()}
    first |= counted_acceptance(step, raw)
    readers = READERS if spec.suite.letters else ("framework",)
    known = [name for name in readers if counts[f"by_{name}"] is not None]
    others = [_read_otherwise(row, first, counts, verdict, name) for name in known]
    published = [_published(row, first, each, verdict, bool(spec.suite.letters)) for each in reported]
    return [first, *others, *published, *_any_of_several(step, row, counts, raw)]


def _any_of_several(step: CommittedStep, row: Row, counts: Counts, raw: Raw) -> list[Row]:
    """pass@k for k = 2, 4, 8, ... up to the answers per item; the score itself is pass@1."""
    samples, items = counts["samples"], raw.frame(step, EVAL_SAMPLES, answered)
    if samples < FEWEST_TRIES or items is None:
        return []
    right = items["right"].to_list()
    tries = sorted({k for k in (2**power for power in range(1, 7)) if k <= samples} | {samples})
    return [
        row | {"metric": f"pass@{k}", "extractor": ANY_OF, "score": pass_at_k(right, samples, k), "n": len(right)}
        for k in tries
    ]


def _read_otherwise(row: Row, first: Row, counts: Counts, verdict: Judged, reader: str) -> Row:
    n = counts["judged"] if reader == "framework" else counts["n"]
    found = row | {"extractor": reader, **_score(counts, f"by_{reader}", n)}
    return found | _compared_with(first, found, verdict)


def _published(row: Row, first: Row, score: Mapping[str, Any], verdict: Judged, letters: bool) -> Row:
    """A figure of the framework's own. Where answers are letters, each is a share of right ones, so it has to agree."""
    found = row | {
        "metric": score["metric"],
        "extractor": REPORTED,
        "score": score["value"],
        "score_stderr": score["stderr"],
        "n": score["n"],
        "samples": score["samples"],
    }
    return found | (_compared_with(first, found, verdict) if letters or score["metric"] == first["metric"] else {})


def _compared_with(first: Row, other: Row, verdict: Judged) -> Row:
    """Verdict of a diagnostic: suspect where it reads another score than the reading that counts."""
    if abs(other["score"] - first["score"]) <= SAME_SCORE:
        return verdict_columns(verdict)
    sentence = (
        f"{other['extractor']} reads {other['score']:.3f} where {first['extractor']} reads {first['score']:.3f}: "
        "a diagnostic"
    )
    return verdict_columns(verdict.worsened("suspect", Reason.EXTRACTORS_DISAGREE, sentence))


def _score(counts: Counts, reading: str, n: int) -> Row:
    """Mean over items of the share of right answers, with its spread over items: an item's answers are one cluster.

    One answer per item: Wilson's interval. Several: mean -/+ z s / sqrt(n) over the items' shares (Miller, arXiv
    2411.00640, section 2.2), unless all items have the same share: that spread of 0 is no certainty, so Wilson's again.
    """
    score, spread = counts[reading], counts[f"{reading}_spread"]
    if counts["samples"] == 1 or not spread:
        stderr = proportion_stderr(score, n)
        low, high = wilson_interval(score, n)
    else:
        stderr = spread / math.sqrt(n)
        low, high = max(0.0, score - Z_TWO_SIDED * stderr), min(1.0, score + Z_TWO_SIDED * stderr)
    return {"score": score, "score_stderr": stderr, "score_lo": low, "score_hi": high, "n": n}


def _reported(step: CommittedStep, raw: Raw) -> list[dict[str, Any]]:
    """The framework's own scores, by name; those that were graded here are computed anew from the answers."""
    found = [row for row in raw.rows(step, EVAL_SCORES) if row["source"] == "framework"]
    return sorted(found, key=lambda row: (row["metric"], row["extractor"] or ""))


def _framework(scores: Sequence[Mapping[str, Any]]) -> Row:
    """Version and dataset as the scores name them; what provenance says stays where they are silent."""
    names = ("framework_version", "dataset_revision")
    return {name: scores[0][name] for name in names if scores and scores[0][name] is not None}
