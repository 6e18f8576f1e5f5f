"""Throughput: tokens per second under each load shape, and the speedup over AR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.columns import Column, Table
from warehouse.consolidate.inputs import Group
from warehouse.consolidate.rows import Made
from warehouse.consolidate.speed.rows import speed_rows
from warehouse.consolidate.speed.visits import by_attempt, in_order, visited
from warehouse.display.latency_section import latency_section
from warehouse.display.section import Section
from warehouse.display.speed_sections import acceptance_section, baseline_section, speed_section
from warehouse.tables import CARD_COLUMNS, ENGINE_COLUMNS, LOAD_SHAPE, ROW_IDENTITY

if TYPE_CHECKING:  # nodes import this file and have no polars
    from warehouse.consolidate.raw import Raw

REQUESTS = Table(
    "requests",
    "one timed request",
    (
        *ROW_IDENTITY,
        *LOAD_SHAPE,
        Column("repeat", "i64", "which repeat of the condition, from 0"),
        Column("request_id", "str", "seed of the prompt; no two requests of an attempt share one", required=True),
        Column("prompt_tokens", "i64", "from usage", "tokens"),
        Column("prompt_chars", "i64", "length of the user message: with the run's prose it can be made again"),
        Column("completion_tokens", "i64", "from usage", "tokens"),
        Column("token_id_count", "i64", "token ids in the answer, which must be as many; null: not asked for"),
        Column("wall_s", "f64", "request sent to last byte", "s"),
        Column("sent_s", "f64", "from the window's first sending to this one's", "s"),
        Column("finish_reason", "str", "as the engine said: stop, length, abort, ..."),
        Column(
            "ttft_ms",
            "f64",
            "streamed only: request sent to first token; null: sent in step with the first others. Later ones of AR, "
            "several in flight, are in step, too, and wait for one another's prefills",
            "ms",
        ),
        Column(
            "tpot_ms", "f64", "of the same streams: time per output token after the first chunk, by token counts", "ms"
        ),
        Column("chunks", "i64", "streamed only: chunks that carried tokens"),
        Column(
            "first_chunk_tokens",
            "i64",
            "streamed only: tokens in the first chunk that had any; the ttft_ms is theirs: with more than one it holds "
            "decoding, too",
            "tokens",
        ),
        Column("largest_chunk_tokens", "i64", "streamed only: most tokens in one chunk", "tokens"),
        Column("engine_queue_ms", "f64", "by the engine's own clock: arrival to scheduling; null: it didn't say", "ms"),
        Column("engine_ttft_ms", "f64", "the same: scheduling to first token, without queueing and the wire", "ms"),
        Column("engine_generation_ms", "f64", "the same: first token to last", "ms"),
        Column("engine_itl_ms", "f64", "the same: mean time per output token after the first", "ms"),
        Column("engine_draft_steps", "i64", "steps that verified a draft of this request; null: the engine didn't say"),
        Column("engine_draft_tokens", "i64", "tokens drafted for it", "tokens"),
        Column("engine_accepted_tokens", "i64", "of them accepted, some perhaps behind the request's end", "tokens"),
        Column("engine_accepted_histogram", "list[i64]", "its draft steps that accepted 0, 1, ..., K tokens"),
        Column("chars", "i64", "length of the output text", "characters"),
        Column("loop_share", "f64", "share of the output's 4-grams of words that repeat an earlier one, 0 to 1"),
        Column("token_loop_share", "f64", "the same of runs of 16 token ids"),
        Column("char_loop_share", "f64", "the same of runs of 48 characters, blanks or none"),
        Column("distinct_share", "f64", "distinct token ids over tokens, 0 to 1"),
        Column("compressed_share", "f64", "bytes after zlib over bytes before, of the last 4096; loops go below 0.1"),
        Column("mean_logprob", "f64", "of the output's tokens under the model itself; null: not asked for", "nats"),
        Column("text", "str", "the output, as the model wrote it: data, never markup"),
    ),
)

WINDOWS = Table(
    "windows",
    "one repeat of one condition: the same work counted by the client and by the engine",
    (
        *ROW_IDENTITY,
        *LOAD_SHAPE,
        Column("repeat", "i64", "which repeat of the condition, from 0", required=True),
        Column("requests", "i64", "requests sent in the window"),
        Column(
            "failed",
            "i64",
            "requests that got an error or a cut-off answer, those of its warm-up and probes too; they have no row",
        ),
        Column("first_failure", "str", "what the first of them got"),
        Column(
            "delivered_share", "f64", "mean requests in flight over those asked, while some were left to send, 0 to 1"
        ),
        Column(
            "tries", "i64", "times it was measured, the last is kept: in those before it the client couldn't keep up"
        ),
        Column("wall_s", "f64", "first request sent to last response", "s"),
        Column("steady_s", "f64", "several in flight: seconds in which all of them were; ramp and tail left out", "s"),
        Column("steady_tokens", "f64", "output tokens in that time, a request's spread evenly over its own", "tokens"),
        Column("prompt_tokens", "i64", "sum over usage", "tokens"),
        Column("client_late_ms", "f64", "most that a timer of the client woke too late in the window", "ms"),
        Column("client_late_share", "f64", "share of the window in which the client waited for a processor, 0 to 1"),
        Column("client_late_moments", "i64", "how often a timer of the client woke more than 10 ms too late"),
        Column("warmup_logprob", "f64", "first window only: mean log-probability of the warm-up's tokens", "nats"),
        Column("prefill_s", "f64", "streamed only: the same shape with one output token, not streamed", "s"),
        Column("completion_tokens", "i64", "sum over usage", "tokens"),
        Column("chars", "i64", "sum over outputs", "characters"),
        *ENGINE_COLUMNS,
        *CARD_COLUMNS,
    ),
)

TABLES = (REQUESTS, WINDOWS)


def rows(group: Group, raw: Raw) -> Made:
    """One row per condition and mode, made of all visits, and one per visit; their pairs are settled run by run."""
    measured = {
        step.identity: visited(step, raw, raw.rows(step, WINDOWS, in_order), raw.rows(step, REQUESTS, by_attempt))
        for step in group
        if step.wrote(WINDOWS)
    }
    return speed_rows(group, measured, raw)


SECTIONS = (
    Section("ar", "AR baseline", baseline_section, 10),
    Section("speed", "Speed", speed_section, 20),
    Section("acceptance", "Acceptance", acceptance_section, 30),
    Section("latency", "Latency", latency_section, 60),
)
