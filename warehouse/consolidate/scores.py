"""Score rows: how many questions were answered correctly, by the extractor that counts and by the one that traps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warehouse.columns import Table
from warehouse.consolidate.inputs import STEP, CommittedStep, Group, baseline_of
from warehouse.consolidate.pairs import accuracy_pair
from warehouse.consolidate.rows import Made, Row, base_row, judged, plain_row, verdict_columns
from warehouse.statistics.compare import PairedAccuracy, compare_accuracy, proportion_stderr
from warehouse.verdicts import Reason

if TYPE_CHECKING:  # nodes import this file and have no polars
    import polars as pl

    from warehouse.consolidate.raw import Raw

Counts = Mapping[str, Any]
"""n, right_last, right_first, truncated, blank of one step."""


def graded(items: pl.LazyFrame) -> pl.LazyFrame:
    """Per item: right by last-letter, right by first-letter, truncated, blank; a missing letter is wrong, not null."""
    import polars as pl

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
    import polars as pl

    sums = pl.col("right_last", "right_first", "truncated", "blank").sum()
    return graded(items).group_by(*STEP).agg(pl.len().alias("n"), sums)


def smoke_row(step: CommittedStep, raw: Raw, items: Table) -> Row:
    """One row for the whole smoke step; without questions it has a verdict and no score."""
    row = plain_row(step, raw) | {"metric": "smoke"}
    counts = raw.rows(step, items, counted)
    return row | _score(counts[0], "last") if counts else row


def scores_and_pairs(group: Group, raw: Raw, items: Table) -> Made:
    """Two rows per cell, by extractor, and a comparison with AR where both cells' rows are ok.

    Args:
        group: steps of one kind that are compared with each other.
        raw: their raw rows.
        items: the table of answered questions.
    """
    made = Made([], [])
    for step in group:
        counts = raw.rows(step, items, counted)
        if not counts:
            made.results.append(plain_row(step, raw))
            continue
        rows = _score_rows(step, counts[0], raw)
        made.results.extend(rows)
        baseline = baseline_of(step, group)
        if baseline is None or rows[0]["verdict"] != "ok" or judged(baseline, raw).verdict != "ok":
            continue
        compared = _compared(raw.frame(step, items, graded), raw.frame(baseline, items, graded))
        if compared is not None:
            made.pairs.append(accuracy_pair(rows[0], {"cell_key": baseline.cell_key}, compared))
    return made


def _score_rows(step: CommittedStep, counts: Counts, raw: Raw) -> list[Row]:
    """The score by last-letter, which counts, and by first-letter, which is kept to show where a grader would lie."""
    verdict = judged(step, raw)
    row = base_row(step, raw, verdict) | {"metric": "accuracy"}
    last = row | _score(counts, "last")
    first = row | _score(counts, "first")
    if counts["right_first"] != counts["right_last"]:
        sentence = f"first-letter reads {first['score']:.3f} where last-letter reads {last['score']:.3f}: a diagnostic"
        first |= verdict_columns(verdict.worsened("suspect", Reason.EXTRACTORS_DISAGREE, sentence))
    return [last, first]


def _score(counts: Counts, extractor: str) -> Row:
    n, right = counts["n"], counts[f"right_{extractor}"]
    return {
        "score": right / n,
        "score_stderr": proportion_stderr(right / n, n),
        "n": n,
        "truncated": counts["truncated"],
        "blank": counts["blank"],
        "extractor": f"{extractor}-letter",
    }


def _compared(ours: pl.DataFrame | None, theirs: pl.DataFrame | None) -> tuple[PairedAccuracy, float, float] | None:
    """Comparison, and the scores of baseline and cell over the items that both answered; None: no such items."""
    import polars as pl

    if ours is None or theirs is None:
        return None
    both = ours.join(theirs, on="item_id", how="inner", suffix="_baseline")
    if both.is_empty():
        return None
    right, before = pl.col("right_last"), pl.col("right_last_baseline")
    n, gained, lost, right_now, right_before = both.select(
        pl.len(),
        (right & ~before).sum().alias("gained"),
        (~right & before).sum().alias("lost"),
        right.sum().alias("now"),
        before.sum().alias("before"),
    ).row(0)
    return compare_accuracy(n, gained, lost), right_before / n, right_now / n
