"""Eval-tiny: how many questions a cell answers correctly, and what it loses against AR on the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.columns import Column, Table
from warehouse.consolidate.inputs import Group
from warehouse.consolidate.rows import Made
from warehouse.consolidate.scores import scores_and_pairs
from warehouse.display.section import Section
from warehouse.tables import ROW_IDENTITY

if TYPE_CHECKING:  # nodes import this file and have no polars
    from warehouse.consolidate.raw import Raw

EVAL_ITEMS = Table(
    "eval_items",
    "one answered question",
    (
        *ROW_IDENTITY,
        Column("item_id", "str", "the question, the same in every cell", required=True),
        Column("kind", "str", "which sort of question"),
        Column("gold", "str", "the right answer"),
        Column("last_letter", "str", "extractor last-letter: last answer letter of the body; null: none found"),
        Column("first_letter", "str", "extractor first-letter: first letter anywhere, thinking included"),
        Column("finish_reason", "str", "as the engine said; length means cut off"),
        Column("completion_tokens", "i64", "from usage", "tokens"),
        Column("body", "str", "the answer without the thinking, as the model wrote it"),
        Column("reasoning", "str", "the thinking, as the model wrote it"),
    ),
)

TABLES = (EVAL_ITEMS,)

SECTIONS: tuple[Section, ...] = ()
"""Its scores are in the section of all evaluations."""


def rows(group: Group, raw: Raw) -> Made:
    """The score that counts, the one that shows where a grader would lie, and the comparison with AR."""
    return scores_and_pairs(group, raw, EVAL_ITEMS)
