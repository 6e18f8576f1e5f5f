"""Comparisons with the AR cell: what every pair has, a cell's answers next to AR's, and the final verdict on accuracy.

AR has the cell's precision. A sweep's row may name AR of another precision besides; then there is a second pair.

Two arms are comparable where they answered the same questions, which is checked on the prompts themselves.

A run compares many cells with AR; at 5 % each, one in twenty differs by chance. Holm's correction keeps the chance of
any false claim at 5 % over the family: all models, precisions and techniques, one evaluation, one run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl

from warehouse.dataset.consolidate.comparable import Cell, served_differently
from warehouse.dataset.consolidate.inputs import Choose, CommittedStep, baseline_among, baseline_of, reference_among
from warehouse.dataset.consolidate.rows import Judged, Made, Pair, Result, Row
from warehouse.dataset.statistics.accuracy import compare, conclude, mcnemar_p, n_needed, wording
from warehouse.dataset.statistics.proportions import ALPHA, holm
from warehouse.ledger.verdicts import Reason

_SHARED = ("run_id", "cell_key", "model", "precision", "technique", "k", "made_up", "engine", "gpu", "step")

_COMPARED = (
    "n", "samples", "gained", "lost", "delta", "delta_lo", "delta_hi", "boot_lo", "boot_hi", "margin", "bound_lo",
    "ni_p", "mde",
)  # fmt: skip
"""Figures of a comparison that are columns under the same name."""


def pair_columns(row: Row, baseline_cell_key: str, kind: str) -> Row:
    """Who is compared with whom, by what; a row of `visits`, which an A/A check has, names only its model."""
    compared_as = row.get("compared_as") or row["model"]
    said = {"kind": kind, "baseline_cell_key": baseline_cell_key, "compared_as": compared_as}
    return {name: row[name] for name in _SHARED} | said | {"baseline_precision": row["precision"]}


PRECISION: Final = "precision"

AGAINST: Final[dict[str, Choose]] = {"accuracy": baseline_among, PRECISION: reference_among}
"""What a score is compared with, by the kind of the pair: AR of its own precision, and what its row is held against."""


class Arm(NamedTuple):
    """One cell's side of a comparison."""

    step: CommittedStep
    judged: Judged  # of its step; only ok ones are compared
    items: pl.DataFrame | None
    """Per item: item_id, answers, right, truncated (counts of answers), prompt_hash, extractor_version (null: not
    recorded)."""
    margin: float  # loss of score that still counts as none


def scored(arms: Sequence[Arm], rows_of: Callable[[Arm], list[Result]]) -> Made:
    """Rows of scores, the one that counts first, and a comparison with AR where both cells' rows are ok."""
    results: list[Result] = []
    pairs: list[Pair] = []
    by_step = {arm.step.identity: arm for arm in arms}
    for arm in arms:
        first, *others = rows_of(arm)
        for kind, choose in AGAINST.items():
            baseline = baseline_of(arm.step, tuple(each.step for each in arms), choose)
            if baseline is not None:
                first, pair = paired(first, arm, by_step[baseline.identity], kind)
                pairs += [] if pair is None else [pair]
        results += (first, *others)
    return Made(results, pairs)


