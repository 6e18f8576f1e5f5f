"""Named prompts whose answers are timed, some of them programs that are run: a file of them, and its reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import Field, JsonValue

from configs.checkout import ROOT
from configs.files.document import ConfigError, Loc, accepted, read_document, shown_path
from configs.files.library import parse
from configs.frozen import Frozen

BYTES_PER_TOKEN: Final = 4
"""Of English and of code; for planning only. What was really sent is counted by the engine."""

TEMPLATE_TOKENS: Final = 64
"""Most that a chat template puts around a message."""


class Case(Frozen):
    """One run of a program: what it is given, and what it must print.

    Blanks at the ends of lines, and empty lines at the end, don't count.
    """

    stdin: str = ""
    arguments: tuple[JsonValue, ...] = Field((), description="of the function that is called")
    stdout: str


class Check(Frozen):
    """How the program in an answer is held to what the prompt asked. It is right if every case is.

    Without `function` the program is run as it stands. With it the program is loaded, whatever it prints meanwhile is
    dropped, and then what the function returns is printed: `print(function(*arguments))`.
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
        """Tokens of the prompt, for planning."""
        return len(self.prompt.encode()) // BYTES_PER_TOKEN + TEMPLATE_TOKENS

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
    """Workloads as YAML and stored plans have them, with tuples for the lists that models hold.

    What a validator has looked at is Python and no JSON any more, and there a strict tuple is no list. What a
    function is called with stays as it is.
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


def workloads_of(name: str) -> tuple[Workload, ...]:
    """The workloads of a file, behind those of the files that it includes.

    A plan keeps all of them, so a node reads no file, and another prompt is another run.

    `name` is of a file that ships, or a path; a relative one is relative to the checkout.

    Raises:
        ConfigError: there is no such file, it is wrong, or it includes itself.
    """
    return _read(name, ())


def _read(name: str, including: tuple[Path, ...]) -> tuple[Workload, ...]:
    shipped = FOLDER / f"{name}.yaml"
    path = shipped if shipped.is_file() else ROOT / Path(name).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        problem = f"no workloads {name!r}; {accepted(name, workload_names())}, or a path to a YAML file of your own"
        raise ConfigError(shown_path(FOLDER), "", problem)
    if path in including:
        raise ConfigError(shown_path(path), "include", f"{path.stem!r} includes itself")
    found = parse(read_document(path), Workloads, stem=path.stem)
    theirs = [each for other in found.include for each in _read(other, (*including, path))]
    return (*theirs, *found.workloads)
