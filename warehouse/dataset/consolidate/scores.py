"""Score rows of the demo's own questions: by the extractor that counts and by the one that traps; and smoke's row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from warehouse.dataset.consolidate.costs import step_seconds
from warehouse.dataset.consolidate.inputs import STEP, CommittedStep, Group, baseline_of
from warehouse.dataset.consolidate.paired import Arm, paired
from warehouse.dataset.consolidate.raw import Raw
from warehouse.dataset.consolidate.rows import Judged, Made, Row, base_row, plain_row, verdict_columns
from warehouse.dataset.consolidate.serving import judged_as_served
from warehouse.dataset.consolidate.speed.rows import counted_acceptance
from warehouse.dataset.statistics.compare import MARGIN, proportion_stderr, wilson_interval
from warehouse.dataset.tables import SMOKE
from warehouse.ledger.tables import Table
from warehouse.ledger.verdicts import Reason

Counts = Mapping[str, Any]
"""n, right_last, right_first, truncated, blank of one step."""


def graded(items: pl.LazyFrame) -> pl.LazyFrame:
    """Per item: right by last-letter, right by first-letter, truncated, blank; a missing letter is wrong, not null."""
    return items.select(
        *STEP,
        "item_id",
        pl.col("last_letter").eq_missing(pl.col("gold")).alias("right_last"),
        pl.col("first_letter").eq_missing(pl.col("gold")).alias("right_first"),
        (pl.col("finish_reason") == "length").fill_null(False).alias("truncated"),
        (pl.col("body").fill_null("").str.strip_chars() == "").alias("blank"),
    )


def counted(items: pl.LazyFrame) -> pl.LazyFrame:
    """Per step: items, right answers by extractor, cut-off and blank answers."""
    sums = pl.col("right_last", "right_first", "truncated", "blank").sum()
    return graded(items).group_by(*STEP).agg(pl.len().alias("n"), sums)


def answered(items: pl.LazyFrame) -> pl.LazyFrame:
    """Per item what a comparison needs; the questions are drawn from one seed, so no prompt has to be recorded."""
    return graded(items).select(
        *STEP,
        "item_id",
        pl.lit(1, pl.Int64).alias("answers"),
        pl.col("right_last").cast(pl.Int64).alias("right"),
        pl.col("truncated").cast(pl.Int64),
        pl.lit(None, pl.String).alias("prompt_hash"),
        pl.lit(None, pl.Int64).alias("extractor_version"),
    )


def smoke_row(step: CommittedStep, raw: Raw, tried: Mapping[str, Any] | None) -> Row:
    """One row for the whole smoke step; without questions it has a verdict and no score.

    Args:
        step: a smoke step.
        raw: holds its verdict and provenance.
        tried: n, right, truncated, blank of all its answers, and the extractor that read them; None: no questions.
    """
    row = plain_row(step, raw) | {"metric": SMOKE}
    if tried is None:
        return row
    kept = {name: tried[name] for name in ("n", "truncated", "blank", "extractor")}
    return row | kept | _share(tried["right"], tried["n"])


def scores_and_pairs(group: Group, raw: Raw, items: Table) -> Made:
    """Two rows per cell, by extractor, and a comparison with AR where both cells' rows are ok.

    Args:
        group: steps of one kind that are compared with each other.
        raw: their raw rows.
        items: the table of answered questions.
    """
    made = Made([], [])
    for step in group:
        verdict = judged_as_served(step, raw)
        counts = raw.rows(step, items, counted)
        if not counts:
            made.results.append(base_row(step, raw, verdict, step_seconds(step, raw)))
            continue
        last, first = _score_rows(step, counts[0], verdict, raw)
        baseline = baseline_of(step, group)
        if baseline is not None:
            last, pair = paired(last, *(_arm(each, raw, items) for each in (step, baseline)))
            made.pairs.extend([] if pair is None else [pair])
        made.results.extend((last, first))
    return made


def _arm(step: CommittedStep, raw: Raw, items: Table) -> Arm:
    return Arm(step, judged_as_served(step, raw).verdict, raw.frame(step, items, answered), MARGIN)


def _score_rows(step: CommittedStep, counts: Counts, verdict: Judged, raw: Raw) -> tuple[Row, Row]:
    """The score by last-letter, which counts, and by first-letter, which is kept to show where a grader would lie."""
    row = base_row(step, raw, verdict) | {"metric": "accuracy"}
    last = row | _score(counts, "last") | step_seconds(step, raw)._asdict() | counted_acceptance(step, raw)
    first = row | _score(counts, "first")
    if counts["right_first"] != counts["right_last"]:
        sentence = f"first-letter reads {first['score']:.3f} where last-letter reads {last['score']:.3f}: a diagnostic"
        first |= verdict_columns(verdict.worsened("suspect", Reason.EXTRACTORS_DISAGREE, sentence))
    return last, first


def _score(counts: Counts, extractor: str) -> Row:
    return {
        **_share(counts[f"right_{extractor}"], counts["n"]),
        "n": counts["n"],
        "samples": 1,
        "truncated": counts["truncated"],
        "blank": counts["blank"],
        "extractor": f"{extractor}-letter",
    }


def _share(right: int, n: int) -> Row:
    """A score of right-or-wrong answers with its standard error and Wilson's interval."""
    low, high = wilson_interval(right / n, n)
    return {"score": right / n, "score_stderr": proportion_stderr(right / n, n), "score_lo": low, "score_hi": high}
