"""From a sweep to its plan: every row of the matrix as a cell with its key, and the steps that measure it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from configs.cell import Cell, Draft, Model, Technique
from configs.files import Library
from configs.load import AUTO_GPU, library_of, load_gpu, load_gpu_of_card, load_suite
from configs.local_checkpoint import digest_of, local_folder
from configs.schema import Plan, PlannedCell, Sweep, assemble_cell, shapes_of
from configs.visits import Drop

_Weights = TypeVar("_Weights", Model, Draft)


def not_asked(member: str) -> str:
    """The default of `expand`, for plans that are not served: a node refuses this revision."""
    return f"{member}-not-asked"


def expand(
    sweep: Sweep,
    *,
    revision_of: Callable[[str], str] = not_asked,
    available: Callable[[Technique], str | None] = lambda _: None,
    card: str | None = None,
) -> Plan:
    """The plan of a sweep from `load_sweep`: its cells in the file's order, and what was left out with its reason.

    `revision_of` says what identifies a member of the demo family, its revision. `available` says why a technique can't
    run here; only `optional` cells are left out for that, any other fails where everyone sees it. `card` is this
    machine's, as its driver names it, for `gpu: auto`. Raises `ConfigError` where a name's file is gone or wrong,
    `NoCheckpoint` where a folder of weights is.
    """
    library = library_of(sweep)
    gpu = load_gpu_of_card(card, library) if sweep.gpu == AUTO_GPU else load_gpu(sweep.gpu, library)
    suite = load_suite(sweep.suite, library)
    cells: list[PlannedCell] = []
    left_out: list[tuple[str, str]] = []
    for row in sweep.cells:
        cell = _with_revisions(assemble_cell(sweep, row, library), revision_of)
        reason = available(cell.technique) if row.optional else None
        if reason is not None:
            left_out.append((cell.label, reason))
            continue
        why_not = {step.step: step.why_not(cell) for step in suite.steps}
        left_out += [(cell.label, f"{step}: {why}") for step, why in why_not.items() if why is not None]
        steps = tuple(step for step in suite.steps if why_not[step.step] is None)
        control = _control(cell, sweep, library, revision_of)
        drop: Drop = "never" if cell.k is None else sweep.drop
        cells.append(
            PlannedCell(
                cell=cell,
                gpu=gpu,
                spot=sweep.spot,
                steps=steps,
                visits=sweep.visits,
                control=control,
                drop=drop,
                held_against=row.held_against,
            )
        )
    return Plan(
        sweep=sweep.name,
        gpu=gpu,
        concurrency=sweep.concurrency,
        max_attempts=sweep.max_attempts,
        cloud=sweep.cloud,
        cells=tuple(cells),
        left_out=tuple(left_out),
    )


def default_run_id(plan: Plan) -> str:
    """The name of a run that was given none. The same plan gets the same name, and so continues the same run."""
    return f"{plan.sweep}-{plan.config_hash[:8]}"  # tells one's own sweeps apart, and is short enough to type


def _control(cell: Cell, sweep: Sweep, library: Library, revision_of: Callable[[str], str]) -> Cell | None:
    """The control that a cell brings along: AR of the model it is compared with, served alike; None: it needs none."""
    if sweep.visits != "bracketed" or cell.technique.is_baseline:
        return None
    model = library.load("models", cell.model.compared_as, Model)
    twin = {
        "model": model,
        "technique": library.load("techniques", "ar", Technique),
        "shapes": shapes_of(model, None, library),
        **dict.fromkeys(("k", "draft", "acceptance", "denoising_steps", "canvas_length")),
    }
    return _with_revisions(cell.model_copy(update=twin), revision_of)


def _with_revisions(cell: Cell, revision_of: Callable[[str], str]) -> Cell:
    """The cell with the revisions of what has none of a hub: members of the demo family, and folders."""
    draft = _pinned(cell.draft, revision_of) if cell.draft is not None else None
    return cell.model_copy(update={"model": _pinned(cell.model, revision_of), "draft": draft})


def _pinned(weights: _Weights, revision_of: Callable[[str], str]) -> _Weights:
    """A member of the family or a folder at its revision; a checkpoint on the hub as it is."""
    if (folder := local_folder(weights.hub_id)) is not None:
        return weights.model_copy(update={"hub_id": str(folder), "revision": digest_of(folder)})
    member = weights.family_member
    return weights if member is None else weights.model_copy(update={"revision": revision_of(member)})
