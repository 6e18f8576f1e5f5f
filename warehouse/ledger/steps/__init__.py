"""Raw tables that only one kind of step writes, as data; those of the four timed steps are in `timed_tables`.

A step of a user's own declares its tables in `warehouse/ledger/steps/<step>.py`.
"""

from configs.step import more_steps
from warehouse.ledger.tables import CARD_COLUMNS, MEMORY_COLUMNS, ROW_IDENTITY, Column, Table

__path__ += more_steps("warehouse/ledger")

SANITY = Table("sanity", "one answer to a question that no working model misses", (
    *ROW_IDENTITY,
    Column("question_id", "str", "one of ten, the same for all models but base models and the demo family",
           required=True),
    Column("language", "str", "of the question: en, de, ko, zh; demo: the demo family's own words"),
    Column("prompt", "str", "the question"),
    Column("wanted", "str", "the answer as a reader would write it; what is read is more tolerant"),
    Column("body", "str", "the answer without the thinking, as the model wrote it: data, never markup"),
    Column("reasoning", "str", "the thinking, as the model wrote it"),
    Column("is_right", "bool", "the wanted answer was read in the body; cut off: never, but of a base model",
           required=True),
    Column("finish_reason", "str", "as the engine said; length means cut off, repetition: ended as a loop"),
    Column("completion_tokens", "i64", "from usage, thinking included", "tokens"),
    Column("mean_logprob", "f64", "of the answer's tokens under the model itself; null: not sent", "nats"),
))  # fmt: skip

_SUITE = Column("suite", "str", "the evaluation step that asked, e.g. eval-gpqa (the smoke step asks for several)",
                required=True)  # fmt: skip

EXCHANGES = Table("exchanges", "one answered request, as it crossed the response log between a client and the engine", (
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
), is_consolidated=False)  # fmt: skip

EVAL_SAMPLES = Table("eval_samples", "one graded answer to one item", (
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
))  # fmt: skip

EVAL_SCORES = Table("eval_scores", "one score of one suite, by one reader", (
    *ROW_IDENTITY,
    _SUITE,
    Column("framework", "str", "who asked", required=True),
    Column("framework_version", "str", "of the framework's package", required=True),
    Column("dataset_revision", "str", "commit of the hub's dataset, or sha256 of the file"),
    Column("source", "str", "ours: graded from the response log; framework: as the framework reported", required=True),
    Column("extractor", "str", "last-in-body, strict, flexible, first, framework; null: the metric has none"),
    Column("metric", "str", "name of the metric, the framework's own name for its own scores", required=True),
    Column("value", "f64", "the score", required=True),
    Column("stderr", "f64", "standard error over items"),
    Column("n", "i64", "items", required=True),
    Column("samples", "i64", "answers per item", required=True),
))  # fmt: skip

EVAL_TABLES = (EXCHANGES, EVAL_SAMPLES, EVAL_SCORES)  # raw tables of an evaluation step

EVAL_ITEMS = Table("eval_items", "one answered question", (
    *ROW_IDENTITY,
    Column("item_id", "str", "the question, the same in every cell", required=True),
    Column("kind", "str", "which sort of question"),
    Column("gold", "str", "the right answer"),
    Column("last_letter", "str", "extractor last-letter: last answer letter of the body; null: none found"),
    Column("first_letter", "str", "extractor first-letter: first letter anywhere, thinking included"),
    Column("finish_reason", "str", "as the engine said; length means cut off"),
    Column("completion_tokens", "i64", "from usage", "tokens"),
    Column("body", "str", "the answer without the thinking, as the model wrote it"),
    Column("reasoning", "str", "the thinking, as the model wrote it"),
))  # fmt: skip

NEEDLES = Table("needles", "one question for a hidden sentence", (
    *ROW_IDENTITY,
    Column("context_tokens", "i64", "length of the whole prompt, as asked for", "tokens", required=True),
    Column("depth_percent", "i64", "share of it before the hidden sentence, as asked for", "%", required=True),
    Column("seed", "i64", "which text of this length and depth, from 0", required=True),
    Column("prompt_tokens", "i64", "length that was sent, from usage: the chat template included", "tokens"),
    Column("depth_tokens", "i64", "text that stood before the hidden sentence", "tokens"),
    Column("prompt_hash", "str", "first 16 hex digits of sha256 over the user message"),
    Column("needle", "str", "the hidden sentence"),
    Column("gold", "str", "its number"),
    Column("answer", "str", "extractor exact: the last number of the body, of a base model the first; null: none"),
    Column("correct", "bool", "whether they are the same"),
    Column("truncated", "bool", "whether the answer was cut off by the length limit"),
    Column("blank", "bool", "whether it has no body"),
    Column("completion_tokens", "i64", "from usage", "tokens"),
    Column("body", "str", "the answer without the thinking, as the model wrote it"),
))  # fmt: skip

PARITY_OUTPUTS = Table("parity_outputs", "one greedy output of one prompt", (
    *ROW_IDENTITY,
    Column("prompt_id", "str", "the prompt, the same in every cell", required=True),
    Column("pass", "i64", "0: first pass; 1: again, on an AR cell the control", required=True),
    Column("token_ids", "list[i64]", "the output's token ids"),
    Column("finish_reason", "str", "as the engine said"),
    Column("text", "str", "the output, as the model wrote it"),
    Column("top2_gap", "list[f64]", "between the best and the second best token, at each token", "nats"),
    Column("mean_logprob", "f64", "of the output's tokens under the model itself; null: not sent", "nats"),
))  # fmt: skip

MEMORY_MODE = "fixed"  # the request's answer has a fixed length, and isn't streamed

MEMORY_STARTS = Table("memory_starts", "one engine start: what it said of its memory, and the peaks over one request "
                      "that fills the context", (
    *ROW_IDENTITY,
    Column("context_tokens", "i64", "prompt length asked for: max_model_len without the answer", "tokens"),
    Column("output_tokens", "i64", "output length asked for", "tokens"),
    *MEMORY_COLUMNS,
    Column("prompt_tokens", "i64", "from usage", "tokens"),
    Column("completion_tokens", "i64", "from usage", "tokens"),
    Column("wall_s", "f64", "request sent to last byte", "s"),
    *CARD_COLUMNS,
))  # fmt: skip
