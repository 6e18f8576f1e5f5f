"""Prompts: seconds, rates and speedups of named workloads, and whether the programs in their answers are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.columns import Column, Table
from warehouse.consolidate.inputs import Group
from warehouse.consolidate.rows import Made
from warehouse.display.section import Section
from warehouse.steps.throughput import REQUESTS, WINDOWS
from warehouse.tables import CARD_COLUMNS, COUNTED_PROMPT, LOAD_SHAPE, ROW_IDENTITY
from warehouse.workloads.rows import prompt_rows
from warehouse.workloads.section import workload_section

if TYPE_CHECKING:  # nodes import this file and have no polars
    from warehouse.consolidate.raw import Raw

MODE = "natural"
"""Answers end by themselves or at the cap; they are not streamed."""

_WORKLOAD = (
    Column("workload", "str", "name of the prompt", required=True),
    Column("language", "str", "of the answer, as the workload says", required=True),
    Column("repeat", "i64", "which repeat of the condition, from 0", required=True),
)

_OF_AN_ANSWER = (
    "prompt_tokens", "completion_tokens", "wall_s", "sent_s", "finish_reason", "chars", "loop_share",
    "token_loop_share", "char_loop_share", "distinct_share", "compressed_share", "mean_logprob", "text",
    "token_id_count",
    *(column.name for column in REQUESTS.columns if column.name.startswith("engine_")),
)  # fmt: skip

PROMPT_REQUESTS = Table(
    "prompt_requests",
    "one timed answer to a workload's prompt",
    (
        *ROW_IDENTITY,
        *LOAD_SHAPE,
        *_WORKLOAD,
        Column("number", "i64", "which of the copies that were sent together, from 0", required=True),
        COUNTED_PROMPT,
        *(column for column in REQUESTS.columns if column.name in _OF_AN_ANSWER),
        Column(
            "program",
            "str",
            "what became of the program in it: correct, wrong (by what it printed), failed (an error, a limit, or no "
            "program in the answer), timed_out, not_run (no sandbox here); null: the workload asks for none",
        ),
        Column("program_reason", "str", "why, in one line"),
    ),
)

_OF_A_WINDOW = (
    "requests", "failed", "first_failure", "delivered_share", "tries", "wall_s", "prompt_tokens", "client_late_ms",
    "client_late_share", "client_late_moments", "completion_tokens", "chars",
    *(column.name for column in WINDOWS.columns if column.name.startswith("engine_")),
)  # fmt: skip

PROMPT_WINDOWS = Table(
    "prompt_windows",
    "one repeat of one workload at one concurrency: copies of its prompt sent together, counted by the engine, too",
    (
        *ROW_IDENTITY,
        *LOAD_SHAPE,
        *_WORKLOAD,
        *(column for column in WINDOWS.columns if column.name in _OF_A_WINDOW),
        *CARD_COLUMNS,
    ),
)

TABLES = (PROMPT_REQUESTS, PROMPT_WINDOWS)


def rows(group: Group, raw: Raw) -> Made:
    """One row per workload and concurrency, made of all visits; their pairs are settled run by run."""
    return prompt_rows(group, raw, PROMPT_REQUESTS, PROMPT_WINDOWS)


SECTIONS = (Section("workloads", "Workloads", workload_section, 42),)
