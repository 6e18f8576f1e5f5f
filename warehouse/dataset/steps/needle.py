"""Needle: how many sentences hidden in long texts were found again, by length and depth."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from configs.steps.needle import NeedleStep, condition_name
from warehouse.dataset.consolidate.inputs import STEP, CommittedStep, Group, Raw
from warehouse.dataset.consolidate.rows import (
    Made,
    Result,
    Row,
    Spent,
    base_row,
    judged,
    plain_row,
    shared,
    step_seconds,
)
from warehouse.dataset.statistics.proportions import exact_interval, proportion_stderr
from warehouse.ledger.steps import NEEDLES

TABLES = (NEEDLES,)


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell, length and depth; needles make no pairs: a few per place could tell no two cells apart."""
    return Made([row for step in group for row in _rows(step, raw)])


def _rows(step: CommittedStep, raw: Raw) -> list[Result]:
    asked: dict[tuple[int, int], list[Row]] = {}
    for each in raw.rows(step, NEEDLES, _without_texts):
        asked.setdefault((each["context_tokens"], each["depth_percent"]), []).append(each)
    if not asked:
        return [plain_row(step, raw)]
    spent = shared(step_seconds(step, raw), [len(each) for each in asked.values()])
    shares = dict(zip(asked, spent, strict=True))
    return [_row(step, raw, *place, asked[place], shares[place]) for place in sorted(asked)]


def _without_texts(frame: pl.LazyFrame) -> pl.LazyFrame:
    flags = ("correct", "truncated", "blank")
    return frame.select(*STEP, "context_tokens", "depth_percent", "seed", *flags).sort("seed")


def _row(
    step: CommittedStep, raw: Raw, context_tokens: int, depth_percent: int, asked: Sequence[Row], spent: Spent
) -> Result:
    """Found out of asked at one place. A lost needle is a result: its row stays ok, and says which were lost."""
    condition = condition_name(context_tokens, depth_percent)
    verdict = judged(step, raw, condition)
    n, lost = len(asked), [each["seed"] for each in asked if not each["correct"]]
    if lost:
        verdict = verdict.noting(f"{len(lost)} of {n} needles were not found (seeds {', '.join(map(str, lost))})")
    score = (n - len(lost)) / n
    low, high = exact_interval(n - len(lost), n)
    columns = {
        "condition": condition,
        "context_tokens": context_tokens,
        "depth_percent": depth_percent,
        "concurrency": step.spec.concurrency if isinstance(step.spec, NeedleStep) else None,
        "metric": "needle",
        "extractor": "exact",
        "score": score,
        "score_stderr": proportion_stderr(score, n),
        "score_lo": low,
        "score_hi": high,
        "n": n,
        "truncated": sum(each["truncated"] for each in asked),
        "blank": sum(each["blank"] for each in asked),
    }
    return Result(base_row(step, raw, spent) | columns, verdict)
