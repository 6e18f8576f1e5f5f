"""From graded answers to counts: per item for comparisons, per step for scores. Polars does it, one pass per table."""

from __future__ import annotations

import polars as pl

from warehouse.dataset.consolidate.inputs import STEP

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
