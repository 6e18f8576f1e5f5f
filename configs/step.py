"""Which steps there are, and what planning must know of each.

A step has a file of its name in several folders:

    configs/steps/            its spec
    tasks/steps/              how it is measured
    warehouse/ledger/steps/   its raw tables
    warehouse/dataset/steps/  its rows of the dataset
    warehouse/report/steps/   its sections of the page, if it has any

None is registered. Evaluations by a framework share the file `eval.py`: each is an entry of `configs/evals/suites.py`.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import ClassVar, NamedTuple

from configs.cell import Cell
from configs.errors import SpecsweepError
from configs.files import Loc, accepted
from configs.frozen import Frozen

PROMPT_KINDS = ("prose", "listing", "question", "lookup")
"""What `prompts` may name: real prose, and known words for the demo family. They are made in `tasks/prompts.py`."""


class Work(NamedTuple):
    """Part of a step's work: this many requests, `concurrency` at a time. Tokens are per request."""

    requests: int
    prompt_tokens: int
    output_tokens: int
    """Their mean where outputs differ; then `longest_output_tokens` is what any of them may take."""
    concurrency: int = 1
    longest_output_tokens: int = 0
    rate_s: float | None = None
    """Requests sent a second at the most, whatever is answered."""


def says_nothing(cell: Cell) -> str | None:
    """Why nothing that a cell writes can be scored or compared; None: it can."""
    return "dummy weights: what they write means nothing" if cell.model.weights == "dummy" else None


def answers_nothing(cell: Cell) -> str | None:
    """Why a cell can't be asked questions and be scored; None: it can."""
    if not cell.model.chat:
        return f"{cell.model.name} has chat: false: it continues texts, and answers no questions of a chat"
    return says_nothing(cell)


class MeasuredStep(Frozen):
    """One measurement of a cell, as a suite names it. `workload` is abstract: a step without one would look free."""

    step: str

    is_gate: ClassVar[bool] = False
    """Whether a cell that it rejects isn't measured any further."""

    is_timed: ClassVar[bool] = False
    """Whether it measures a speed, which other work on the same machine would distort."""

    forecast_only: ClassVar[frozenset[str]] = frozenset()
    """Fields (`list.name`: of each of a list) that only the forecast reads: a better guess continues a run."""

    def named(self) -> Iterator[tuple[Loc, str]]:
        """Parts whose names must differ: (location inside the step, name)."""
        yield from ()

    def problems(self) -> Iterator[tuple[Loc, str]]:
        """What is wrong beyond types: (location inside the step, the problem and what would be accepted)."""
        yield from ()

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        """What has to fit into the cell's context: (what sends it, prompt plus output tokens)."""
        yield from ()

    def why_not(self, cell: Cell) -> str | None:
        """Why the step makes no sense for a cell; None: it does."""
        return None

    @abstractmethod
    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """All that it asks of the engine in one pass; the forecast turns it into seconds."""

    def is_own_control(self, cell: Cell) -> bool:
        """Whether a second pass, in a second start where there is one, is the control of the first one."""
        return False

    def trial(self, cell: Cell, items: int) -> tuple[Work, ...]:
        """What trying `items` items of it costs in the smoke step, beyond that step's own short generations."""
        return ()


class PromptedStep(MeasuredStep):
    """A step whose requests are made of prompts of one kind."""

    prompts: str

    def problems(self) -> Iterator[tuple[Loc, str]]:
        """A kind that nobody makes. No matter of the type: stored plans are read, whatever they hold."""
        if self.prompts not in PROMPT_KINDS:
            yield ("prompts",), f"{self.prompts!r} isn't known; {accepted(self.prompts, [*PROMPT_KINDS])}"


VARIABLE = "SPECSWEEP_STEPS"
"""Environment variable: a folder with more steps, in the same sub-folders as the checkout's, `configs/steps/` first."""


def more_steps(room: str) -> list[str]:
    """Further folders to search for a room's steps; empty where the variable isn't set."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return []
    path = Path(folder).absolute()
    if not path.is_dir():
        raise SpecsweepError(f"{VARIABLE} is {folder!r}: no such folder; name one that has configs/steps/, or unset it")
    os.environ[VARIABLE] = str(path)  # processes that are started from here may work in another folder
    return [str(path / room / "steps")]


class StepIncomplete(SpecsweepError):
    """A step lacks a file, or something in it; the text says which."""


def step_names() -> list[str]:
    """Module names in `configs/steps/`, sorted; they have `_` where the step's name has `-`."""
    return sorted(module.name for module in iter_modules(import_module("configs.steps").__path__))


def module_of(room: str, spec: MeasuredStep) -> ModuleType:
    """The module that has the name of the spec's file in another room; raises `StepIncomplete`."""
    return step_module(room, type(spec).__module__.rpartition(".")[2])


def step_module(room: str, name: str) -> ModuleType:
    """The module `<room>/steps/<name>.py`, of a dotted room as `warehouse.dataset`; raises `StepIncomplete`."""
    try:
        return import_module(f"{room}.steps.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{room}.steps.{name}":
            raise
        file = f"{room.replace('.', '/')}/steps/{name}.py"
        raise StepIncomplete(f"step {name!r} has no {file}; CONTRIBUTING.md says what a step needs") from None
