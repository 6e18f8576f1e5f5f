"""Parity: are greedy outputs those of the AR cell, token for token, and does AR repeat itself?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.visits import FIRST
from warehouse.columns import Column, Table
from warehouse.consolidate.acceptance import counted_acceptance
from warehouse.consolidate.costs import step_seconds
from warehouse.consolidate.inputs import STEP, CommittedStep, Group, baseline_of
from warehouse.consolidate.rows import Made, Row, base_row, joined, judged, verdict_columns
from warehouse.display import figures
from warehouse.display.claims import control_of
from warehouse.display.figures import NOTHING, figure, technique_label
from warehouse.display.markup import Markup, tag
from warehouse.display.section import Section, section
from warehouse.display.tables import Heading, naming, table, verdict_mark
from warehouse.display.view import View
from warehouse.statistics.divergence import NEAR_TIE_NATS, Agreement, Output, agreement
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
        Column("top2_gap", "list[f64]", "between the best and the second best token, at each token", "nats"),
        Column("mean_logprob", "f64", "of the output's tokens under the model itself; null: not sent", "nats"),
    ),
)

TABLES = (PARITY_OUTPUTS,)


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell; parity makes no pairs. What a second start answered is AR's control, no row of its own."""
    return Made([_row(step, baseline_of(step, group), raw) for step in group if step.visit == FIRST], [])


def _row(step: CommittedStep, baseline: CommittedStep | None, raw: Raw) -> Row:
    """A cell's first pass against the AR cell's; on the AR cell, its second pass, of any visit, against its first."""
    beside = (other for other in raw.beside(step) if other.name == step.name)
    visits = sorted(beside, key=lambda each: each.visit, reverse=True)  # the newest first
    verdict = joined([judged(visit, raw) for visit in visits])
    row = base_row(step, raw, verdict, step_seconds(step, raw))
    if not raw.rows(step, PARITY_OUTPUTS, _ids):
        return row  # no greedy decoding: the verdict says so
    against = step if step.is_baseline else baseline
    reference = {} if against is None else outputs(against, raw, 0)
    if not reference:
        sentence = "the run has no AR cell with greedy outputs to compare with"
        return row | verdict_columns(verdict.worsened("suspect", Reason.NO_BASELINE, sentence))
    again = (outputs(visit, raw, 1) for visit in visits)
    found = agreement(reference, next(filter(None, again), {}) if step.is_baseline else outputs(step, raw, 0))
    if not found.compared:
        return row
    odd = _not_a_tie(found)
    if step.planned.cell.technique.lossless and odd is not None:
        row |= verdict_columns(verdict.worsened("suspect", Reason.PARITY_NOT_A_TIE, odd))
    row |= counted_acceptance(step, raw)
    return row | {
        "parity_equal": found.equal,
        "parity_n": found.compared,
        "first_divergence": found.first_divergence,
        "parity_near_ties": found.near_ties,
        "divergence_margin": found.margin,
    }


def _not_a_tie(found: Agreement) -> str | None:
    """What is odd about the places where outputs parted; None: nothing, or nobody knows."""
    if found.near_ties is None or found.margin is None or found.margin <= NEAR_TIE_NATS:
        return None
    parted = found.compared - found.equal
    return (
        f"{parted - found.near_ties} of {parted} outputs parted where the model was sure: up to "
        f"{found.margin:.2g} nats between the two best tokens; rounding explains {NEAR_TIE_NATS:.2g} at most"
    )


def _ids(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The outputs without their texts, which nobody compares."""
    return frame.select(*STEP, "prompt_id", "pass", "token_ids", "top2_gap").sort("pass", "prompt_id")


def outputs(step: CommittedStep, raw: Raw, number: int) -> dict[str, Output]:
    """Outputs of one pass, 0 or 1, by prompt; prompts without token ids are left out."""
    kept = [row for row in raw.rows(step, PARITY_OUTPUTS, _ids) if row["pass"] == number]
    return {row["prompt_id"]: Output(row["token_ids"], row["top2_gap"]) for row in kept if row["token_ids"] is not None}


def parity_section(view: View) -> Markup:
    """Token-for-token comparison, with AR against itself beside it."""
    shown = view.of(step="parity")
    lead = (
        "The same prompts, greedily, with the technique off, on and off again. The control is AR's second pass, by a "
        "second start of its engine where the sweep has two, against its first: where AR does not repeat itself, a "
        "difference says nothing about the technique. Outputs that part "
        "where the two best tokens were all but equal were told apart by rounding; where one was clearly better, not."
    )
    if not shown:
        return section("parity", "Parity", lead, tag("p", "Parity has not been measured."))
    columns = [
        *naming(view.rows),
        Heading("equal outputs", _equal_mark),
        Heading("first difference at token", lambda row: _first(row)),
        Heading("where they parted", lambda row: parting(row) or NOTHING, "wrap"),
        Heading("control: AR twice", lambda row: NOTHING if row["technique"] == "ar" else _control(view, row)),
        Heading("verdict", verdict_mark, ""),
    ]
    return section(
        "parity", "Parity", lead, _departures(view, shown), table("Greedy outputs compared with AR", columns, shown)
    )


def _departures(view: View, rows: list[figures.Row]) -> Markup | None:
    """The finding that a table alone would hide: techniques that differ from AR although AR repeats itself."""
    left = [
        f"{technique_label(row)} ({_equal(row)} equal, first difference at token {_first(row)}"
        f"{'' if (words := parting(row)) is None else f'; {words}'})"
        for row in rows
        if _differs(row) and (control := control_of(view, row)) is not None and not _differs(control)
    ]
    if not left:
        return None
    return tag("p", f"Not the outputs of AR, though AR repeats itself in full: {', '.join(left)}.", class_="caveat")


def parting(row: figures.Row) -> str | None:
    """Ties or not, in words; None: no output parted, or how sure the model was isn't known."""
    near, margin = row["parity_near_ties"], row["divergence_margin"]
    if near is None or margin is None:
        return None
    parted = row["parity_n"] - row["parity_equal"]
    if near == parted:
        all_of_them = "the one that parted did so" if parted == 1 else f"all {parted} parted"
        return f"{all_of_them} at a near tie (gap at most {margin:.2f} nats): floating-point ties"
    return f"{parted - near} of {parted} parted where the model was sure (gap {margin:.1f} nats): not a tie, look at it"


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
