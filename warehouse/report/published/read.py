"""The write-ups themselves: `load_write_up("mtp-gb10")` reads the file of that name next to this one.

A figure that our tables have, too, has the name of our column. Field descriptions are units.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from configs.evals.suites import Framework, SuiteName
from configs.files import ConfigError, accepted, parse, read_document
from configs.frozen import Frozen
from warehouse.ledger.verdicts import Reason, Verdict

Number = Annotated[float | None, Field(ge=0)]
Count = Annotated[int | None, Field(ge=0)]


class Figures(Frozen):
    """Every figure that a write-up may print; absent where it prints none."""

    tok_s: Number = Field(None, description="tokens/s, all requests together over wall clock")
    decode_tok_s: Number = Field(None, description="tokens/s of one request, prefill taken off")
    peak_tok_s: Number = Field(None, description="tokens/s, the best moment")
    request_tok_s: Number = Field(None, description="tokens/s of one of several requests in flight, end to end")
    prefill_tok_s: Number = Field(None, description="prompt tokens/s")
    chars_s: Number = Field(None, description="characters/s")
    wall_s: Number = Field(None, description="s")
    ttft_ms: Number = Field(None, description="ms")
    ttfr_ms: Number = Field(None, description="ms, to the first response of any kind")
    est_ppt_ms: Number = Field(None, description="ms, prompt processing, estimated by the tool")
    tpot_ms: Number = Field(None, description="ms, median")
    speedup: Number = Field(None, description="x AR of the same write-up")
    tokens: Count = Field(None, description="tokens that came out")
    chars: Number = Field(None, description="characters that came out")
    drafts: Count = Field(None, description="drafting steps")
    draft_tokens: Count = Field(None, description="tokens drafted")
    accepted_tokens: Count = Field(None, description="tokens accepted")
    acceptance_rate: Number = Field(None, description="accepted / drafted tokens, 0 to 1")
    accepted_per_draft: Number = Field(None, description="tokens accepted per drafting step")
    acceptance_length: Number = Field(None, description="tokens per drafting step, its own one included")
    theory_speedup: Number = Field(None, description="x, as the source computes it")
    drafter_cost: Number = Field(None, description="1 + drafter overhead, in target steps")
    theory_share: Number = Field(None, description="measured over theory")
    memory_gb: Number = Field(None, description="GB of GPU memory")
    score: Number = Field(None, description="share of items, 0 to 1")
    parity_equal: Count = Field(None, description="prompts with equal greedy output")
    needles_found: Count = Field(None, description="hidden sentences found")


UNITS = {name: str(field.description) for name, field in Figures.model_fields.items()}
"""Unit of each figure, by its name."""

Mode = Literal["fixed", "natural", "stream"]


class PublishedRow(Figures):
    """One condition of one thing that was served. What the source leaves open is null, its words are in `note`."""

    model: str | None = Field(None, description="of configs/models, or a family; null: not said")
    checkpoint: str | None = None
    precision: str | None = None
    technique: str
    k: int | None = Field(None, gt=0)
    condition: str = Field(description="as the source calls it")
    workload: str | None = Field(None, description="kind of text; null: all together, or not said")
    mode: Mode | None = Field(None, description="as in the dataset; null: not said")
    concurrency: int | None = Field(1, gt=0, description="requests in flight; null: several levels together")
    context_tokens: int | None = Field(None, ge=0)
    output_tokens: int | None = Field(None, gt=0, description="asked for, or the cap")
    n: int | None = Field(None, gt=0, description="items, prompts or runs behind the figures")
    suite: SuiteName | None = None
    framework: Framework | None = None
    extractor: str | None = Field(None, description="reader of the answers, where it is not the one that counts")
    kv_cache_dtype: str = "auto"
    memory_is: Literal["in use", "weights and cache"] | None = Field(
        None,
        description="what memory_gb counts: what was taken of the card, or a sum of what has to fit; null: not said",
    )
    acceptance_by_position: tuple[float, ...] | None = Field(None, description="accepted / drafts at position 1..K")
    sd: dict[str, float] = Field(default_factory=dict, description="the +- that the source prints, by figure")
    note: str | None = None
    verdict: Verdict = Field("ok", description="of our guards on what is printed, as of 2026-11-26; only ok is divided")
    reasons: tuple[Reason, ...] = ()
    details: tuple[str, ...] = Field((), description="a sentence for each reason")

    @property
    def figures(self) -> dict[str, float]:
        """The figures that the source prints, by name; `UNITS` has their units."""
        return {name: getattr(self, name) for name in UNITS if getattr(self, name) is not None}


class PublishedTable(Frozen):
    """A table of a write-up, as the source heads it."""

    about: str
    rows: tuple[PublishedRow, ...]


FOLDER = Path(__file__).parent


class WriteUp(Frozen):
    """One publication: where it is, on what it measured and how, and its tables."""

    name: str = Field(description="short name, as in docs/sources.md")
    title: str
    source: str
    date: str = Field(description="as far as the source says")
    gpu: str = Field(description="of configs/gpus")
    hardware: str
    engine: str
    method: str
    tables: tuple[PublishedTable, ...]

    @property
    def rows(self) -> tuple[PublishedRow, ...]:
        """Rows of all its tables."""
        return tuple(row for table in self.tables for row in table.rows)


class Published(NamedTuple):
    """One published row, and who published it."""

    write_up: WriteUp
    row: PublishedRow


@cache
def published_rows() -> tuple[Published, ...]:
    """Every row of every write-up."""
    return tuple(Published(write_up, row) for write_up in map(load_write_up, write_ups()) for row in write_up.rows)


def write_ups() -> tuple[str, ...]:
    """Names of all write-ups, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def load_write_up(name: str) -> WriteUp:
    """Read one write-up; raises `ConfigError`, with the line of what is wrong, or with the names that there are."""
    if name not in write_ups():
        raise ConfigError("warehouse/published", "", f"no file for {name!r}; {accepted(name, [*write_ups()])}")
    document = read_document(FOLDER / f"{name}.yaml")
    tables = [_spread(table) for table in document.data.get("tables") or ()]
    return parse(replace(document, data=document.data | {"tables": tables}), WriteUp, stem=name)


def _spread(table: dict[str, Any]) -> dict[str, Any]:
    """A table whose rows all have what its `each` says of them, unless they say otherwise."""
    each = table.get("each") or {}
    rows = [each | row for row in table.get("rows") or ()]
    return {name: value for name, value in table.items() if name != "each"} | {"rows": rows}
