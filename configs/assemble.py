"""From one row of a matrix to the cell it stands for: its names are looked up."""

from __future__ import annotations

from configs.cell import Cell, Draft, Engine, Model, Precision, Serving, Technique
from configs.errors import SpecsweepError
from configs.files import Library
from configs.schema import CellRow, Sweep
from configs.without_weights import CheckpointShape, PublishedAcceptance


class NoServingError(SpecsweepError):
    """A row has no serving arguments, and its sweep has none to fall back on."""

    def __init__(self, row: CellRow) -> None:
        cell = f"{row.model} {row.precision} {row.technique}"
        super().__init__(f"{cell} has no `serving`; give one to the row or to the sweep")


def serving_of(sweep: Sweep, row: CellRow) -> Serving:
    """The row's own serving arguments, else the sweep's.

    Raises:
        NoServingError: Neither has them.
    """
    serving = row.serving or sweep.serving
    if serving is None:
        raise NoServingError(row)
    return serving


def assemble_cell(sweep: Sweep, row: CellRow, library: Library) -> Cell:
    """Turn a row into its cell.

    Raises:
        ConfigError: A name has no file, or its file is wrong.
        KTooLong: The row replays an acceptance that was not published up to its K.
        NoServingError: Neither row nor sweep has serving arguments.
    """
    model, replayed = library.load("models", row.model, Model), None
    if row.acceptance is not None and row.k is not None:
        replayed = library.load("replays", row.acceptance.replay, PublishedAcceptance).at(row.k)
    return Cell(
        model=model,
        precision=library.load("precisions", row.precision, Precision),
        technique=library.load("techniques", row.technique, Technique),
        k=row.k,
        draft=row.draft,
        engine=library.load("engines", sweep.engine, Engine),
        serving=serving_of(sweep, row),
        shapes=shapes_of(model, row.draft, library),
        acceptance=replayed,
        denoising_steps=row.denoising_steps,
        canvas_length=row.canvas_length,
    )


def shapes_of(model: Model, draft: Draft | None, library: Library) -> tuple[CheckpointShape, ...]:
    """The shapes that a model and its draft name, each once.

    Raises:
        ConfigError: A name has no file, or its file is wrong.
    """
    named = [source.shape for source in (model, draft) if source is not None and source.shape is not None]
    return tuple(library.load("shapes", name, CheckpointShape) for name in dict.fromkeys(named))
