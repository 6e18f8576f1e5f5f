"""The table of evaluations: whose items, through which framework, as which of its tasks, and how they are read.

Items are never part of this repository: GPQA's authors ask not to reveal them in plain text, HAE-RAE and KMMLU may not
be changed. A further suite of a known framework is one entry here, and its records in `odd_records` of the tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

Framework = Literal["lm-eval", "inspect", "hret"]
"""Who asks and scores; also the name of its environment."""


class Columns(NamedTuple):
    """Where records of a multiple-choice dataset have what; text from CSV files is read as what it stands for."""

    question: str
    options: str | tuple[str, ...] = ()
    """One column with a list of them, or a column for each; (): they are part of the question's text."""
    answer: str = ""
    """The right one; "": it is the first of `options`, and the order in which they are shown follows from the item."""
    first: int | None = None
    """Number of the first option, where `answer` is a number; None: it is a letter."""
    category: str = "category"
    cut: str = ""
    """What the framework takes out of a question, wherever it stands."""
    replaced: tuple[str, str] = ("", "")
    """A text that the framework replaces in options, and what it shows instead."""

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns without which a record is no question."""
        options = (self.options,) if isinstance(self.options, str) else self.options
        return tuple(name for name in (self.question, *options, self.answer) if name)


class SuiteFacts(NamedTuple):
    """One dataset. Usual lengths are for planning only; what was really used is measured."""

    name: str
    title: str
    hub_id: str
    split: str
    items: int
    """How many the split has, all subsets together."""
    letters: str
    """Answer letters, in order; "" where an answer is no letter, and a program checks it."""
    prompt_tokens: int
    longest_prompt_tokens: int
    """What no prompt is taken to exceed: must fit into a cell together with the longest answer."""
    answer_tokens: int
    subsets: tuple[str, ...] = ("default",)
    """Configurations of the dataset that are read."""
    revision: str | None = None
    """Commit of the dataset's repository; None: nobody could tell us one, so a node takes the newest and records it."""
    gated: bool = False
    """Whether the hub wants a token whose owner has accepted the terms."""
    columns: Columns | None = None
    """None: no multiple choice; `tasks/evals/shapes.py` has a function for its records."""
    checked: str = ""
    """Where an answer is no letter: the detail of a framework's sample that says whether it passed."""

    @property
    def chance(self) -> float | None:
        """Score of guessing; None where nobody can guess."""
        return 1 / len(self.letters) if self.letters else None

    @property
    def counting(self) -> tuple[str, str]:
        """Metric and extractor of the score that counts: the last answer of the body, or a program's word.

        It is never guessed: of IFEval's four accuracies only the strict one, by prompts, is comparable.
        """
        return ("accuracy", "last-in-body") if self.letters else (f"{self.checked}_acc", "checker")


ANSWER_HEADING: Final = "### 정답"
"""What HRET takes out of a question; a colon behind it stays."""

GPQA: Final = SuiteFacts(
    name="gpqa", title="GPQA-Diamond", hub_id="Idavidrein/gpqa", subsets=("gpqa_diamond",), split="train", gated=True,
    revision="633f5ee89ab8ad4522a9f850766b73f62147ffdd",
    items=198, letters="ABCD",
    prompt_tokens=300, longest_prompt_tokens=1500, answer_tokens=8000,
    columns=Columns(
        "Question", ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"),
        category="High-level domain",
        replaced=(" [title]", ". "),  # lm-eval takes it for a mark of WikiHow's; inspect gets the same
    ),
)  # fmt: skip
"""Rein et al., arXiv 2311.12022; the revision is the one that ten public pins of 2026 agree on (198 rows)."""

MMLU_PRO: Final = SuiteFacts(
    name="mmlu-pro", title="MMLU-Pro", hub_id="TIGER-Lab/MMLU-Pro", split="test",
    revision="527feea0afed1de15a8c115abf7be4c912123315",
    items=12032, letters="ABCDEFGHIJ", columns=Columns("question", "options", "answer"),
    prompt_tokens=350, longest_prompt_tokens=2000, answer_tokens=3000,
)  # fmt: skip
"""Wang et al., arXiv 2406.01574; the revision is the one that inspect_evals 0.26.0 pins."""

