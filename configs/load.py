"""The readers of `configs/`, one per folder; each returns a frozen model or raises `ConfigError`.

Beside a sweep file of the user's own, `models/`, `suites/` ... are searched before ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from configs.cell import Engine, Gpu, Model, Precision, Technique
from configs.checkout import ROOT
from configs.checks import between_files
from configs.checks.between_files import AUTO_GPU
from configs.files import ConfigError, Document, Fault, Folder, Library, accepted, parse, read_document, shown_path
from configs.schema import Suite, Sweep, shape_names
from configs.without_weights import CheckpointShape, PublishedAcceptance

__all__ = ["AUTO_GPU", "ConfigError", "Library"]  # beside what is defined here

_M = TypeVar("_M", bound=BaseModel)

SHIPPED = Library()
"""The configs that ship with specsweep, and none of the user's."""


def names(folder: Folder, library: Library = SHIPPED) -> tuple[str, ...]:
    """The names that have a file in one folder, sorted."""
    return tuple(library.files(folder))


@dataclass(frozen=True)
class Reader(Generic[_M]):
    """Reads the files of one folder of `configs/` and checks each by the rules of its kind."""

    folder: Folder
    model: type[_M]
    faults: Callable[[_M, Document], Iterator[Fault]] = lambda *_: iter(())

    def __call__(self, name: str, library: Library = SHIPPED) -> _M:
        """Read `<folder>/<name>.yaml`; raises `ConfigError`."""
        document = library.document(self.folder, name)
        found = parse(document, self.model, stem=name)
        document.refuse(self.faults(found, document))
        return found


load_model = Reader("models", Model, lambda model, _: between_files.model_faults(model))
load_technique = Reader("techniques", Technique, lambda technique, _: between_files.technique_faults(technique))
load_shape = Reader("shapes", CheckpointShape, lambda shape, _: shape.faults())
load_replay = Reader("replays", PublishedAcceptance, lambda replay, _: replay.faults())
load_precision = Reader("precisions", Precision)
load_engine = Reader("engines", Engine, lambda engine, _: between_files.engine_faults(engine))
load_gpu = Reader("gpus", Gpu)
load_suite = Reader("suites", Suite, between_files.suite_faults)


def load_gpu_of_card(card: str | None, library: Library = SHIPPED) -> Gpu:
    """The GPU of `gpu: auto`: the file that has the driver's name of the card; raises `ConfigError` where none has.

    `card` is None where no card is here. Such a plan can be read, with no figures of a GPU, not run.
    """
    if card is None:
        return Gpu.model_validate({"name": AUTO_GPU})
    for name in names("gpus", library):
        gpu = load_gpu(name, library)
        if card in gpu.reported_as:
            return gpu
    problem = f"no file has {card!r} in `reported_as`; copy one into gpus/ beside your sweep, with this card's figures"
    raise ConfigError(shown_path(library.roots[-1] / "gpus"), "", problem)


def load_sweep(name_or_path: str, gpu: str | None = None) -> Sweep:
    """Read a sweep, by its shipped name or the path of a YAML file, and check everything it refers to.

    `gpu` takes the place of the file's own. Raises `ConfigError`.
    """
    path = own_file(name_or_path)
    document = SHIPPED.document("sweeps", name_or_path) if path is None else read_document(path)
    folder = None if path is None else path.parent.resolve()
    library = Library.beside(folder)
    sweep = _with_its_task(parse(document, Sweep, stem=None if folder else name_or_path), folder)
    document.refuse(_task_faults(sweep))
    sweep._own_folder = folder
    if gpu is not None:
        sweep = sweep.model_copy(update={"gpu": gpu})
    document.refuse(between_files.sweep_faults(sweep, document, library, lambda suite: load_suite(suite, library)))
    load_engine(sweep.engine, library)
    if sweep.gpu != AUTO_GPU:
        load_gpu(sweep.gpu, library)
    shapes = (shape_names(library.load("models", row.model, Model), row.draft) for row in sweep.cells)
    named: list[tuple[Reader[Any], Iterable[str]]] = [
        (load_model, (row.model for row in sweep.cells)),
        (load_technique, (row.technique for row in sweep.cells)),
        (load_shape, chain.from_iterable(shapes)),
        (load_replay, (row.acceptance.replay for row in sweep.cells if row.acceptance)),
    ]
    for read, names_used in named:
        for name in dict.fromkeys(names_used):
            read(name, library)
    return sweep


def _with_its_task(sweep: Sweep, folder: Path | None) -> Sweep:
    """The sweep with the path of its SkyPilot task as any process finds it: beside the file, else in the checkout."""
    if sweep.cloud is None or (task := own_file(sweep.cloud.task)) is None:
        return sweep
    places = [(place / task).absolute() for place in (folder, ROOT) if place is not None]
    found = next((place for place in places if place.is_file()), places[0])
    return sweep.model_copy(update={"cloud": sweep.cloud.model_copy(update={"task": str(found)})})


def _task_faults(sweep: Sweep) -> Iterator[Fault]:
    """A task that has no file; what is in it is checked by who reads it."""
    known = sorted(file.stem for file in (ROOT / "sky").glob("*.yaml"))
    if sweep.cloud is not None and (task := sweep.cloud.task) not in known and not Path(task).is_file():
        yield ("cloud", "task"), f"no file for {task!r}; {accepted(task, known)}, or the path of your own"


def library_of(sweep: Sweep) -> Library:
    """Where the names of a loaded sweep are found: beside the file first, if it is the user's own."""
    return Library.beside(sweep._own_folder)


def library_of_named(name_or_path: str) -> Library:
    """The same by the sweep's name, or its path, without reading it."""
    path = own_file(name_or_path)
    return Library.beside(None if path is None else path.parent.resolve())


def own_file(name_or_path: str) -> Path | None:
    """The user's own file that a path names; None: it is a name of ours."""
    is_path = "/" in name_or_path or name_or_path.endswith((".yaml", ".yml"))
    return Path(name_or_path).expanduser() if is_path else None


def named_anywhere(name_or_path: str) -> str:
    """The same sweep for a process that works in another folder."""
    path = own_file(name_or_path)
    return name_or_path if path is None else str(path.absolute())