def paired(result: Result, ours: Arm, baseline: Arm, kind: str) -> tuple[Result, Pair | None]:
    """The counting row with what the comparison found, and the comparison; no pair where one can't be made fairly.

    How many answers were cut off is compared of all rows, not only of ok ones: where it differs most, the node has
    judged one of the two already. That worsens the row but takes no pair away: it is the evidence.
    """
    if ours.items is None or baseline.items is None:
        return result, None
    there = baseline.step.planned.cell
    ar = f"AR of {there.model.name} {there.precision.name}" if kind == PRECISION else "AR"
    both = ours.items.join(baseline.items, on="item_id", how="inner", suffix="_baseline").sort("item_id")
    refusal = _refusal(both)
    if refusal is not None:
        return result.noting(f"not compared with {ar}: {refusal}"), None
    held, truncated_delta = _held_to_truncation(result, both, ar, is_noted_only=kind == PRECISION)
    if baseline.judged.verdict != "ok":
        return held.noting(f"not compared with {ar}: its row is {baseline.judged.verdict}"), None
    if not result.is_ok:
        return held, None
    row = held.row
    before = (both["right_baseline"] / both["answers_baseline"]).to_list()
    now = (both["right"] / both["answers"]).to_list()
    seeded_by = (*ours.step.identity, row["metric"], str(row["extractor"]))
    identity = "/".join((*seeded_by, kind) if kind == PRECISION else seeded_by)
    found = compare(before, now, row["samples"], ours.margin, identity)
    columns = pair_columns(row, baseline.step.cell_key, kind) | {
        "compared_as": there.model.name,
        "baseline_precision": there.precision.name,
        "metric": row["metric"],
        "extractor": row["extractor"],
        "baseline_value": math.fsum(before) / both.height,
        "value": math.fsum(now) / both.height,
        **{name: getattr(found, name) for name in _COMPARED},
        "mcnemar_p": found.p,
        "verdict": row["verdict"],
        "reasons": row["reasons"],
        "truncated_delta": truncated_delta,
        "served_differently": served_differently(ours.step, baseline.step),
    }
    return held, Pair(columns, found)


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


def _held_to_truncation(result: Result, both: pl.DataFrame, ar: str, *, is_noted_only: bool) -> tuple[Result, float]:
    """Guard: as many answers are cut off as of AR (McNemar over items); and how many more are, as a share.

    Beside another precision a difference is only noted: no row is suspect for what its format costs.
    """
    now, before = pl.col("truncated") > 0, pl.col("truncated_baseline") > 0
    share, of_ar, gained, lost = both.select(
        (pl.col("truncated").sum() / pl.col("answers").sum()).alias("share"),
        (pl.col("truncated_baseline").sum() / pl.col("answers_baseline").sum()).alias("baseline"),
        (now & ~before).sum().alias("gained"),
        (~now & before).sum().alias("lost"),
    ).row(0)
    p = mcnemar_p(gained, lost)
    if p < ALPHA:
        sentence = (
            f"{share:.1%} of the answers were cut off, of {ar}'s {of_ar:.1%} (exact McNemar p = {p:.2g}): one of them "
            "rambles"
        )
        worse = result.worsened("suspect", Reason.TRUNCATION_DIFFERS, sentence)
        result = result.noting(sentence) if is_noted_only else worse
    return result, share - of_ar


def settled(pairs: Sequence[Pair], barred: Mapping[Cell, str]) -> list[Row]:
    """Accuracy pairs with corrected p values and conclusion; `barred` cells, which fail parity, claim nothing."""
    done = [dict(pair.columns) for pair in pairs]
    families: dict[tuple[str, str], list[int]] = {}
    for at, row in enumerate(done):
        sentence = barred.get((row["run_id"], row["cell_key"]))
        if sentence is None:
            families.setdefault((row["run_id"], row["step"]), []).append(at)
            continue
        row |= {
            "verdict": "suspect",
            "reasons": [*row["reasons"], Reason.PARITY_FAILED.value],
            "conclusion": "inconclusive",
            "wording": f"no claim: {sentence}",
        }
    for family in families.values():
        waiting = [pairs[at].comparison for at in family]
        differ, lose = holm([each.p for each in waiting]), holm([each.ni_p for each in waiting])
        for at, found, p, ni_p in zip(family, waiting, differ, lose, strict=True):
            conclusion = conclude(found, p, ni_p)
            done[at] |= {
                "mcnemar_p_holm": p,
                "ni_p_holm": ni_p,
                "conclusion": conclusion,
                "n_needed": n_needed(found, conclusion, len(family)),
                "wording": wording(found, conclusion, p, len(family)),
            }
    return done
