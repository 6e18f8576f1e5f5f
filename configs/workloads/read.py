"""Workloads by name: a file that ships here, or one of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from configs.checkout import ROOT
from configs.files.document import ConfigError, accepted, read_document, shown_path
from configs.files.parse import parse
from configs.frozen import Frozen
from configs.workloads.workload import Workload

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

    Args:
        name: of a file that ships, or a path; a relative one is relative to the checkout.

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
