"""Load: rates, latencies and goodput of a prompt suite against concurrency and against rate; speedups by category."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.columns import Column, Table
from warehouse.consolidate.inputs import Group
from warehouse.consolidate.rows import Made
from warehouse.display.section import Section
from warehouse.loads.rate_section import rate_section
from warehouse.loads.rows import load_rows
from warehouse.loads.section import category_section, load_section
from warehouse.steps.throughput import REQUESTS, WINDOWS
from warehouse.tables import CARD_COLUMNS, COUNTED_PROMPT, LOAD_SHAPE, ROW_IDENTITY

if TYPE_CHECKING:  # nodes import this file and have no polars
    from warehouse.consolidate.raw import Raw

_SCHEDULE = (
    Column("rate_s", "f64", "requests per second that were asked for; null: a closed loop", "1/s"),
    Column("arrival", "str", "of such a schedule: poisson (exponential gaps) or constant"),
)
"""Of an open loop."""

_OF_AN_ANSWER = (
    "prompt_tokens", "completion_tokens", "token_id_count", "wall_s", "finish_reason", "tpot_ms", "chunks",
    "first_chunk_tokens", "largest_chunk_tokens", "chars", "loop_share", "token_loop_share", "char_loop_share",
    "distinct_share", "compressed_share", "mean_logprob", "text",
    *(column.name for column in REQUESTS.columns if column.name.startswith("engine_")),
)  # fmt: skip

LOAD_REQUESTS = Table(
    "load_requests",
    "one streamed request of a prompt suite under load",
    (
        *ROW_IDENTITY,
        *LOAD_SHAPE,
        *_SCHEDULE,
        Column("category", "str", "of the prompt", required=True),
        Column("prompt_id", "str", "category and 12 hex digits of sha256 over the user message", required=True),
        Column("repeat", "i64", "which part of its category's prompts, from 0: the same in every cell", required=True),
        COUNTED_PROMPT,
        Column("sent_s", "f64", "when it was sent, from the start of its window or schedule", "s", required=True),
        Column("due_s", "f64", "open loop: when it was to be sent, on the same clock; null: when a slot was free", "s"),
        Column("ttft_ms", "f64", "request sent to first token", "ms"),
        Column("chunk_ms", "f64", "(last token - first token) / (chunks - 1)", "ms"),
        Column(
            "itl_histogram",
            "list[i64]",
            "inter-token latencies: bucket, tokens, bucket, tokens, ...; bucket b is from 1.02^b to 1.02^(b+1) ms, and "
            "a chunk's tokens share the gap before it evenly",
        ),
        *(column for column in REQUESTS.columns if column.name in _OF_AN_ANSWER),
    ),
)

_OF_A_WINDOW = (
    "requests", "failed", "first_failure", "delivered_share", "wall_s", "prompt_tokens", "client_late_ms",
    "client_late_share", "client_late_moments", "completion_tokens",
    *(column.name for column in WINDOWS.columns if column.name.startswith("engine_")),
)  # fmt: skip

LOAD_WINDOWS = Table(
    "load_windows",
    "what one attempt sent under one load, in one loop, counted by the engine, too",
    (
        *ROW_IDENTITY,
        *LOAD_SHAPE,
        *_SCHEDULE,
        Column("category", "str", "of all its prompts: one request at a time; null: several in flight, all mixed"),
        *(column for column in WINDOWS.columns if column.name in _OF_A_WINDOW),
        *CARD_COLUMNS,
    ),
)

TABLES = (LOAD_REQUESTS, LOAD_WINDOWS)


def rows(group: Group, raw: Raw) -> Made:
    """One row per load, of the whole suite and of each category; pairs are settled run by run."""
    return load_rows(group, raw, LOAD_REQUESTS, LOAD_WINDOWS)


SECTIONS = (
    Section("load", "Load", load_section, 32),
    Section("load-rates", "Load on a schedule", rate_section, 33),
    Section("load-categories", "Load by category", category_section, 34),
)
