"""How a table is declared, columns as data, which columns and tables any step writes, and rows as Parquet parts."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from configs.secrets import redacted_rows
from warehouse.ledger.store import StoreError

ColumnType = Literal["str", "i64", "f64", "bool", "list[str]", "list[i64]", "list[f64]"]
"""Types a column may have; moments are ISO 8601 strings in UTC, so that every reader agrees on them."""


class Column(NamedTuple):
    """One column. Its name is a promise; its meaning is what the data dictionary says."""

    name: str
    type: ColumnType
    meaning: str
    unit: str = ""
    required: bool = False


class Table(NamedTuple):
    """A named list of columns, with one sentence about what a row is."""

    name: str
    row: str
    columns: tuple[Column, ...]
    is_consolidated: bool = True
    """Whether rows of the dataset are made of it; what is only kept (the response log) is not even fetched for that."""

    def column_names(self) -> list[str]:
        """Names in declared order."""
        return [column.name for column in self.columns]


SCHEMA_VERSION = 15  # written into every Parquet footer and manifest; raised when a column is added

ROW_IDENTITY = (
    Column("run_id", "str", "the run that measured this row", required=True),
    Column("cell_key", "str", "the cell: first 16 hex digits of sha256 over its canonical JSON", required=True),
    Column("step", "str", "the measurement: smoke, throughput, parity, eval-<name>, ...; a further visit's: "
           "throughput@2, throughput@control-1", required=True),
    Column("attempt", "i64", "which try of the cell measured this row, from 1", required=True),
    Column("measured_at", "str", "when the row was measured, ISO 8601, UTC", required=True),
)  # fmt: skip
"""On every raw row."""

LOAD_SHAPE = (
    Column("condition", "str", 'short human name of the load shape, e.g. "short c=1"', required=True),
    Column("mode", "str", "fixed: non-streaming, fixed output; stream: streamed; natural: until EOS; open: the same, "
           "sent on a schedule", required=True),
    Column("context_tokens", "i64", "prompt length asked for", "tokens"),
    Column("output_tokens", "i64", "output length asked for", "tokens"),
    Column("concurrency", "i64", "requests in flight at the same time"),
)  # fmt: skip
"""What a speed was measured under."""

COUNTED_PROMPT = Column("counted_prompt_tokens", "i64", "its prompt as the engine counts it before any clock starts; "
                        "null: the engine has no /tokenize", "tokens")  # fmt: skip
"""In addition to the prompt tokens that usage reports, where a step's prompts have lengths that aren't chosen here."""

CARD_COLUMNS = (
    Column("energy_j", "f64", "of all cards of the engine, from before the first request to behind the last", "J"),
    Column("energy_from", "str", "counter: the cards count it; samples: the integral of their power"),
    Column("power_w", "f64", "energy_j over the seconds that it was taken in: the mean of all cards together", "W"),
    Column("gpu_memory_peak_bytes", "i64", "most memory in use on the fullest card, by anybody, as the driver says",
           "B"),
    Column("clock_mhz_min", "f64", "lowest SM clock of a card that was seen meanwhile", "MHz"),
    Column("clock_mhz_median", "f64", "median of all that were seen", "MHz"),
    Column("temperature_c_max", "f64", "of the hottest card", "C"),
    Column("throttle_reasons", "list[str]", "what held a clock down: sw_power_cap (at its power limit, which is "
           "usual), hw_slowdown, sync_boost, sw_thermal_slowdown, hw_thermal_slowdown, hw_power_brake; empty: nothing; "
           "null: the driver doesn't say"),
)  # fmt: skip
"""What the cards reported over a timed window, read every tenth of a second; null where there is no card to ask."""

MEMORY_COLUMNS = (
    Column("weights_bytes", "i64", "weights of target and draft, of one card, as the engine says", "B"),
    Column("kv_cache_bytes", "i64", "what the engine keeps for keys and values, of one card; of the host's memory "
           "where it computes on the CPU", "B"),
    Column("kv_tokens", "i64", "tokens that fit into it, over all cards, of requests of full length", "tokens"),
    Column("graph_bytes", "i64", "what capturing CUDA graphs took of one card, as the log says", "B"),
    Column("engine_memory_peak_bytes", "i64", "memory of the engine's own processes on the fullest card, behind a "
           "request of full length, as the driver says; of generate() where the driver shows none of them, what torch "
           "had reserved at most", "B"),
    Column("host_peak_bytes", "i64", "sum of the largest resident sets of the engine's processes since its start, "
           "pages that they share counted in each: memory of the host, never of a card", "B"),
)  # fmt: skip
"""What an engine takes; null: it isn't reported, or it is less than the log's hundredth of a GiB."""

VERDICTS = Table("verdicts", "what the guards of the node said about one condition of a step", (
    *ROW_IDENTITY,
    Column("condition", "str", "the load shape; null: the whole step"),
    Column("mode", "str", "fixed, stream, natural or open; of a depth: prefill or decode; null: the whole step"),
    Column("verdict", "str", "ok, suspect or rejected", required=True),
    Column("reasons", "list[str]", "reason codes; empty when ok", required=True),
    Column("details", "list[str]", "one sentence per reason, with the figures"),
))  # fmt: skip

PROVENANCE_COLUMNS = (
    Column("git_sha", "str", "commit of specsweep that measured"),
    Column("git_dirty", "bool", "whether that checkout had changes"),
    Column("config_hash", "str", "first 16 hex digits of sha256 over the run's plan"),
    Column("argv", "str", "the engine's command line, shell-quoted"),
    Column("engine_version", "str", "as the engine's /version says"),
    Column("image_digest", "str", "of the container image, where one served"),
    Column("model_revision", "str", "of the target: hub commit; of a folder or the demo family a hash of its "
           "files or recipe"),
    Column("draft_revision", "str", "of the draft, likewise"),
    Column("gpu_name", "str", "as the driver says; the processor's name on a CPU"),
    Column("gpu_uuid", "str", "which card it was, as the driver says"),
    Column("gpu_driver", "str", "driver version"),
    Column("gpu_clock_mhz", "f64", "SM clock while the engine works, as the visit begins", "MHz"),
    Column("host", "str", "node name"),
    Column("cloud", "str", "aws, gcp, ...; local on this machine"),
    Column("region", "str", "cloud region"),
    Column("zone", "str", "cloud zone"),
    Column("instance_type", "str", "cloud instance type"),
    Column("spot", "bool", "whether the node could be taken away"),
    Column("price_usd_h", "f64", "price of the node", "USD/h"),
    Column("price_source", "str", "where that price comes from, with its date"),
    Column("seed", "i64", "of an evaluation: draws its items; sample i of an item is asked for with seed + i, where "
           "its answers are sampled; null: other prompts are drawn by what they are called"),
    Column("dataset_revision", "str", "of the evaluation data"),
    Column("weights", "str", "real or dummy"),
    Column("api", "str", "as what prompts were sent: chat, or completions, where a base model continues them"),
    Column("machine", "str", "which machine it was: host and card; windows of two machines never become one figure"),
    Column("gpus", "i64", "cards that the engine uses"),
    Column("served_cell_key", "str", "what was served: the cell itself, or in a control's visit its AR twin"),
    Column("engine_nice", "i64", "nice value of the engine's session, where it shares its processors with the client"),
    Column("client_version", "i64", "of the client that timed; raised when what it says of the same engine changes"),
    Column("loaded_weights_bytes", "i64", "weights on one card, a draft's included, by the engine's log", "bytes"),
    Column("loaded_quantization", "str", "as the engine resolved it; none: it said that there is none"),
    Column("loaded_formats", "str", "of quantized layers, in the words of the engine's log; null: it names none"),
    Column("loaded_dtype", "str", "in which the engine computes"),
    Column("loaded_kv_cache_dtype", "str", "of the KV cache; auto: that of the model"),
    Column("loaded_max_model_len", "i64", "longest sequence that the engine takes", "tokens"),
    Column("loaded_max_num_seqs", "i64", "most requests at once; null: the engine's default, which it doesn't log"),
    Column("loaded_kv_tokens", "i64", "that fit into the KV cache, by the engine's log", "tokens"),
)  # fmt: skip
"""On every consolidated row, and stored once per step and attempt."""

PROVENANCE = Table("provenance", "where and with what one attempt measured a step: written as it begins, and once more "
                   "at its end where the step had more to say; an attempt's last row counts", (
    *ROW_IDENTITY,
    *PROVENANCE_COLUMNS,
))  # fmt: skip

ENGINE_COLUMNS = (
    Column("engine_generation_tokens", "i64", "delta of vllm:generation_tokens_total", "tokens"),
    Column("engine_drafts", "i64", "delta of vllm:spec_decode_num_drafts_total; null: the engine has no such counter"),
    Column("engine_draft_tokens", "i64", "delta of vllm:spec_decode_num_draft_tokens_total", "tokens"),
    Column("engine_accepted_tokens", "i64", "delta of vllm:spec_decode_num_accepted_tokens_total", "tokens"),
    Column("engine_accepted_by_position", "list[i64]", "accepted at draft position 1..K", "tokens"),
    Column("engine_denoising_steps", "i64", "block diffusion: delta of vllm:diffusion_num_denoising_steps_total"),
    Column("engine_committed_tokens", "i64", "block diffusion: committed, whole canvases", "tokens"),
    Column("engine_prefix_hits", "i64", "delta of vllm:prefix_cache_hits_total; by usage where that is more", "tokens"),
    Column("engine_preemptions", "i64", "delta of vllm:num_preemptions_total"),
)  # fmt: skip
"""What the engine counted over a piece of work."""

ENGINE_COUNTED = Table("engine_counted", "what the engine counted while an attempt measured a step without windows of "
                       "its own; only of what drafts or denoises, and not of an attempt that was cut short", (
    *ROW_IDENTITY,
    *ENGINE_COLUMNS,
))  # fmt: skip

COMMON_TABLES = (VERDICTS, PROVENANCE, ENGINE_COUNTED)  # raw tables that any step writes

FIRST_CHUNK = Column("first_chunk_tokens", "f64", "tokens in a stream's first chunk, median; above 1 its time to first "
                     "token holds decoding steps, which differ from technique to technique; null: not "
                     "streamed", "tokens")  # fmt: skip
"""It accompanies every time to first token."""

Row = Mapping[str, Any]

_ARROW = {
    "str": pa.string(),
    "i64": pa.int64(),
    "f64": pa.float64(),
    "bool": pa.bool_(),
    "list[str]": pa.list_(pa.string()),
    "list[i64]": pa.list_(pa.int64()),
    "list[f64]": pa.list_(pa.float64()),
}


def arrow_schema(table: Table) -> Any:
    """The table's pyarrow schema, with units and meanings as field metadata."""
    fields = []
    for column in table.columns:
        facts = {"meaning": column.meaning} | ({"unit": column.unit} if column.unit else {})
        fields.append(pa.field(column.name, _ARROW[column.type], nullable=not column.required, metadata=facts))
    return pa.schema(fields)


