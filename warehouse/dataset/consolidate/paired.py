"""A cell's answers beside its AR cell's, item by item: the only accuracy comparison that is made.

Two arms are comparable where they answered the same questions. That is checked on the prompts themselves: another
order of the choices, another template or another shot makes another question of the same item.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import polars as pl

from warehouse.dataset.consolidate.inputs import CommittedStep
from warehouse.dataset.consolidate.pairs import accuracy_pair
from warehouse.dataset.consolidate.rows import Judged, Row, verdict_columns, verdict_of
from warehouse.dataset.consolidate.serving import served_differently
from warehouse.dataset.statistics.compare import mcnemar_p
from warehouse.dataset.statistics.paired import Comparison, compare
from warehouse.dataset.statistics.proportions import ALPHA
from warehouse.ledger.verdicts import Reason, Verdict


class Arm(NamedTuple):
    """One cell's side of a comparison."""

    step: CommittedStep
    verdict: Verdict
    """Of its step; only ok ones are compared."""
    items: pl.DataFrame | None
    """Per item: item_id, answers, right, truncated (counts of answers), prompt_hash, extractor_version (null: not
    recorded)."""
    margin: float
    """Loss of score that still counts as none."""


class Cut(NamedTuple):
    """Cut-off answers of both arms."""

    share: float
    baseline_share: float
    p: float
    """Exact McNemar test over items of which any answer was cut off."""


def paired(row: Row, ours: Arm, baseline: Arm) -> tuple[Row, Row | None]:
    """The counting row with what the comparison found, and the comparison; no pair where one can't be made fairly.

    Scores are only compared of ok rows. How many answers were cut off is compared of all: where it differs most, the
    node has judged one of the two already. That finding worsens the row but takes no pair away: it is the evidence.
    """
    if ours.items is None or baseline.items is None:
        return row, None
    both = ours.items.join(baseline.items, on="item_id", how="inner", suffix="_baseline").sort("item_id")
    refusal = _refusal(both)
    if refusal is not None:
        return _noting(row, refusal), None
    cut = _cut(both)
    held = row | verdict_columns(_held_to_truncation(row, cut))
    if baseline.verdict != "ok":
        return _noting(held, f"its row is {baseline.verdict}"), None
    if row["verdict"] != "ok":
        return held, None
    pair = accuracy_pair(held, baseline.step.cell_key, *_compared(row, ours, both)) | {
        "truncated_delta": cut.share - cut.baseline_share,
        "served_differently": served_differently(ours.step, baseline.step),
    }
    return held, pair


def _noting(row: Row, refusal: str) -> Row:
    return row | verdict_columns(verdict_of(row).noting(f"not compared with AR: {refusal}"))


def _refusal(both: pl.DataFrame) -> str | None:
    """Why the items that both answered can't be compared; None: they can."""
    if both.is_empty():
        return "no item was answered by both"
    asked = both.filter(pl.col("prompt_hash") != pl.col("prompt_hash_baseline"))["item_id"].to_list()
    if asked:
        return (
            f"{len(asked)} of {both.height} items were asked in other words (choices in another order, or another "
            f"template), e.g. {asked[0]!r}: take the items of both from one prepared file"
        )
    reread = both.filter(pl.col("extractor_version") != pl.col("extractor_version_baseline"))["item_id"].to_list()
    if reread:
        return f"{len(reread)} items, e.g. {reread[0]!r}, were graded by different readers: run `sweep regrade RUN`"
    uneven = both.filter(pl.col("answers") != pl.col("answers_baseline"))["item_id"].to_list()
    return f"{len(uneven)} items have another number of answers, e.g. {uneven[0]!r}" if uneven else None


def _compared(row: Row, ours: Arm, both: pl.DataFrame) -> tuple[Comparison, float, float]:
    """The comparison, and the scores of baseline and cell over the same items."""
    before = (both["right_baseline"] / both["answers_baseline"]).to_list()
    now = (both["right"] / both["answers"]).to_list()
    identity = "/".join((*ours.step.identity, row["metric"], str(row["extractor"])))
    found = compare(before, now, row["samples"], ours.margin, identity)
    n = both.height
    return found, math.fsum(before) / n, math.fsum(now) / n


def _cut(both: pl.DataFrame) -> Cut:
    now, before = pl.col("truncated") > 0, pl.col("truncated_baseline") > 0
    share, baseline_share, gained, lost = both.select(
        (pl.col("truncated").sum() / pl.col("answers").sum()).alias("share"),
        (pl.col("truncated_baseline").sum() / pl.col("answers_baseline").sum()).alias("baseline"),
        (now & ~before).sum().alias("gained"),
        (~now & before).sum().alias("lost"),
    ).row(0)
    return Cut(share, baseline_share, mcnemar_p(gained, lost))


def _held_to_truncation(row: Row, cut: Cut) -> Judged:
    """Guard: as many answers are cut off as of AR. One that rambles isn't lossless, even where its score is as good."""
    verdict = verdict_of(row)
    if cut.p >= ALPHA:
        return verdict
    sentence = (
        f"{cut.share:.1%} of the answers were cut off, of AR's {cut.baseline_share:.1%} "
        f"(exact McNemar p = {cut.p:.2g}): one of them rambles"
    )
    return verdict.worsened("suspect", Reason.TRUNCATION_DIFFERS, sentence)
