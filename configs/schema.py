"""The shapes of suites, sweeps and plans: frozen, typed, no unknown keys; and how a row becomes its cell."""

from __future__ import annotations

import hashlib
import json
from functools import reduce
from inspect import isabstract
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, PrivateAttr

from configs.cell import CELL_KEY_HEX_DIGITS, NOT_SERVED, Cell, Draft, Engine, Gpu, Model, Precision, Serving, Technique
from configs.files import Library
from configs.frozen import Frozen, Grown
from configs.step import MeasuredStep, StepIncomplete, step_module, step_names
from configs.visits import Design, Drop, Measurement, Start, starts_of
from configs.without_weights import CheckpointShape, PublishedAcceptance, Replay


def _spec(name: str) -> type[MeasuredStep]:
    """The one spec class in a step's file; none, several or an abstract one is an error."""
    module = step_module("configs", name)
    own = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    specs = [each for each in own if issubclass(each, MeasuredStep)]
    file = f"configs/steps/{name}.py"
    if len(specs) != 1:
        raise StepIncomplete(f"{file} has {len(specs)} classes derived from MeasuredStep; accepted: one")
    if isabstract(specs[0]):
        raise StepIncomplete(f"{file}: {specs[0].__name__} has no workload; without one it would look free")
    return specs[0]


if TYPE_CHECKING:
    Step = MeasuredStep
else:
    Step = Annotated[reduce(or_, map(_spec, step_names())), Field(discriminator="step")]
"""Any step, told apart by its `step` name."""


class Suite(Frozen):
    """A named list of steps, in the order they run."""

    name: str
    steps: tuple[Step, ...] = Field(min_length=1)


class Reference(Frozen):
    """Another precision's AR cell, as the sweep's rows name it: what a cell's accuracy is compared with as well."""

    model: str
    precision: str


class CellRow(Frozen):
    """One line of a sweep's matrix: names that point into the other folders, and its serving arguments."""

    model: str
    precision: str
    technique: str
    k: int | None = Field(None, gt=0)
    draft: Draft | None = None
    serving: Serving | None = None
    acceptance: Replay | None = Field(None, description="published rates instead of the drafts' own")
    denoising_steps: int | None = Field(None, gt=0, description="most passes over a canvas; none: the checkpoint's")
    canvas_length: int | None = Field(None, gt=0, description="tokens denoised together; none: the checkpoint's")
    held_against: Reference | None = Field(None, description="AR of another precision, beside that of its own")
    optional: bool = Field(False, description="left out, with the reason in the plan, where it can't run")


class Budget(Frozen):
    """Limits in dollars; None: no limit. What would exceed a limit isn't started; what exceeds one is stopped."""

    cell_usd: float | None = Field(None, gt=0)
    run_usd: float | None = Field(None, gt=0)
    month_usd: float | None = Field(None, gt=0, description="all runs of the store, by calendar month, UTC")

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return any(limit is not None for limit in (self.cell_usd, self.run_usd, self.month_usd))


class Cloud(Frozen):
    """How a sweep's clusters are rented. It is no part of what is measured: another budget continues the same run."""

    task: str = Field(description="a task of sky/ without its .yaml, or the path of your own, beside your sweep")
    on_demand_after: int = Field(3, ge=0, description="losses of one cell after which it is rented on demand")
    finish_by_h: float | None = Field(None, gt=0, description="hours from the run's start until it should be done")
    wait_h: float = Field(12, ge=0, description="hours to wait for capacity before a cell is given up")
    launch_h: float = Field(0.75, gt=0, description="hours that a launch may take before it is cut short")
    launch_slots: int = Field(8, gt=0, description="launches at the same time, whatever machine runs the flow")
    unattended_h: float = Field(1.0, gt=0, description="hours that a machine lives on without its flow, or its setup")
    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}))


