"""Parity: are greedy outputs those of the AR cell, token for token, and does AR repeat itself?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from warehouse.columns import Column, Table
from warehouse.consolidate.inputs import STEP, CommittedStep, Group, baseline_of
from warehouse.consolidate.rows import Made, Row, base_row, judged, verdict_columns
from warehouse.display import figures
from warehouse.display.claims import control_of
from warehouse.display.figures import NOTHING, figure, technique_label
from warehouse.display.markup import Markup, tag
from warehouse.display.section import Section, section
from warehouse.display.tables import Heading, naming, table, verdict_mark
from warehouse.display.view import View
from warehouse.tables import ROW_IDENTITY
from warehouse.verdicts import Reason

if TYPE_CHECKING:  # nodes import this file and have no polars
    import polars as pl

    from warehouse.consolidate.raw import Raw

PARITY_OUTPUTS = Table(
    "parity_outputs",
    "one greedy output of one prompt",
    (
        *ROW_IDENTITY,
        Column("prompt_id", "str", "the prompt, the same in every cell", required=True),
        Column("pass", "i64", "0: first pass; 1: again, on an AR cell the control", required=True),
        Column("token_ids", "list[i64]", "the output's token ids"),
        Column("finish_reason", "str", "as the engine said"),
        Column("text", "str", "the output, as the model wrote it"),
    ),
)

TABLES = (PARITY_OUTPUTS,)

Outputs = dict[str, Sequence[int]]
"""Token ids by prompt."""


class Agreement(NamedTuple):
    """How far two sets of outputs agree."""

    equal: int
    compared: int
    first_divergence: int | None


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell; parity makes no pairs."""
    return Made([_row(step, baseline_of(step, group), raw) for step in group], [])


def _row(step: CommittedStep, baseline: CommittedStep | None, raw: Raw) -> Row:
    """A cell's first pass against the AR cell's; on the AR cell, its second pass against its first."""
    verdict = judged(step, raw)
    row = base_row(step, raw, verdict)
    if not raw.rows(step, PARITY_OUTPUTS, _ids):
        return row  # no greedy decoding: the verdict says so
    against = step if step.is_baseline else baseline
    reference = {} if against is None else outputs(against, raw, 0)
    if not reference:
        sentence = "the run has no AR cell with greedy outputs to compare with"
        return row | verdict_columns(verdict.worsened("suspect", Reason.NO_BASELINE, sentence))
    found = agreement(reference, outputs(step, raw, 1 if step.is_baseline else 0))
    if not found.compared:
        return row
    return row | {
        "parity_equal": found.equal,
        "parity_n": found.compared,
        "first_divergence": found.first_divergence,
    }


def _ids(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The outputs without their texts, which nobody compares."""
    return frame.select(*STEP, "prompt_id", "pass", "token_ids").sort("pass", "prompt_id")


def outputs(step: CommittedStep, raw: Raw, number: int) -> Outputs:
    """Outputs of one pass, 0 or 1; prompts without token ids are left out."""
    kept = [row for row in raw.rows(step, PARITY_OUTPUTS, _ids) if row["pass"] == number]
    return {row["prompt_id"]: row["token_ids"] for row in kept if row["token_ids"] is not None}


def agreement(reference: Outputs, others: Outputs) -> Agreement:
    """Compare the prompts that both answered."""
    common = sorted(set(reference) & set(others))
    diverged = [at for prompt in common if (at := first_difference(reference[prompt], others[prompt])) is not None]
    return Agreement(len(common) - len(diverged), len(common), min(diverged, default=None))


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Index of the first token that differs; where one ends early, its length; None if they are equal."""
    if one == other:  # the usual case, and the fast one
        return None
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def parity_section(view: View) -> Markup:
    """Token-for-token comparison, with AR against itself beside it."""
    shown = view.of(step="parity")
    lead = (
        "The same prompts, greedily, with the technique off, on and off again. The control is AR's second pass against "
        "its first: where AR does not repeat itself, a difference says nothing about the technique."
    )
    if not shown:
        return section("parity", "Parity", lead, tag("p", "Parity has not been measured."))
    columns = [
        *naming(view.rows),
        Heading("equal outputs", _equal_mark),
        Heading("first difference at token", lambda row: _first(row)),
        Heading("control: AR twice", lambda row: NOTHING if row["technique"] == "ar" else _control(view, row)),
        Heading("verdict", verdict_mark, ""),
    ]
    return section(
        "parity", "Parity", lead, _departures(view, shown), table("Greedy outputs compared with AR", columns, shown)
    )


def _departures(view: View, rows: list[figures.Row]) -> Markup | None:
    """The finding that a table alone would hide: techniques that differ from AR although AR repeats itself."""
    left = [
        f"{technique_label(row)} ({_equal(row)} equal, first difference at token {_first(row)})"
        for row in rows
        if _differs(row) and (control := control_of(view, row)) is not None and not _differs(control)
    ]
    if not left:
        return None
    return tag("p", f"Not the outputs of AR, though AR repeats itself in full: {', '.join(left)}.", class_="caveat")


def _differs(row: figures.Row) -> bool:
    return row["parity_n"] is not None and bool(row["parity_equal"] < row["parity_n"])


def _equal_mark(row: figures.Row) -> Markup:
    return tag("span", _equal(row), class_="suspect" if _differs(row) else None)


def _equal(row: figures.Row) -> str:
    if row["parity_n"] is None:
        return NOTHING
    text = f"{row['parity_equal']} of {row['parity_n']}"
    return f"{text} (twice itself)" if row["technique"] == "ar" else text


def _first(row: figures.Row) -> str:
    if row["parity_n"] is None:
        return NOTHING
    return "none" if row["first_divergence"] is None else figure(row["first_divergence"], 0)


def _control(view: View, row: figures.Row) -> str:
    control = control_of(view, row)
    return NOTHING if control is None else _equal(control).removesuffix(" (twice itself)")


SECTIONS = (Section("parity", "Parity", parity_section, 50),)