IFEVAL: Final = SuiteFacts(
    name="ifeval", title="IFEval", hub_id="google/IFEval", split="train",
    revision="966cd89545d6b6acfd7638bc708b98261ca58e84",
    items=541, letters="", checked="prompt_level_strict",
    prompt_tokens=80, longest_prompt_tokens=1200, answer_tokens=2000,
)  # fmt: skip
"""Zhou et al., arXiv 2311.07911; the revision is the one that inspect_evals 0.26.0 pins."""

HAE_RAE: Final = SuiteFacts(
    name="hae-rae", title="HAE-RAE Bench", hub_id="HAERAE-HUB/HAE_RAE_BENCH_1.1", split="test",
    subsets=(
        "general_knowledge", "history", "loan_words", "rare_words", "standard_nomenclature", "reading_comprehension",
    ),
    items=1538, letters="ABCDE", columns=Columns("query", answer="answer", cut=ANSWER_HEADING),
    prompt_tokens=300, longest_prompt_tokens=1500, answer_tokens=1500,
)  # fmt: skip
"""Son et al., arXiv 2309.02706: the six tasks of its first version. No public pin of its revision was found."""

KMMLU: Final = SuiteFacts(
    name="kmmlu", title="KMMLU", hub_id="HAERAE-HUB/KMMLU", split="test",
    revision="d61b3f19e552c576bf5960dd24289763edc36a88",
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
    items=35030, letters="ABCD",
    columns=Columns("question", ("A", "B", "C", "D"), "answer", first=1, category="Category", cut=ANSWER_HEADING),
    prompt_tokens=250, longest_prompt_tokens=800, answer_tokens=2000,
)  # fmt: skip
"""Son et al., arXiv 2402.11548; the revision is the one that lighteval's port of the task pins (main on 2026-10-08)."""


class Evaluation(NamedTuple):
    """One step: a suite through one framework."""

    step: str
    suite: SuiteFacts
    framework: Framework
    metric: str
    """What the framework calls its default metric of this task; of several filters, lm-eval's first."""
    task: str = ""
    """lm-eval: YAML below lm_eval/tasks. HRET: name in its registry. inspect has one task for all letters."""
    system: str = ""
    """System message, rendered for each of lm-eval's documents."""


_GPQA_TASK = "gpqa/cot_zeroshot/gpqa_diamond_cot_zeroshot.yaml"
_MMLU_PRO_TASK = "mmlu_pro/_default_template_yaml"
_MMLU_PRO_SYSTEM = (
    "The following are multiple choice questions (with answers) about {{category}}. Think step by step and "
    'then finish your answer with "the answer is (X)" where X is the correct letter choice.\n'
)
_ALL = (
    Evaluation("eval-gpqa", GPQA, "lm-eval", "exact_match,strict-match", _GPQA_TASK),
    Evaluation("eval-gpqa-inspect", GPQA, "inspect", "accuracy"),
    Evaluation("eval-haerae", HAE_RAE, "hret", "accuracy", "haerae_bench"),
    Evaluation("eval-ifeval", IFEVAL, "lm-eval", "prompt_level_strict_acc,none", "ifeval/ifeval.yaml"),
    Evaluation("eval-kmmlu", KMMLU, "hret", "accuracy", "kmmlu"),
    Evaluation("eval-mmlu-pro", MMLU_PRO, "lm-eval", "exact_match,custom-extract", _MMLU_PRO_TASK, _MMLU_PRO_SYSTEM),
)
EVALUATIONS: Final = {entry.step: entry for entry in _ALL}
"""By step. Metrics are as the sources of lm-eval 0.4.13, inspect-ai 0.3.285 and HRET 0.1.0 have them. MMLU-Pro's system
message is that of its fourteen subject tasks, with the subject filled in per document. It is asked zero-shot: its stock
five examples need another split, and show a model that thinks how to think otherwise."""

SUITES: Final = {entry.suite.name: entry.suite for entry in EVALUATIONS.values()}
"""By name. Lengths are our assumptions, until a run has measured them. KMMLU's questions are short, MMLU-Pro's have up
to ten options, and HAE-RAE's reading comprehension, GPQA and IFEval may bring a page of text."""

if TYPE_CHECKING:
    SuiteName = str
    EvalName = str
else:
    SuiteName = Literal[tuple(SUITES)]
    EvalName = Literal[tuple(EVALUATIONS)]
