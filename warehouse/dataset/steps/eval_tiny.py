"""Eval-tiny: questions that a cell answers correctly, by the extractor that counts and the one that traps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from warehouse.dataset.consolidate.comparable import judged_as_served
from warehouse.dataset.consolidate.inputs import STEP, Group, Raw
from warehouse.dataset.consolidate.pairs import Arm, scored
from warehouse.dataset.consolidate.rows import Made, Result, Row, base_row, step_seconds
from warehouse.dataset.consolidate.speed.rows import counted_acceptance
from warehouse.dataset.statistics.accuracy import MARGIN
from warehouse.dataset.statistics.proportions import proportion_stderr, wilson_interval
from warehouse.ledger.steps import EVAL_ITEMS
from warehouse.ledger.verdicts import Reason

TABLES = (EVAL_ITEMS,)

Counts = Mapping[str, Any]  # n, right_last, right_first, truncated, blank of one step


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


def rows(group: Group, raw: Raw) -> Made:
    """Two rows per cell, by extractor, and a comparison with AR where both cells' rows are ok."""
    arms = [Arm(step, judged_as_served(step, raw), raw.frame(step, EVAL_ITEMS, answered), MARGIN) for step in group]
    return scored(arms, lambda arm: _score_rows(arm, raw))


def _score_rows(arm: Arm, raw: Raw) -> list[Result]:
    """The score by last-letter, which counts, and by first-letter, which is kept to show where a grader would lie."""
    step, seconds = arm.step, step_seconds(arm.step, raw)
    counts = next(iter(raw.rows(step, EVAL_ITEMS, counted)), None)
    if counts is None:
        return [Result(base_row(step, raw, seconds), arm.judged)]
    row = base_row(step, raw) | {"metric": "accuracy"}
    last = Result(row | _score(counts, "last") | seconds._asdict() | counted_acceptance(step, raw), arm.judged)
    first = Result(row | _score(counts, "first"), arm.judged)
    if counts["right_first"] != counts["right_last"]:
        scores = [each.columns["score"] for each in (first, last)]
        sentence = "first-letter reads {:.3f} where last-letter reads {:.3f}: a diagnostic".format(*scores)
        first = first.worsened("suspect", Reason.EXTRACTORS_DISAGREE, sentence)
    return [last, first]


def _score(counts: Counts, extractor: str) -> Row:
    return share_columns(counts[f"right_{extractor}"], counts["n"]) | {
        "n": counts["n"],
        "samples": 1,
        "truncated": counts["truncated"],
        "blank": counts["blank"],
        "extractor": f"{extractor}-letter",
    }


def share_columns(right: int, n: int) -> Row:
    """A score of right-or-wrong answers with its standard error and Wilson's interval."""
    low, high = wilson_interval(right / n, n)
    return {"score": right / n, "score_stderr": proportion_stderr(right / n, n), "score_lo": low, "score_hi": high}
