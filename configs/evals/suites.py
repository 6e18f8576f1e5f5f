"""Facts of the evaluation suites: where their items live, at which revision, and what guessing scores.

Items are never part of this repository: GPQA's authors ask not to reveal them in plain text, HAE-RAE and KMMLU may not
be changed. A node fetches them by the pinned revision, or takes a file of the user's.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Framework = Literal["lm-eval", "inspect", "hret"]
"""Who asks and scores; also the name of its environment."""

SuiteName = Literal["gpqa", "mmlu-pro", "ifeval", "hae-rae", "kmmlu"]


class SuiteFacts(NamedTuple):
    """One suite. Token figures are for planning only; what was really used is measured."""

    name: SuiteName
    title: str
    hub_id: str
    subsets: tuple[str, ...]
    """Configurations of the dataset that are read; ("default",) if it has one only."""
    split: str
    revision: str | None
    """Commit of the dataset's repository; None: nobody could tell us one, so a node takes the newest and records it."""
    gated: bool
    """Whether the hub wants a token whose owner has accepted the terms."""
    items: int
    """How many the split has, all subsets together."""
    letters: str
    """Answer letters, in order; "" where an answer is no letter."""
    prompt_tokens: int
    """Usual length of a prompt."""
    longest_prompt_tokens: int
    """What no prompt is taken to exceed: must fit into a cell beside the longest answer."""
    answer_tokens: int
    """Usual length of an answer with thinking on."""

    @property
    def chance(self) -> float | None:
        """Score of guessing; None where nobody can guess."""
        return 1 / len(self.letters) if self.letters else None


GPQA: Final = SuiteFacts(
    name="gpqa",
    title="GPQA-Diamond",
    hub_id="Idavidrein/gpqa",
    subsets=("gpqa_diamond",),
    split="train",
    revision=None,
    gated=True,
    items=198,
    letters="ABCD",
    prompt_tokens=300,
    longest_prompt_tokens=1500,
    answer_tokens=8000,
)
"""Rein et al., arXiv 2311.12022."""

MMLU_PRO: Final = SuiteFacts(
    name="mmlu-pro",
    title="MMLU-Pro",
    hub_id="TIGER-Lab/MMLU-Pro",
    subsets=("default",),
    split="test",
    revision="527feea0afed1de15a8c115abf7be4c912123315",
    gated=False,
    items=12032,
    letters="ABCDEFGHIJ",
    prompt_tokens=350,
    longest_prompt_tokens=2000,
    answer_tokens=3000,
)
"""Wang et al., arXiv 2406.01574; the revision is the one that inspect_evals 0.26.0 pins."""

IFEVAL: Final = SuiteFacts(
    name="ifeval",
    title="IFEval",
    hub_id="google/IFEval",
    subsets=("default",),
    split="train",
    revision="966cd89545d6b6acfd7638bc708b98261ca58e84",
    gated=False,
    items=541,
    letters="",
    prompt_tokens=80,
    longest_prompt_tokens=1200,
    answer_tokens=2000,
)
"""Zhou et al., arXiv 2311.07911; the revision is the one that inspect_evals 0.26.0 pins."""

HAE_RAE: Final = SuiteFacts(
    name="hae-rae",
    title="HAE-RAE Bench",
    hub_id="HAERAE-HUB/HAE_RAE_BENCH_1.1",
    subsets=(
        "general_knowledge",
        "history",
        "loan_words",
        "rare_words",
        "standard_nomenclature",
        "reading_comprehension",
    ),
    split="test",
    revision=None,
    gated=False,
    items=1538,
    letters="ABCDE",
    prompt_tokens=300,
    longest_prompt_tokens=1500,
    answer_tokens=1500,
)
"""Son et al., arXiv 2309.02706: the six tasks of its first version."""

KMMLU: Final = SuiteFacts(
    name="kmmlu",
    title="KMMLU",
    hub_id="HAERAE-HUB/KMMLU",
    subsets=(
        "Accounting", "Agricultural-Sciences", "Aviation-Engineering-and-Maintenance", "Biology",
        "Chemical-Engineering", "Chemistry", "Civil-Engineering", "Computer-Science", "Construction", "Criminal-Law",
        "Ecology", "Economics", "Education", "Electrical-Engineering", "Electronics-Engineering", "Energy-Management",
        "Environmental-Science", "Fashion", "Food-Processing", "Gas-Technology-and-Engineering", "Geomatics", "Health",
        "Industrial-Engineer", "Information-Technology", "Interior-Architecture-and-Design", "Korean-History", "Law",
        "Machine-Design-and-Manufacturing", "Management", "Maritime-Engineering", "Marketing", "Materials-Engineering",
        "Math", "Mechanical-Engineering", "Nondestructive-Testing", "Patent", "Political-Science-and-Sociology",
        "Psychology", "Public-Safety", "Railway-and-Automotive-Engineering", "Real-Estate", "Refrigerating-Machinery",
        "Social-Welfare", "Taxation", "Telecommunications-and-Wireless-Technology",
    ),
    split="test",
    revision="d61b3f19e552c576bf5960dd24289763edc36a88",
    gated=False,
    items=35030,
    letters="ABCD",
    prompt_tokens=250,
    longest_prompt_tokens=800,
    answer_tokens=2000,
)  # fmt: skip
"""Son et al., arXiv 2402.11548; the revision is the one that lighteval's port of the task pins (main on 2026-10-08)."""

SUITES: Final = {facts.name: facts for facts in (GPQA, MMLU_PRO, IFEVAL, HAE_RAE, KMMLU)}
"""All suites by name. Lengths are our assumptions, until a run has measured them: the usual ones for the forecast, the
longest prompts for the room that a cell must have. KMMLU's questions are short, MMLU-Pro's have up to ten options, and
HAE-RAE's reading comprehension, GPQA and IFEval may bring a page of text."""
