"""Columns of a table of speeds: the condition as it was really sent, the rate, and what its interval speaks for."""

from __future__ import annotations

from collections.abc import Sequence

from configs.steps.throughput import NATURAL
from warehouse.report.display.figures import NOTHING, Row, figure, rate, significant, span, usd
from warehouse.report.display.markup import Child, join, tag
from warehouse.report.display.tables import Heading
from warehouse.report.display.view import LOAD_STEP

PROMPT_SLACK = 0.01
"""Prompts may be so much longer or shorter than their condition says, as a share, before the table says it."""

BETWEEN_STARTS = "between starts"
"""What an interval speaks for if it rests on several starts; a table in which all do doesn't say so row by row."""


def condition_cell(row: Row) -> Child:
    """The condition's name; with what isn't as it says: the prompts' real length, answers that end by themselves."""
    sent, asked, notes = row["prompt_tokens"], row["context_tokens"], []
    if row["mode"] == NATURAL and row["step"] != LOAD_STEP:  # of a prompt suite all do
        mean = row.get("answer_tokens")
        notes.append("answers end by themselves" + ("" if mean is None else f", {figure(mean, 0)} tokens on average"))
    if sent is not None and asked and abs(sent / asked - 1) > PROMPT_SLACK:
        notes.append(f"sent {figure(sent, 0)} tokens, not {figure(asked, 0)}")
    return join([str(row["condition"]), *(tag("small", note) for note in notes)])


CONDITION = Heading("condition", condition_cell, "")


def rate_columns(rows: Sequence[Row]) -> list[Heading]:
    """Rate, interval and what is behind it; bandwidth and price where there are any."""
    columns = [
        Heading("tok/s", lambda row: rate(row["tok_s"])),
        Heading("95 % interval", lambda row: span(row["tok_s_lo"], row["tok_s_hi"], 0)),
        *(
            []
            if all(row["interval_scope"] == BETWEEN_STARTS for row in rows)
            else [Heading("interval holds", _scope, "")]
        ),
        Heading("starts", lambda row: figure(row["visits"], 0)),
        Heading("repeats", lambda row: figure(row["repeats"], 0)),
        Heading("cv", lambda row: share(row["cv"])),
        Heading("chars/s", lambda row: rate(row["chars_s"])),
    ]
    if any(row["mbu"] is not None for row in rows):
        columns.append(Heading("MBU \N{GREATER-THAN OR EQUAL TO}", lambda row: _used(row["mbu"])))
    if any(row["usd_per_mtok"] for row in rows):
        columns.append(Heading("USD per M tokens", lambda row: usd(row["usd_per_mtok"])))
    return columns


def share(value: float | None, digits: int = 1) -> str:
    """A share of 1, in percent."""
    return NOTHING if value is None else f"{value:.{digits}%}"


def _used(value: float | None) -> str:
    """A share that is there, however small: of a tiny model 0 % would say that nothing is read."""
    return NOTHING if value is None else f"{significant(100 * value, 2)}%"


def _scope(row: Row) -> str:
    return NOTHING if row["tok_s_lo"] is None else row["interval_scope"]
