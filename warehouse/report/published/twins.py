"""Which published row is shown next to a row of ours, and which of their figures may be divided by each other.

A ratio of two rates of one machine (a speedup) and a score say something about another machine's. A rate doesn't, nor
does a latency. What else differs between the two measurements is said in words, never corrected for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from configs.steps.load import category_of
from configs.steps.prompts import workload_of
from configs.steps.throughput import NATURAL
from warehouse.dataset.tables import counts
from warehouse.report.published.read import Published, PublishedRow

MEMORY_STEP, MEMORY_FIGURE = "memory", "memory_gb"
"""What a source's figure counts decides which of our memory step's means the same.

    in use              what was taken of the card while it generated: `engine_memory_peak_bytes`, of the engine's own
                        processes over a request of full length. Only of an engine that takes what it needs. One that
                        keeps a cache (vLLM) takes the configured share of the card, whatever it needs.

    weights and cache   the sum that must fit on the card: `weights_bytes`, target and draft, and the cache of one
                        request of full length, which is `kv_bytes_per_token` times its tokens.

`gpu_memory_peak_bytes` is of all processes on the card, so it is no figure's twin. Sources print GB and don't say
whether of 10^9 bytes; ours are.
"""


def ours_gb(row: Mapping[str, Any], published: PublishedRow) -> tuple[str, float] | None:
    """The column of a row of the memory step that means what is published, and its GB; None: it has none."""
    if (row["gpus"] or 1) > 1:  # columns are of one card; all that is published is of one
        return None
    if published.memory_is == "in use":
        column, takes_what_it_needs = "engine_memory_peak_bytes", row["kv_cache_bytes"] is None
        found = row[column] if takes_what_it_needs else None
    else:
        column, found = "weights_bytes", None
        if None not in (row["weights_bytes"], row["kv_bytes_per_token"]):
            found = row["weights_bytes"] + row["kv_bytes_per_token"] * full_tokens(row)
    return None if found is None else (column, found / 1e9)


def _memory_differences(row: Mapping[str, Any], published: PublishedRow) -> Iterator[str]:
    """What a reader must know before dividing one by the other."""
    if published.memory_is == "in use":
        yield f"ours is the peak of the engine's processes over a request of {full_tokens(row)} tokens"
        yield "what theirs was read off isn't said"
    else:
        yield f"both add up weights and the cache of {full_tokens(row)} tokens"
        if published.kv_cache_dtype != "auto" and published.kv_cache_dtype not in (row["argv"] or ""):
            yield f"their cache is in {published.kv_cache_dtype}"
    yield "whether their GB are of 10^9 or 2^30 bytes, 7 % apart, isn't said"


def full_tokens(row: Mapping[str, Any]) -> int:
    """The request that the step sends: as long as the cell's context."""
    return int(row["context_tokens"] + row["output_tokens"])


SHORT_CONTEXT_TOKENS = 1024
"""Contexts up to here are alike, whatever their length: a few MB of cache next to GB of weights. Also one that isn't
published, which no write-up calls long."""

ANYWHERE = ("speedup", "score", MEMORY_FIGURE)
"""Figures that are compared across machines."""

_SAME = ("speedup", "tok_s", "chars_s", "ttft_ms", "tpot_ms", "score")
COMPARED = {name: name for name in _SAME} | {"wall_s": "answer_s"}
"""Published figures with which columns of the dataset are compared, and those columns."""

COMPARED_OF_A_PART = {
    "prefill": {"prefill_tok_s": "tok_s", "ttft_ms": "ttft_ms"},
    "decode": {"decode_tok_s": "tok_s", "peak_tok_s": "peak_tok_s"},
}
"""The same for a part of a request, whose `tok_s` is of that part alone: by mode."""


class Twin(NamedTuple):
    """One figure of ours with the published one."""

    row: Mapping[str, Any]
    published: Published
    figure: str
    """As it is published."""
    column: str
    """Ours, of the dataset."""
    ours: float
    """Our figure, in their unit."""
    differs: tuple[str, ...]
    """What differs between the two measurements, in words."""

    @property
    def theirs(self) -> float:
        """The published figure."""
        return self.published.row.figures[self.figure]

    @property
    def interval(self) -> tuple[float, float] | None:
        """Our 95 % interval; None: there is none."""
        low, high = self.row.get(f"{self.column}_lo"), self.row.get(f"{self.column}_hi")
        return None if low is None or high is None else (low, high)

    @property
    def is_comparable(self) -> bool:
        """Whether the two may be divided: both ok; anything of the same kind of card, of another what isn't a speed."""
        if (self.row["verdict"], self.published.row.verdict) != ("ok", "ok"):
            return False
        if self.figure == "wall_s" and _other_length(self.row, self.published.row):  # of another answer, then
            return False
        return self.figure in ANYWHERE or self.row["gpu"] == self.published.write_up.gpu

    @property
    def ratio(self) -> float | None:
        """Ours over theirs; None: not comparable, or theirs is 0."""
        return self.ours / self.theirs if self.is_comparable and self.theirs else None

    @property
    def is_within(self) -> bool | None:
        """Whether the published figure lies within our interval; None: not comparable, or no interval."""
        if self.interval is None or not self.is_comparable:
            return None
        return self.interval[0] <= self.theirs <= self.interval[1]