class Sweep(Frozen):
    """A matrix of cells and the suite that measures them."""

    name: str
    engine: str
    gpu: str
    suite: str
    spot: bool = True
    visits: Design = Field("single", description="engine starts of a speed: single, bracketed, mirrored, balanced")
    drop: Drop = Field("never", description="never, or after_first_visit: a K that is out; of mirrored, balanced")
    concurrency: int = Field(1, gt=0, description="cells measured at the same time, where machines are rented")
    max_attempts: int = Field(3, gt=0, description="tries per cell before the run gives it up")
    cloud: Cloud | None = Field(None, description="none: cells run on this machine")
    serving: Serving | None = Field(None, description="used by every cell that has no `serving` of its own")
    cells: tuple[CellRow, ...] = Field(min_length=1)

    _own_folder: Path | None = PrivateAttr(None)
    """Folder of the user's own file, whose `models/`, `suites/` ... come before ours; set by `load_sweep`."""


def assemble_cell(sweep: Sweep, row: CellRow, library: Library) -> Cell:
    """Turn a row into its cell; raises `ConfigError` of a file, `KTooLong` of a replay not published up to its K."""
    serving = row.serving or sweep.serving
    assert serving is not None, "load_sweep refuses a row without"
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
        serving=serving,
        shapes=shapes_of(model, row.draft, library),
        acceptance=replayed,
        denoising_steps=row.denoising_steps,
        canvas_length=row.canvas_length,
    )


def shape_names(model: Model, draft: Draft | None) -> list[str]:
    """Names of the shapes that a model and its draft are made of, each once."""
    named = [source.shape for source in (model, draft) if source is not None]
    return [name for name in dict.fromkeys(named) if name is not None]


def shapes_of(model: Model, draft: Draft | None, library: Library) -> tuple[CheckpointShape, ...]:
    """These shapes, as a stored plan has them; raises `ConfigError` where a name has no file, or its file is wrong."""
    loaded = (library.load("shapes", name, CheckpointShape) for name in shape_names(model, draft))
    return tuple(shape.model_copy(update={"published_as": ()}) for shape in loaded)


class PlannedCell(Grown):
    """A cell of a run with the steps that measure it: what `cell.json` holds, and all that a node needs."""

    cell: Cell
    gpu: Gpu
    spot: bool
    steps: tuple[Step, ...]
    visits: Design = "single"
    control: Cell | None = None
    """Bracketed: the AR twin that the cell brings along."""
    drop: Drop = "never"
    """Whether it is started again though its K is out."""
    held_against: Reference | None = None

    later: ClassVar[frozenset[str]] = frozenset({"drop", "held_against"})

    @property
    def starts(self) -> tuple[Start, ...]:
        """The engine starts that measure it, in order."""
        return starts_of(self.cell, self.control, self.steps, self.visits)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All that is measured of it, its control's starts included, in order."""
        return tuple(each for start in self.starts for each in start.measurements)


class Plan(Frozen):
    """An expanded sweep: all that defines a run before anything is measured."""

    sweep: str
    gpu: Gpu
    concurrency: int
    max_attempts: int
    cloud: Cloud | None = None
    cells: tuple[PlannedCell, ...]
    left_out: tuple[tuple[str, str], ...] = Field((), description="(cell label, why it is not run)")

    @property
    def config_hash(self) -> str:
        """First 16 hex digits of sha256 over the plan; two runs with the same hash measure the same.

        How clusters are rented is left out, so that a raised budget continues the same run.
        """
        # figures for forecast and rehearsal, and names of the card
        not_measured = {"bf16_tflops", "compute_capability", "reported_as", "sky_names"}
        # the plan has the control, and its model and precision say the same
        compared = {"model": set(NOT_SERVED), "precision": {"experts_only"}}
        of_cell = {"gpu": not_measured, "cell": compared, "control": compared}
        left_out: dict[str, Any] = {"cloud": True, "gpu": not_measured, "cells": {"__all__": of_cell}}
        measured = self.model_dump(mode="json", exclude=left_out)
        for planned, cell in zip(self.cells, measured["cells"], strict=True):
            if planned.visits == "single":  # as plans were before there were designs
                del cell["visits"], cell["control"]
            for step, fields in zip(planned.steps, cell["steps"], strict=True):
                for path in step.forecast_only:
                    *outer, name = path.split(".")
                    for each in fields[outer[0]] if outer else [fields]:
                        del each[name]
        text = json.dumps(measured, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:CELL_KEY_HEX_DIGITS]
