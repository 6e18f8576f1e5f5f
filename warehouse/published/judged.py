"""A published row with what our guards say about it, in the dataset's own vocabulary."""

from __future__ import annotations

from typing import NamedTuple

from warehouse.published.figures import PublishedRow
from warehouse.published.read import WriteUp
from warehouse.verdicts import Reason, Verdict


class JudgedRow(NamedTuple):
    """One published row, its verdict, and why."""

    write_up: WriteUp
    row: PublishedRow
    verdict: Verdict
    reasons: tuple[Reason, ...]
    sentences: tuple[str, ...]
