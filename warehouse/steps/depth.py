"""Depth: prompt processing and token generation at context depths, as llama-benchy tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.columns import Column, Table
from warehouse.consolidate.inputs import Group
from warehouse.consolidate.rows import Made
from warehouse.depths.rows import depth_rows
from warehouse.depths.section import depth_section
from warehouse.display.section import Section
from warehouse.steps.throughput import REQUESTS, WINDOWS
from warehouse.tables import CARD_COLUMNS, FIRST_CHUNK, LOAD_SHAPE, ROW_IDENTITY

if TYPE_CHECKING:  # nodes import this file and have no polars
    from warehouse.consolidate.raw import Raw

MODE = "stream"
"""Of raw rows; the two rows of the dataset that a depth becomes are `prefill` and `decode`."""

_SHAPE = (*ROW_IDENTITY, *LOAD_SHAPE)

DEPTH = Column("depth_tokens", "i64", "of the prompt's tokens, those that are the depth", "tokens", required=True)

DEPTH_REQUESTS = Table(
    "depth_requests",
    "one streamed request at a depth",
    (*_SHAPE, DEPTH, *(column for column in REQUESTS.columns if column not in _SHAPE)),
)

_OF_A_RUN = (
    "repeat", "tries", "requests", "failed", "first_failure", "delivered_share", "wall_s", "prompt_tokens",
    "client_late_ms", "client_late_share", "client_late_moments", "completion_tokens",
    *(column.name for column in WINDOWS.columns if column.name.startswith("engine_")),
)  # fmt: skip

DEPTH_WINDOWS = Table(
    "depth_windows",
    "one run of a depth: a batch of streams that are sent together, counted by the client and by the engine",
    (
        *_SHAPE,
        DEPTH,
        *(column for column in WINDOWS.columns if column.name in _OF_A_RUN),
        *CARD_COLUMNS,
        Column("prefill_s", "f64", "first sending to the last request's first token", "s"),
        Column("decode_s", "f64", "first token of any request to the last token of all; null: one chunk had all", "s"),
        Column("decode_tokens", "i64", "output tokens behind each request's first chunk", "tokens"),
        Column("peak_tok_s", "f64", "most of them per second in any window; null: they took less than it", "tokens/s"),
        Column("peak_window_s", "f64", "how long that window is", "s"),
        Column("ttft_ms", "f64", "median over its requests", "ms"),
        Column("tpot_ms", "f64", "likewise", "ms"),
        FIRST_CHUNK,
        Column("door_ms", "f64", "mean time of a request that needs no model, just before: taken off nothing", "ms"),
    ),
)

TABLES = (DEPTH_REQUESTS, DEPTH_WINDOWS)


def rows(group: Group, raw: Raw) -> Made:
    """Two rows per depth and concurrency, prefill and decode; pairs are settled run by run."""
    return depth_rows(group, raw, DEPTH_WINDOWS)


SECTIONS = (Section("depth", "Depth", depth_section, 35),)
