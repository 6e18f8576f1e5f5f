"""Every evaluation of the table: the score that counts, the scores by other readers, the comparison with AR."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from configs.steps.eval import EvalStep
from warehouse.dataset.consolidate.comparable import judged_as_served
from warehouse.dataset.consolidate.inputs import STEP, CommittedStep, Group, Raw
from warehouse.dataset.consolidate.pairs import Arm, scored
from warehouse.dataset.consolidate.rows import Judged, Made, Result, Row, base_row, step_seconds
from warehouse.dataset.consolidate.speed.rows import counted_acceptance
from warehouse.dataset.statistics.proportions import Z_TWO_SIDED, pass_at_k, proportion_stderr, wilson_interval
from warehouse.dataset.tables import ANY_OF
from warehouse.ledger.steps import EVAL_SAMPLES, EVAL_SCORES, EVAL_TABLES
from warehouse.ledger.verdicts import Reason

TABLES = EVAL_TABLES

Counts = Mapping[str, Any]  # what `counted` says of one step
SAME_SCORE = 1e-9  # scores closer than this are the same share of right answers, summed in another order
FEWEST_TRIES = 2  # answers per item from which pass@k says more than the score
REPORTED = "reported"  # extractor of a figure that the framework itself published, under its own metric's name

READERS = ("strict", "flexible", "first", "framework")
"""Other readers of the same answers, in the order in which they are shown; what they read is a diagnostic."""


def readings(samples: pl.LazyFrame) -> pl.LazyFrame:
    """Per answer: right by the reading that counts and by every other; whether another reading found the same answer.

    A reader that found nothing is wrong, not null. `by_framework` is null where the framework gave no verdict.
    """
    found = pl.col("last_in_body")
    others = [found.eq(pl.col(name)).fill_null(False) for name in ("strict", "flexible", "framework_answer")]
    return samples.select(
        *STEP,
        "suite",
        "item_id",
        "prompt_hash",
        "extractor_version",
        pl.col("correct").alias("right"),
        *((pl.col(name) == pl.col("gold")).fill_null(False).alias(f"by_{name}") for name in READERS[:-1]),
        pl.col("framework_correct").alias("by_framework"),
        pl.any_horizontal(others).alias("agreed"),
        "truncated",
        "blank",
    )


def answered(samples: pl.LazyFrame) -> pl.LazyFrame:
    """Per item: answers, right ones, cut-off ones, the prompt that asked it, and the readers that graded it."""
    return (
        readings(samples)
        .group_by(*STEP, "item_id")
        .agg(
            pl.len().cast(pl.Int64).alias("answers"),
            pl.col("right", "truncated").sum().cast(pl.Int64),
            pl.col("prompt_hash", "extractor_version").min(),
        )
    )


def counted(samples: pl.LazyFrame) -> pl.LazyFrame:
    """Per step: items, answers per item, counts of answers, and per reader the mean and the spread of items' shares.

    Shares are summed in the order of the items, so that a build gives the same bits whatever the threads do.
    """
    counts = ("truncated", "blank", "agreed")
    shares = ["right", *(f"by_{name}" for name in READERS)]
    per_item = readings(samples).group_by(*STEP, "item_id").agg(
        pl.len().cast(pl.Int64).alias("answers"), pl.col(*counts).sum().cast(pl.Int64), pl.col(*shares).mean()
    )  # fmt: skip
    ordered = pl.col(*shares).sort_by("item_id")
    return per_item.group_by(*STEP).agg(
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("answers").sum().alias("answers"),
        pl.col("answers").max().alias("samples"),
        pl.col("by_framework").count().cast(pl.Int64).alias("judged"),
        pl.col(*counts).sum(),
        ordered.mean(),
        ordered.std(ddof=1).name.suffix("_spread"),
    )


def tallied(samples: pl.LazyFrame) -> pl.LazyFrame:
    """Per step, whatever suites it tried: answers, right, cut-off and blank ones."""
    sums = pl.col("right", "truncated", "blank").sum().cast(pl.Int64)
    return readings(samples).group_by(*STEP).agg(pl.len().cast(pl.Int64).alias("n"), sums)


def rows(group: Group, raw: Raw) -> Made:
    """Per cell a row that counts and one per other reader; a comparison with AR where both cells' rows are ok."""
    arms = [
        Arm(step, judged_as_served(step, raw), raw.frame(step, EVAL_SAMPLES, answered), _spec(step).margin)
        for step in group
    ]
    return scored(arms, lambda arm: _score_rows(arm, raw))


