"""Prompt suites for load, by category (a draft helps more on code than on roleplay), and what planning must know."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from configs.checkout import ROOT

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
