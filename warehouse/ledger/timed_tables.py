"""Raw tables of the timed steps: throughput, load, depth and prompts send requests, and keep them and their windows.

One list of columns for all four, so a column is added here, once; what a step has nothing to say of is null. Each step
keeps the names of its own tables, under which stores have them.
"""

from __future__ import annotations

from typing import NamedTuple

from warehouse.ledger.tables import (
    CARD_COLUMNS,
    COUNTED_PROMPT,
    ENGINE_COLUMNS,
    LOAD_SHAPE,
    ROW_IDENTITY,
    Column,
    Table,
)

ASKED_COLUMNS = (
    *ROW_IDENTITY,
    *LOAD_SHAPE,
    Column("rate_s", "f64", "requests per second that were asked for; null: a closed loop", "1/s"),
    Column("arrival", "str", "of such a schedule: poisson (exponential gaps) or constant"),
    Column("category", "str", "of a suite's prompts; of a window null: several in flight, all mixed"),
    Column("workload", "str", "name of the prompt that stands for a kind of work"),
    Column("language", "str", "of the answer, as the workload says"),
    Column("depth_tokens", "i64", "of the prompt's tokens, those that are the depth", "tokens"),
    Column("repeat", "i64", "which repeat of the condition, from 0; of a suite's request: which part of its category's "
           "prompts, the same in every cell"),
)  # fmt: skip
"""What was asked, of a request and of a window."""

REQUEST_COLUMNS = (
    *ASKED_COLUMNS,
    Column("request_id", "str", "seed of the prompt; no two requests of an attempt share one"),
    Column("prompt_id", "str", "of a suite: category and 12 hex digits of sha256 over the user message"),
    Column("number", "i64", "of a workload: which of the copies that were sent together, from 0"),
    Column("prompt_tokens", "i64", "from usage", "tokens"),
    Column("prompt_chars", "i64", "length of the user message: with the run's prose it can be made again"),
    COUNTED_PROMPT,
    Column("completion_tokens", "i64", "from usage", "tokens"),
    Column("token_id_count", "i64", "token ids in the answer, which must be as many; null: not asked for"),
    Column("wall_s", "f64", "request sent to last byte", "s"),
    Column("sent_s", "f64", "from the first sending of its window, or the begin of its schedule, to this one's", "s"),
    Column("due_s", "f64", "open loop: when it was to be sent, on the same clock; null: when a slot was free", "s"),
    Column("finish_reason", "str", "as the engine said: stop, length, abort, ..."),
    Column("ttft_ms", "f64", "streamed only: request sent to first token; null: one of throughput's that was sent in "
           "step with the first others. Later ones of AR, several in flight, are in step, too, and wait for one "
           "another's prefills", "ms"),
    Column("tpot_ms", "f64", "of the same streams: time per output token after the first chunk, by token counts", "ms"),
    Column("chunk_ms", "f64", "streamed only: (last token - first token) / (chunks - 1)", "ms"),
    Column("itl_histogram", "list[i64]", "of a suite: inter-token latencies: bucket, tokens, bucket, tokens, ...; "
           "bucket b is from 1.02^b to 1.02^(b+1) ms, and a chunk's tokens share the gap before it evenly"),
    Column("chunks", "i64", "streamed only: chunks that carried tokens"),
    Column("first_chunk_tokens", "i64", "streamed only: tokens in the first chunk that had any; the ttft_ms is theirs: "
           "with more than one it holds decoding, too", "tokens"),
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
    Column("program", "str", "what became of the program in it: correct, wrong (by what it printed), failed (an error, "
           "a limit, or no program in the answer), timed_out, not_run (no sandbox here); null: none was asked for"),
    Column("program_reason", "str", "why, in one line"),
)  # fmt: skip

