"""The readers of `configs/`: one typed function per folder. Each returns a frozen model or raises `ConfigError`.

`load_sweep("full")` reads `configs/sweeps/full.yaml`; `load_sweep("my/night.yaml")` reads your own file, and
`my/models/`, `my/suites/` ... are searched before ours.
"""

from __future__ import annotations

from pathlib import Path

from configs.cell import Engine, Gpu, Model, Precision, Technique
from configs.check import check_engine, check_model, check_sound, check_suite, check_sweep, shape_names
from configs.files.document import ConfigError, Document, read_document
from configs.files.library import Folder, Library
from configs.files.parse import parse
from configs.schema import Suite, Sweep
from configs.without_weights.acceptance import PublishedAcceptance
from configs.without_weights.shape import Shape

__all__ = [
    "ConfigError",
    "Library",
    "library_of",
    "load_engine",
    "load_gpu",
    "load_model",
    "load_precision",
    "load_replay",
    "load_shape",
    "load_suite",
    "load_sweep",
    "load_technique",
    "names",
]

SHIPPED = Library()
"""The configs that ship with specsweep, and none of the user's."""


def names(folder: Folder, library: Library = SHIPPED) -> tuple[str, ...]:
    """The names that have a file in one folder, sorted."""
    return tuple(library.files(folder))


def load_model(name: str, library: Library = SHIPPED) -> Model:
    """Read `models/<name>.yaml`; raises `ConfigError`."""
    document = library.document("models", name)
    model = parse(document, Model, stem=name)
    check_model(document, model)
    return model


def load_technique(name: str, library: Library = SHIPPED) -> Technique:
    """Read `techniques/<name>.yaml`; raises `ConfigError`."""
    return library.load("techniques", name, Technique)


def load_shape(name: str, library: Library = SHIPPED) -> Shape:
    """Read `shapes/<name>.yaml`; raises `ConfigError`."""
    document = library.document("shapes", name)
    shape = parse(document, Shape, stem=name)
    check_sound(document, ("config",), shape.problem())
    return shape


def load_replay(name: str, library: Library = SHIPPED) -> PublishedAcceptance:
    """Read `replays/<name>.yaml`; raises `ConfigError`."""
    document = library.document("replays", name)
    replay = parse(document, PublishedAcceptance, stem=name)
    check_sound(document, ("tables",), replay.problem())
    return replay


def load_precision(name: str, library: Library = SHIPPED) -> Precision:
    """Read `precisions/<name>.yaml`; raises `ConfigError`."""
    return library.load("precisions", name, Precision)


def load_engine(name: str, library: Library = SHIPPED) -> Engine:
    """Read `engines/<name>.yaml`; raises `ConfigError`."""
    document = library.document("engines", name)
    engine = parse(document, Engine, stem=name)
    check_engine(document, engine)
    return engine


def load_gpu(name: str, library: Library = SHIPPED) -> Gpu:
    """Read `gpus/<name>.yaml`; raises `ConfigError`."""
    return library.load("gpus", name, Gpu)


def load_suite(name: str, library: Library = SHIPPED) -> Suite:
    """Read `suites/<name>.yaml`; raises `ConfigError`."""
    document = library.document("suites", name)
    suite = parse(document, Suite, stem=name)
    check_suite(document, suite)
    return suite


def load_sweep(name_or_path: str) -> Sweep:
    """Read a sweep and check everything it refers to.

    Args:
        name_or_path: A shipped name, or the path of a YAML file (has a slash, or ends in .yaml or .yml).

    Returns:
        The sweep; every name in it exists, and every row makes a cell.

    Raises:
        ConfigError: One line: which file and line, which field, what is wrong and what would be accepted.
    """
    document, folder = _sweep_document(name_or_path)
    library = Library.beside(folder)
    sweep = parse(document, Sweep, stem=None if folder else name_or_path)
    sweep._own_folder = folder
    _check_with_its_files(document, sweep, library)
    return sweep


def _check_with_its_files(document: Document, sweep: Sweep, library: Library) -> None:
    """Check a sweep, and each file that it names by that file's own rules."""
    check_sweep(document, sweep, library, lambda suite: load_suite(suite, library))
    load_engine(sweep.engine, library)
    load_gpu(sweep.gpu, library)
    for model in dict.fromkeys(row.model for row in sweep.cells):
        load_model(model, library)
    for shape in dict.fromkeys(name for row in sweep.cells for name in shape_names(row, library)):
        load_shape(shape, library)
    for replay in dict.fromkeys(row.acceptance.replay for row in sweep.cells if row.acceptance):
        load_replay(replay, library)


def library_of(sweep: Sweep) -> Library:
    """Where the names of a loaded sweep are found: beside the file first, if it is the user's own."""
    return Library.beside(sweep._own_folder)


def _sweep_document(name_or_path: str) -> tuple[Document, Path | None]:
    """The sweep's file, and the folder around it if it is the user's own."""
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path).expanduser()
        return read_document(path), path.parent.resolve()
    return SHIPPED.document("sweeps", name_or_path), None
