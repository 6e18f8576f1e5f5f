"""Prompt suites for load, by category (a draft helps more on code than on roleplay), and what planning must know."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from configs.checkout import ROOT
from configs.evals.records import from_file

CATEGORIES: Final = (
    "coding", "humanities", "math", "multilingual", "qa", "rag", "reasoning", "roleplay", "stem", "summarization",
    "writing",
)  # fmt: skip
"""Of SPEED-Bench's qualitative split (Abramovich et al., arXiv 2604.09557), and of our own suites."""

SPEED_BENCH, OURS, TWIN = "speed-bench", "ours", "twin"
"""Values of `dataset` that name no file."""


class SuiteSize(NamedTuple):
    """How large a suite is. Token figures are for planning only; what was really used is measured."""

    per_category: int
    """Prompts of each category."""
    prompt_tokens: int
    """Usual length of a prompt."""
    longest_prompt_tokens: int
    """What no prompt is taken to exceed: must fit into a cell together with the longest answer."""
    answer_tokens: int
    """Usual length of an answer that ends by itself."""


SUITE_SIZES: Final = {
    SPEED_BENCH: SuiteSize(80, 600, 8192, 1000),
    OURS: SuiteSize(6, 90, 400, 700),
    TWIN: SuiteSize(8, 200, 560, 80),
}
"""For SPEED-Bench the number of prompts comes from its dataset card. All lengths, its and ours, are our assumptions,
until a run has measured them. What a twin's model says rarely ends before the cap."""


class SpeedBenchFacts(NamedTuple):
    """Where SPEED-Bench's prompts live. They are never part of this repository: its licence covers evaluation only."""

    title: str = "SPEED-Bench"
    hub_id: str = "nvidia/SPEED-Bench"
    subsets: tuple[str, ...] = ("qualitative",)
    split: str = "test"
    revision: str = "487aa718444e816458d1a0a52bfce7a454285cf4"
    """The one that SGLang's own benchmark pins (its benchmark/datasets, read 2026-11-22)."""
    gated: bool = False


SPEED_BENCH_FACTS: Final = SpeedBenchFacts()

PLACEHOLDER: Final = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
"""How a turn begins that SPEED-Bench may not spread: about half of the hub's rows. NVIDIA's own script fills them in
from their sources (Model-Optimizer, examples/specdec_bench/prepare_data.py)."""


PREPARE: Final = (
    "fill them in with NVIDIA's examples/specdec_bench/prepare_data.py (Model-Optimizer), which asks for each source's "
    "own terms, and set `dataset:` to the file"
)


def suite_file(dataset: str) -> Path | None:
    """The user's file; a relative path is relative to the checkout, which is what nodes get. None: it names none."""
    return None if dataset in SUITE_SIZES else ROOT / Path(dataset).expanduser()


TEMPLATE_TOKENS: Final = 64
"""Most that a chat template puts around a message."""


def first_turn(record: Mapping[str, Any]) -> str | None:
    """What is asked of a record with `turns`, or `prompt`; None: it has no text there."""
    turns = record.get("turns", record.get("prompt"))
    text = turns[0] if isinstance(turns, list) and turns else turns
    return text if isinstance(text, str) and text.strip() else None


class FileSize(NamedTuple):
    """What a user's file holds: different prompts of each category, and their lengths as tokens for planning."""

    categories: Mapping[str, int]
    size: SuiteSize


def size_of(file: Path) -> FileSize:
    """Of a file that is there; it is read once for each state that it is in. Raises `DatasetUnavailable`."""
    about = file.stat()
    return _measured(file, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _measured(file: Path, mtime_ns: int, size: int) -> FileSize:
    del mtime_ns, size  # only part of the cache's key
    prompts: dict[str, set[str]] = {}
    for record in from_file(str(file)).records:
        if (text := first_turn(record)) is not None:  # who asks them says which record has none
            prompts.setdefault(str(record.get("category")), set()).add(text)
    texts = [text for some in prompts.values() for text in some]
    usual = sum(len(text.encode(errors="replace")) for text in texts) // (4 * len(texts) or 1)
    shape = SUITE_SIZES[SPEED_BENCH]._replace(
        per_category=max(map(len, prompts.values()), default=0),
        prompt_tokens=TEMPLATE_TOKENS + usual,
        longest_prompt_tokens=TEMPLATE_TOKENS + max(map(_most_tokens, texts), default=0),
    )
    return FileSize({category: len(some) for category, some in prompts.items()}, shape)


def _most_tokens(text: str) -> int:
    """Tokens that a text is taken not to exceed: three ASCII characters each, as dense code has, and any other one."""
    ascii_characters = len(text.encode("ascii", "ignore"))
    return -(-ascii_characters // 3) + len(text) - ascii_characters
