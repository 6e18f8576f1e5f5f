"""Prompts: named workloads, one at a time and several at once; programs in their answers are run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, JsonValue, field_validator
from pydantic_core import PydanticCustomError

from configs.cell import Cell
from configs.checkout import ROOT
from configs.files import ConfigError, Loc, accepted, parse, read_document, shown_path
from configs.frozen import Frozen
from configs.prompt_suites import TEMPLATE_TOKENS
from configs.step import MeasuredStep, Work


class Case(Frozen):
    """One run of a program: what it is given, and what it must print; blanks and empty lines at ends don't count."""

    stdin: str = ""
    arguments: tuple[JsonValue, ...] = Field((), description="of the function that is called")
    stdout: str


class Check(Frozen):
    """How the program in an answer is held to what the prompt asked. It is right if every case is.

    It is run as it stands; with `function` it is loaded without what it prints, then `print(function(*arguments))`.
    """

    function: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z_0-9]*$")
    cases: tuple[Case, ...] = Field(min_length=1)
    seconds: float = Field(5.0, gt=0, le=60, description="time limit of each case")
    memory_mib: int = Field(512, ge=128, le=4096, description="address space of the program, Python included")


class Workload(Frozen):
    """A prompt, what language it is answered in, and where its answer is cut off if it doesn't end by itself."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    language: str = Field(min_length=1, description="of the answer, e.g. English, Korean, Python")
    prompt: str = Field(min_length=1)
    max_tokens: int = Field(ge=2)
    answer_tokens: int | None = Field(None, gt=0, description="expected answer, for the forecast; none: the cap")
    enable_thinking: bool | None = Field(None, description="chat-template argument; none: as the model says")
    check: Check | None = Field(None, description="none: nothing in its answer is run")

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, for planning: four bytes each, as in English and in code."""
        return len(self.prompt.encode()) // 4 + TEMPLATE_TOKENS

    @property
    def longest_tokens(self) -> int:
        """What must fit into a cell: no token is less than a byte."""
        return len(self.prompt.encode()) + TEMPLATE_TOKENS + self.max_tokens

    def problems(self) -> Iterator[tuple[Loc, str]]:
        """Cases that give arguments to nobody: (location inside the workload, what is wrong)."""
        if self.check is None or self.check.function is not None:
            return
        for i, case in enumerate(self.check.cases):
            if case.arguments:
                problem = "arguments without a function to be called with them"
                yield ("check", "cases", i, "arguments"), f"{problem}; accepted: `function:`, or `stdin:` instead"


def from_lists(value: Any) -> Any:
    """Workloads as YAML and stored plans have them, with tuples for lists; a function's arguments stay as they are.

    What a validator has looked at is Python and no JSON any more, and there a strict tuple is no list.
    """
    if isinstance(value, list):
        return tuple(map(from_lists, value))
    if not isinstance(value, dict):
        return value
    given = value.get("arguments")
    whole = {name: from_lists(inner) for name, inner in value.items()}
    return whole | {"arguments": tuple(given)} if isinstance(given, list) else whole


FOLDER: Final = ROOT / "configs" / "workloads"


class Workloads(Frozen):
    """A file of workloads."""

    name: str
    include: tuple[str, ...] = Field((), description="further files, as a suite names them; theirs come first")
    workloads: tuple[Workload, ...] = Field(min_length=1)


def workload_names() -> list[str]:
    """The files that ship, without their ending, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def workloads_of(name: str, including: tuple[Path, ...] = ()) -> tuple[Workload, ...]:
    """The workloads of a file that ships, or of a path from the checkout, behind those of the files that it includes.

    A plan keeps them, so a node reads no file, and another prompt is another run. Raises `ConfigError`.
    """
    shipped = FOLDER / f"{name}.yaml"
    path = shipped if shipped.is_file() else ROOT / Path(name).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        problem = f"no workloads {name!r}; {accepted(name, workload_names())}, or a path to a YAML file of your own"
        raise ConfigError(shown_path(FOLDER), "", problem)
    if path in including:
        raise ConfigError(shown_path(path), "include", f"{path.stem!r} includes itself")
    found = parse(read_document(path), Workloads, stem=path.stem)
    theirs = [each for other in found.include for each in workloads_of(other, (*including, path))]
    return (*theirs, *found.workloads)


CONCURRENCY = " c="
"""Between workload and concurrency in a condition's name; no workload has a blank."""


class PromptsStep(MeasuredStep):
    """Each workload at each concurrency: so many copies of its prompt, sent together, timed until all are answered.

    Not streamed, greedy where the technique is, natural EOS with a cap. Repeats send the same prompts: they differ by
    nothing but the machine. Copies write the same tokens; what a mixture of experts does under different ones is
    `load`'s to say.
    """

    step: Literal["prompts"]
    workloads: tuple[Workload, ...] = Field(
        min_length=1, description="name of a file in workloads/, a path to one's own, or a list of them"
    )
    concurrencies: tuple[Annotated[int, Field(gt=0)], ...] = Field((1,), min_length=1)
    repeats: int = Field(3, gt=0, description="how often each engine start times each of them")
    warmup: int = Field(1, ge=0, description="untimed rounds before each of them, cut off where the shortest is")
    unfenced: bool = Field(
        False, description="run programs with limits only where the kernel can't fence them: a machine to throw away"
    )

    is_timed: ClassVar[bool] = True
    forecast_only: ClassVar[frozenset[str]] = frozenset({"workloads.answer_tokens"})

    @field_validator("workloads", mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return from_lists(value)
        try:
            return workloads_of(value)
        except ConfigError as error:  # one word for the type, and the text as an argument: pydantic formats it
            accepted = "a name or a file that can be read ({problem})"
            raise PydanticCustomError("workloads", accepted, {"problem": str(error)}) from error

    def named(self) -> Iterator[tuple[Loc, str]]:
        """The names that distinguish rows and verdicts: workloads and concurrencies."""
        for i, workload in enumerate(self.workloads):
            yield ("workloads", i, "name"), workload.name
        for i, number in enumerate(self.concurrencies):
            yield ("concurrencies", i), f"{CONCURRENCY}{number}"

    def problems(self) -> Iterator[tuple[Loc, str]]:
        """What is wrong with a workload."""
        for i, workload in enumerate(self.workloads):
            for loc, problem in workload.problems():
                yield ("workloads", i, *loc), problem

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        """Each workload's prompt and longest answer."""
        for workload in self.workloads:
            yield f"workload {workload.name!r}", workload.longest_tokens

    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """Per concurrency and workload: all repeats, and the warm-up."""
        loads = []
        for number in self.concurrencies:
            for each in self.workloads:
                usual = min(each.answer_tokens or each.max_tokens, each.max_tokens)
                loads.append(Work(self.repeats * number, each.prompt_tokens, usual, number, each.max_tokens))
                if self.warmup:
                    cut = min(usual, self.warmup_tokens)
                    loads.append(Work(self.warmup * number, each.prompt_tokens, cut, number, self.warmup_tokens))
        return tuple(loads)

    @property
    def warmup_tokens(self) -> int:
        """Where answers of the warm-up are cut off: the least cap of all workloads."""
        return min(each.max_tokens for each in self.workloads)


def condition_name(workload: str, concurrency: int) -> str:
    """What a row is called: `code c=4`."""
    return f"{workload}{CONCURRENCY}{concurrency}"


def workload_of(condition: str) -> str:
    """The workload that a condition's name has."""
    return condition.rpartition(CONCURRENCY)[0]