def _spec(step: CommittedStep) -> EvalStep:
    assert isinstance(step.spec, EvalStep), "the build gives a step's file its own kind of steps only"
    return step.spec


def _score_rows(arm: Arm, raw: Raw) -> list[Result]:
    """The row that counts, then the diagnostics: one per reader of letters, and what the framework itself reported."""
    step, verdict = arm.step, arm.judged
    counts = next(iter(raw.rows(step, EVAL_SAMPLES, counted)), None)
    if counts is None:
        return [Result(base_row(step, raw, step_seconds(step, raw)), verdict)]
    spec, letters = _spec(step), bool(_spec(step).suite.letters)
    metric, extractor = spec.suite.counting
    scores = raw.rows(step, EVAL_SCORES)
    row = base_row(step, raw) | {
        "metric": metric,
        "framework": spec.framework,
        **{name: counts[name] for name in ("samples", "truncated", "blank")},
    }
    for name in ("framework_version", "dataset_revision"):  # what provenance says stays where the scores are silent
        if scores and scores[0][name] is not None:
            row[name] = scores[0][name]
    agreed = counts["agreed"] / counts["answers"] if letters else None
    first = row | {"extractor": extractor, "readers_agree": agreed, **_score(counts, "right", counts["n"])}
    first |= step_seconds(step, raw)._asdict() | counted_acceptance(step, raw)
    made = [Result(first, verdict)]
    for reader in READERS if letters else ("framework",):
        if counts[f"by_{reader}"] is not None:
            n = counts["judged"] if reader == "framework" else counts["n"]
            found = row | {"extractor": reader, **_score(counts, f"by_{reader}", n)}
            made.append(_beside(first, found, verdict))
    # the framework's own scores; those that were graded here are computed anew from the answers
    reported = [score for score in scores if score["source"] == "framework"]
    for score in sorted(reported, key=lambda each: (each["metric"], each["extractor"] or "")):
        found = row | {name: score[name] for name in ("metric", "n", "samples")}
        found |= {"extractor": REPORTED, "score": score["value"], "score_stderr": score["stderr"]}
        # where answers are letters, each of its figures is a share of right ones, so it has to agree
        is_same = letters or score["metric"] == metric
        made.append(_beside(first, found, verdict) if is_same else Result(found, verdict))
    return [*made, *(Result(each, verdict) for each in _any_of_several(row, counts, arm.items))]


def _beside(first: Row, other: Row, verdict: Judged) -> Result:
    """A diagnostic: suspect where it reads another score than the reading that counts."""
    result = Result(other, verdict)
    if abs(other["score"] - first["score"]) <= SAME_SCORE:
        return result
    sentence = (
        f"{other['extractor']} reads {other['score']:.3f} where {first['extractor']} reads {first['score']:.3f}: "
        "a diagnostic"
    )
    return result.worsened("suspect", Reason.EXTRACTORS_DISAGREE, sentence)


def _any_of_several(row: Row, counts: Counts, items: pl.DataFrame | None) -> list[Row]:
    """pass@k for k = 2, 4, 8, ... up to the answers per item; the score itself is pass@1."""
    samples = counts["samples"]
    if samples < FEWEST_TRIES or items is None:
        return []
    right = items["right"].to_list()
    tries = sorted({k for k in (2**power for power in range(1, 7)) if k <= samples} | {samples})
    return [
        row | {"metric": f"pass@{k}", "extractor": ANY_OF, "score": pass_at_k(right, samples, k), "n": len(right)}
        for k in tries
    ]


def _score(counts: Counts, reading: str, n: int) -> Row:
    """Mean over items of the share of right answers, with its spread over items: an item's answers are one cluster.

    One answer per item, or no spread at all, which is no certainty: Wilson's interval. Else mean -/+ z s / sqrt(n) over
    the items' shares (Miller, arXiv 2411.00640, section 2.2).
    """
    score, spread = counts[reading], counts[f"{reading}_spread"]
    if counts["samples"] == 1 or not spread:
        stderr = proportion_stderr(score, n)
        low, high = wilson_interval(score, n)
    else:
        stderr = spread / math.sqrt(n)
        low, high = max(0.0, score - Z_TWO_SIDED * stderr), min(1.0, score + Z_TWO_SIDED * stderr)
    return {"score": score, "score_stderr": stderr, "score_lo": low, "score_hi": high, "n": n}