WINDOW_COLUMNS = (
    *ASKED_COLUMNS,
    Column("requests", "i64", "requests sent in the window"),
    Column("failed", "i64", "requests that got an error or a cut-off answer, those of its warm-up and probes too; they "
           "have no row"),
    Column("first_failure", "str", "what the first of them got"),
    Column("delivered_share", "f64", "mean requests in flight over those asked, while some were left to send, 0 to 1"),
    Column("tries", "i64", "times it was measured, the last is kept: in those before it the client couldn't keep up"),
    Column("wall_s", "f64", "first request sent to last response", "s"),
    Column("steady_s", "f64", "several in flight: seconds in which all of them were; ramp and tail left out", "s"),
    Column("steady_tokens", "f64", "output tokens in that time, a request's spread evenly over its own", "tokens"),
    Column("prompt_tokens", "i64", "sum over usage", "tokens"),
    Column("client_late_ms", "f64", "most that a timer of the client woke too late in the window", "ms"),
    Column("client_late_share", "f64", "share of the window in which the client waited for a processor, 0 to 1"),
    Column("client_late_moments", "i64", "how often a timer of the client woke more than 10 ms too late"),
    Column("warmup_logprob", "f64", "first window only: mean log-probability of the warm-up's tokens", "nats"),
    Column("prefill_s", "f64", "of throughput's streams: the same shape with one output token, not streamed; of a "
           "depth: first sending to the last request's first token", "s"),
    Column("decode_s", "f64", "of a depth: first token of any request to the last of all; null: one chunk had all",
           "s"),
    Column("decode_tokens", "i64", "of a depth: output tokens behind each request's first chunk", "tokens"),
    Column("peak_tok_s", "f64", "most of them per second in any window; null: they took less than it", "tokens/s"),
    Column("peak_window_s", "f64", "how long that window is", "s"),
    Column("ttft_ms", "f64", "of a depth: median over its requests", "ms"),
    Column("tpot_ms", "f64", "likewise", "ms"),
    Column("first_chunk_tokens", "f64", "likewise: tokens in a stream's first chunk", "tokens"),
    Column("door_ms", "f64", "mean time of a request that needs no model, just before: taken off nothing", "ms"),
    Column("completion_tokens", "i64", "sum over usage", "tokens"),
    Column("chars", "i64", "sum over outputs", "characters"),
    *ENGINE_COLUMNS,
    *CARD_COLUMNS,
)  # fmt: skip


class TimedTables(NamedTuple):
    """The two raw tables of a timed step."""

    requests: Table
    windows: Table


def _tables(prefix: str, request: str, window: str, request_has: str, window_has: str) -> TimedTables:
    """Tables of these names; `..._has`: columns that no row of theirs may lack."""
    return TimedTables(
        Table(f"{prefix}requests", request, _requiring(REQUEST_COLUMNS, request_has)),
        Table(f"{prefix}windows", window, _requiring(WINDOW_COLUMNS, window_has)),
    )


def _requiring(columns: tuple[Column, ...], names: str) -> tuple[Column, ...]:
    return tuple(each._replace(required=each.required or each.name in names.split()) for each in columns)


THROUGHPUT = REQUESTS, WINDOWS = _tables(
    "", "one timed request", "one repeat of one condition: the same work counted by the client and by the engine",
    "request_id", "repeat",
)  # fmt: skip

LOAD = LOAD_REQUESTS, LOAD_WINDOWS = _tables(
    "load_", "one streamed request of a prompt suite under load",
    "what one attempt sent under one load, in one loop, counted by the engine, too",
    "category prompt_id repeat sent_s", "",
)  # fmt: skip

DEPTH = DEPTH_REQUESTS, DEPTH_WINDOWS = _tables(
    "depth_", "one streamed request at a depth",
    "one run of a depth: a batch of streams that are sent together, counted by the client and by the engine",
    "request_id depth_tokens", "depth_tokens repeat",
)  # fmt: skip

PROMPTS = PROMPT_REQUESTS, PROMPT_WINDOWS = _tables(
    "prompt_", "one timed answer to a workload's prompt",
    "one repeat of one workload at one concurrency: copies of its prompt sent together, counted by the engine, too",
    "workload language repeat number", "workload language repeat",
)  # fmt: skip