def twins(rows: Sequence[Mapping[str, Any]], published: Sequence[Published]) -> list[Twin]:
    """Every figure of these rows that was published of the same model, precision, technique, K and load."""
    return [twin for row in rows for judged in published if _alike(row, judged.row) for twin in _figures(row, judged)]


def _alike(row: Mapping[str, Any], published: PublishedRow) -> bool:
    """What is served is the same and so is the load; a K that wasn't published may be any."""
    if row.get("made_up") or any(row[name] != getattr(published, name) for name in ("model", "precision", "technique")):
        return False
    if published.k not in (None, row["k"]) or published.extractor is not None:
        return False
    if published.suite is not None:
        return row.get("score") is not None and counts(row) and _same_suite(row, published)
    if row["step"] == MEMORY_STEP:
        return None not in (published.memory_gb, published.memory_is) and _as_long(row, published)
    if row["concurrency"] is None:  # no load of a publication: a schedule's, or none at all
        return False
    if not _same_text(row, published) or not _same_load(row, published):
        return False
    if row["mode"] in COMPARED_OF_A_PART and row["condition"] != published.condition:  # `pp2048 @ d4096` in both
        return False
    return _near(row["context_tokens"] or 0, published.context_tokens or 0)


def _same_text(row: Mapping[str, Any], published: PublishedRow) -> bool:
    """A workload is compared with that workload, a category with that category, all text with all."""
    condition, workload = row["condition"] or "", published.workload
    if row["step"] == "prompts":  # in our files `Q&A` is `qa`
        return workload is not None and re.sub(r"\W", "", workload).lower() == workload_of(condition)
    theirs = None if workload is None else workload.lower()  # `STEM` is our `stem`
    return theirs == (category_of(condition) if row["step"] == "load" else None)


def _same_load(row: Mapping[str, Any], published: PublishedRow) -> bool:
    """As many requests in flight; a category's average over several loads is shown next to each of ours."""
    if published.concurrency is None:
        return row["step"] == "load" and published.workload is not None
    return bool(row["concurrency"] == published.concurrency)


def _same_suite(row: Mapping[str, Any], published: PublishedRow) -> bool:
    """By the step's name, which begins with its suite's; and by the framework where it was published."""
    step, suite = (name.removeprefix("eval-").replace("-", "") for name in (row["step"], published.suite or ""))
    return step.startswith(suite) and published.framework in (None, row["framework"])


def _near(ours: int, theirs: int) -> bool:
    if max(ours, theirs) <= SHORT_CONTEXT_TOKENS:
        return True
    is_about = abs(ours - theirs) <= 0.1 * max(ours, theirs)  # "8K" may be 8000 or 8192 tokens
    return min(ours, theirs) > SHORT_CONTEXT_TOKENS and is_about


def _as_long(row: Mapping[str, Any], published: PublishedRow) -> bool:
    """Whether the memory step's request is as long as theirs, as far as that is published."""
    theirs = published.context_tokens
    return theirs is None or (row["context_tokens"] is not None and _near(full_tokens(row), theirs))


def _other_length(row: Mapping[str, Any], published: PublishedRow) -> bool:
    return published.output_tokens is not None and row["output_tokens"] not in (None, published.output_tokens)


def _figures(row: Mapping[str, Any], judged: Published) -> Iterator[Twin]:
    if row["step"] == MEMORY_STEP:
        if (found := ours_gb(row, judged.row)) is not None:
            yield Twin(row, judged, MEMORY_FIGURE, *found, tuple(_differences(row, judged, MEMORY_FIGURE)))
        return
    for name, column in COMPARED_OF_A_PART.get(row["mode"], COMPARED).items():
        if row.get(column) is not None and name in judged.row.figures:
            yield Twin(row, judged, name, column, float(row[column]), tuple(_differences(row, judged, name)))


def _differences(row: Mapping[str, Any], judged: Published, figure: str) -> Iterator[str]:
    """What a reader must know before dividing one by the other."""
    theirs, gpu = judged.row, judged.write_up.gpu
    for whose, verdict in (("ours", row["verdict"]), ("theirs", judged.row.verdict)):
        if verdict != "ok":
            yield f"{whose} is {verdict}: not compared"
    if row["gpu"] != gpu:
        kept = "each over AR on its own machine" if figure == "speedup" else "not a speed"
        yield f"measured on {row['gpu']}, published for {gpu}: {kept if figure in ANYWHERE else 'not compared'}"
    if theirs.technique != "ar" and theirs.k is None:
        asked = {"K": row["k"], **{name: row.get(name) for name in ("denoising_steps", "canvas_length")}}
        yield from (f"ours has {name}={each}, theirs isn't published" for name, each in asked.items() if each)
    if theirs.checkpoint is not None and theirs.precision not in (None, "bf16"):
        yield f"their checkpoint is {theirs.checkpoint}"
    if figure == "score":
        yield from [f"n is {row['n']} here"] if theirs.n != row["n"] else []
        return
    if figure == MEMORY_FIGURE:
        yield from _memory_differences(row, theirs)
        return
    if theirs.concurrency is None:
        yield "theirs is an average over several loads"
    if _other_length(row, theirs):
        kept = ": not compared" if figure == "wall_s" else ""
        yield f"{row['output_tokens']} output tokens here, {theirs.output_tokens} there{kept}"
    if theirs.mode == NATURAL:
        yield "their answers end by themselves"
    elif theirs.mode == "fixed" and row["mode"] == NATURAL:
        yield "our answers end by themselves"