def encode(table: Table, rows: Sequence[Row], facts: Mapping[str, str] | None = None) -> bytes:
    """Rows as one zstd Parquet file; `facts` is what else its footer says, e.g. who wrote it.

    ValueError: a row has a column that the table doesn't declare, or lacks a required one.
    """
    schema = arrow_schema(table)
    known = set(schema.names)
    for row in rows:
        unknown = set(row) - known
        if unknown:
            raise ValueError(f"table {table.name} has no column {sorted(unknown)[0]!r}")
    for column in table.columns:
        if column.required and any(row.get(column.name) is None for row in rows):
            raise ValueError(f"table {table.name}: a row lacks the required column {column.name!r}")
    data = pa.Table.from_pylist(redacted_rows(rows), schema=schema)
    said = {"schema_version": str(SCHEMA_VERSION), "table": table.name} | dict(facts or {})
    footer = {**(schema.metadata or {}), **{name.encode(): text.encode() for name, text in said.items()}}
    buffer = io.BytesIO()
    pq.write_table(data.replace_schema_metadata(footer), buffer, compression="zstd")
    return buffer.getvalue()


def decode(data: bytes, key: str) -> list[dict[str, Any]]:
    """The rows of one part. StoreError: the bytes are not a Parquet file."""
    rows: list[dict[str, Any]] = _opened(data, key).read(use_threads=False).to_pylist()
    return rows


def facts_of(data: bytes, key: str) -> dict[str, str]:
    """What the footer of one part says. StoreError: the bytes are not a Parquet file."""
    said = _opened(data, key).schema_arrow.metadata or {}
    return {name.decode(): text.decode() for name, text in said.items()}


def _opened(data: bytes, key: str) -> Any:
    """A file that is read by this thread alone.

    Arrow's own threads release Python's bytes at any time: a process that ends meanwhile is aborted after its last line
    (apache/arrow issue 34314). One `sweep regrade` of twelve ended so.
    """
    try:
        return pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise StoreError(f"{key} is not a readable Parquet file: {error}") from error


def sha256_hex(data: bytes) -> str:
    """Content hash of a part, as commits list it."""
    return hashlib.sha256(data).hexdigest()
