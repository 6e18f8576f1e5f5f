"""Score rows: how many questions were answered rightly, by the extractor that counts and by the one that traps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from warehouse.consolidate.frames import STEP, Identity, Reduced
from warehouse.consolidate.inputs import CommittedStep
from warehouse.consolidate.rows import EXTRACTORS_DISAGREE, Row, base_row, judged, verdict_columns
from warehouse.statistics.compare import PairedAccuracy, compare_accuracy, proportion_stderr

Counts = Mapping[str, Any]
"""n, right_last, right_first, truncated, blank of one step."""


def count_items(reduced: Reduced) -> dict[Identity, Counts]:
    """Items, right answers by extractor, cut-off and blank answers, of every step of a batch."""
    counted = reduced.items.group_by(*STEP).agg(
        pl.len().alias("n"), pl.col("right_last", "right_first", "truncated", "blank").sum()
    )
    return {(row["run_id"], row["cell_key"], row["step"]): row for row in counted.iter_rows(named=True)}


def smoke_row(step: CommittedStep, counts: Counts | None, reduced: Reduced) -> Row:
    """One row for the whole smoke step; without questions it has a verdict and no score."""
    verdict = judged(step, reduced.verdicts.get(step.identity, []), None, None)
    row = base_row(step, reduced, verdict) | {"metric": "smoke"}
    return row if counts is None else row | _score(counts, "last")


def eval_rows(step: CommittedStep, counts: Counts, reduced: Reduced) -> list[Row]:
    """The score by last-letter, which counts, and by first-letter, which is kept to show when a grader would lie."""
    verdict = judged(step, reduced.verdicts.get(step.identity, []), None, None)
    row = base_row(step, reduced, verdict) | {"metric": "accuracy"}
    last = row | _score(counts, "last")
    first = row | _score(counts, "first")
    if counts["right_first"] != counts["right_last"]:
        sentence = f"first-letter reads {first['score']:.3f} where last-letter reads {last['score']:.3f}: a diagnostic"
        first |= verdict_columns(verdict.worsened("suspect", EXTRACTORS_DISAGREE, sentence))
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


class PairedScores:
    """Paired comparisons over the items of one batch; each step's items are looked up once."""

    def __init__(self, reduced: Reduced) -> None:
        """Split the batch's items by step."""
        parts = reduced.items.partition_by(*STEP, as_dict=True, include_key=False)
        self._items = {(str(key[0]), str(key[1]), str(key[2])): frame for key, frame in parts.items()}

    def compare(self, step: CommittedStep, baseline: CommittedStep) -> tuple[PairedAccuracy, float, float] | None:
        """Comparison, and the scores of baseline and cell over the items that both answered; none: no such items."""
        ours, theirs = self._items.get(step.identity), self._items.get(baseline.identity)
        if ours is None or theirs is None:
            return None
        both = ours.join(theirs, on="item_id", how="inner", suffix="_baseline")
        if both.is_empty():
            return None
        right, before = pl.col("right_last"), pl.col("right_last_baseline")
        n, gained, lost, right_now, right_before = both.select(
            pl.len(), (right & ~before).sum().alias("gained"), (~right & before).sum().alias("lost"),
            right.sum().alias("now"), before.sum().alias("before"),
        ).row(0)  # fmt: skip
        return compare_accuracy(n, gained, lost), right_before / n, right_now / n
