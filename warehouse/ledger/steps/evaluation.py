"""Raw tables of every evaluation step: the response log, the graded items, the scores."""

from __future__ import annotations

from warehouse.ledger.tables import ROW_IDENTITY, Column, Table

_SUITE = Column(
    "suite", "str", "the evaluation step that asked, e.g. eval-gpqa (the smoke step asks for several)", required=True
)

EXCHANGES = Table(
    "exchanges",
    "one answered request, as it crossed the response log between a client and the engine",
    (
        *ROW_IDENTITY,
        _SUITE,
        Column("request_hash", "str", "sha256 over the canonical request as the engine got it, 32 hex digits",
               required=True),
        Column("occurrence", "i64", "how many equal requests came before it, from 0", required=True),
        Column("prompt_hash", "str", "sha256 over the canonical messages, 32 hex digits", required=True),
        Column("sample", "i64", "which answer to the item, from 0", required=True),
        Column("messages", "str", "the messages, as JSON"),
        Column("parameters", "str", "the rest of the request as the engine got it, as JSON"),
        Column("dropped", "list[str]", "fields that the client sent and the response log took out, e.g. stop"),
        Column("body", "str", "the answer without the thinking; null: the engine sent null"),
        Column("reasoning", "str", "the thinking"),
        Column("finish_reason", "str", "as the engine said; length means cut off"),
        Column("stop_reason", "str", "the stop string or token that ended it, if one did"),
        Column("prompt_tokens", "i64", "from usage", "tokens"),
        Column("completion_tokens", "i64", "from usage, thinking included", "tokens"),
        Column("latency_s", "f64", "from request to answer, in the response log's clock", "s"),
    ),
    is_consolidated=False,
)  # fmt: skip

EVAL_SAMPLES = Table(
    "eval_samples",
    "one graded answer to one item",
    (
        *ROW_IDENTITY,
        _SUITE,
        Column("framework", "str", "who asked"),
        Column("item_id", "str", "the item, the same in every cell and framework", required=True),
        Column("sample", "i64", "which answer to the item, from 0", required=True),
        Column("category", "str", "subject or subset"),
        Column("prompt_hash", "str", "of the messages that asked it", required=True),
        Column("request_hash", "str", "with `occurrence`: the answer's row in exchanges", required=True),
        Column("occurrence", "i64", "with `request_hash`: the answer's row in exchanges", required=True),
        Column("gold", "str", "the right answer; null where it is checked otherwise"),
        Column("last_in_body", "str", "last answer of the body, the reading that counts; null: none found"),
        Column("strict", "str", "what follows 'The answer is', as strict filters read it"),
        Column("flexible", "str", "last option in brackets anywhere in the body"),
        Column("first", "str", "first option anywhere, thinking included: the trap"),
        Column("framework_answer", "str", "what the framework's own default read"),
        Column("framework_correct", "bool", "what the framework's own default said"),
        Column("correct", "bool", "by the reading that counts", required=True),
        Column("details", "str", "named figures of this item as JSON, e.g. followed instructions"),
        Column("truncated", "bool", "cut off by the length limit", required=True),
        Column("blank", "bool", "no body", required=True),
        Column("completion_tokens", "i64", "thinking included", "tokens"),
        Column("extractor_version", "i64", "of the readings above", required=True),
    ),
)

EVAL_SCORES = Table(
    "eval_scores",
    "one score of one suite, by one reader",
    (
        *ROW_IDENTITY,
        _SUITE,
        Column("framework", "str", "who asked", required=True),
        Column("framework_version", "str", "of the framework's package", required=True),
        Column("dataset_revision", "str", "commit of the hub's dataset, or sha256 of the file"),
        Column(
            "source", "str", "ours: graded from the response log; framework: as the framework reported", required=True
        ),
        Column("extractor", "str", "last-in-body, strict, flexible, first, framework; null: the metric has none"),
        Column("metric", "str", "name of the metric, the framework's own name for its own scores", required=True),
        Column("value", "f64", "the score", required=True),
        Column("stderr", "f64", "standard error over items"),
        Column("n", "i64", "items", required=True),
        Column("samples", "i64", "answers per item", required=True),
    ),
)

EVAL_TABLES = (EXCHANGES, EVAL_SAMPLES, EVAL_SCORES)
"""Raw tables of an evaluation step."""
