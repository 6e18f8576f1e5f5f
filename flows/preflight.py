"""What a sweep would lack where it runs, said before anything is rented, made or started.

Of every step: its items or prompts. Of a sweep without a cloud: its card and its engine. Of one with a cloud: whether
the pinned engine would start its cells. Otherwise each cell would show it, after the minutes that its start takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from configs.cell import Engine
from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.load import AUTO_GPU, library_of_named
from configs.prompt_suites import OURS, PREPARE, SPEED_BENCH
from configs.schema import Plan, PlannedCell
from configs.secrets import TOKEN
from configs.step import MeasuredStep
from configs.steps.eval import HUB, EvalStep
from configs.steps.load import LoadStep
from flows.clusters.skypilot.task_file import load_task
from flows.plans import is_rejected
from tasks.engine import command, program
from tasks.engine.program import is_ours
from tasks.guards.steadiness import other_gpu
from tasks.place import gpu
from tasks.rehearsal.rehearse import Rehearsed, parts_of, rehearse, require
from warehouse.ledger.commits import Ledger

NOT_COPIED = ROOT / ".skyignore"  # names what SkyPilot leaves out of the copy of the checkout that nodes get


class DatasetUnreachable(SpecsweepError):
    """The items of a step could not be read where it runs; the text says which, and what to do."""


def require_datasets(plan: Plan, ledger: Ledger) -> None:
    """Refuse a plan with a step whose items nobody could fetch; what is committed already needs none.

    Raises DatasetUnreachable: a gated dataset without a token, a file that nodes don't get, or prompts with holes;
    TaskFileError: a token is missing, and the sweep's own task can't be read to say whether nodes need it.
    """
    committed, lacking = ledger.committed_steps(), dict[str, None]()
    for planned in plan.cells:
        done = committed.get(planned.cell.cell_key, ())
        left = [each.spec for each in planned.measurements if each.name not in done]
        found = [said for step in left for said in _lacking_of(step, plan)]
        if found and not is_rejected(ledger, planned, done):
            lacking |= dict.fromkeys(found)
    if lacking:
        raise DatasetUnreachable("; ".join(lacking))


def _lacking_of(step: MeasuredStep, plan: Plan) -> Iterator[str]:
    if isinstance(step, EvalStep) and step.dataset == HUB and step.suite.gated and not os.environ.get(TOKEN):
        # nodes of a task that doesn't list the token have one of their own
        if plan.cloud is None or TOKEN in load_task(plan.cloud.task).secret_names:
            yield (
                f"{step.step}: {step.suite.hub_id} is gated and {TOKEN} isn't set: accept its terms on the hub and "
                f"export {TOKEN}, or name a local file (`dataset: FILE`) in the suite"
            )
    if isinstance(step, LoadStep) and step.dataset == SPEED_BENCH and step.requests_per_category is None:
        # where any prompt is missing, a node refuses to ask for all of them
        yield (
            f"{step.step}: about half of the prompts of {step.dataset!r} are placeholders that their owners let nobody "
            f"copy: {PREPARE}, or ask for no more than each category has (`requests_per_category`), or set "
            f"`dataset: {OURS}`"
        )
    if isinstance(step, EvalStep | LoadStep) and (file := step.dataset_file) is not None:
        named = f"{step.step}: dataset file {step.dataset!r}"
        if not file.is_file():
            yield f"{named} is gone: put it there, or change `dataset` in the suite"
        elif plan.cloud is not None and (why := _why_not_copied(file, step.dataset)):
            yield f"{named} {why}"


def _why_not_copied(file: Path, dataset: str) -> str | None:
    """Why rented nodes would not find a file under its name, and the remedy; None: they do."""
    named = Path(os.path.normpath(file))
    if not (named.is_relative_to(ROOT) and file.resolve().is_relative_to(ROOT.resolve())):
        return f"lies outside {ROOT}, which is all that rented nodes get: put it there, and name it relative to that"
    inside = PurePosixPath(named).relative_to(ROOT)
    if Path(dataset).expanduser().is_absolute():
        return f"has another path on rented nodes: name it relative to {ROOT}, as {str(inside)!r}"
    lines = NOT_COPIED.read_text(encoding="utf-8").splitlines() if NOT_COPIED.is_file() else []
    patterns = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    line = next((line for line in patterns if _covers(line, inside)), None)
    if line is None:
        return None
    return f"isn't copied to rented nodes ({NOT_COPIED.name} has {line!r}): put it into another folder of {ROOT}"


def _covers(pattern: str, path: PurePosixPath) -> bool:
    """Whether a line leaves out the path or a folder around it; one with / at its start is the checkout's."""
    root = "/" if pattern.startswith("/") else ""
    return any(PurePosixPath(root, top).match(pattern.rstrip("/")) for top in [path, *path.parents][:-1])


def require_rehearsed(plan: Plan, ledger: Ledger, name: str, tell: Callable[[str], None]) -> None:
    """Refuse, before anything is rented, a plan with a cell that the pinned engine would refuse; `name` is the sweep's.

    What is measured or rejected already is not asked, nor what another engine serves. Raises WouldNotStart,
    RehearsalFailed, InstallError.
    """
    if plan.cloud is None:
        return
    require(rehearsed(plan, ledger, name, tell))


def rehearsed(plan: Plan, ledger: Ledger, name: str, tell: Callable[[str], None]) -> list[Rehearsed]:
    """What the engine says to cells that are left: to pinned ones, or to all where this machine serves them."""
    left = _left(plan, ledger, lambda engine: engine.is_pinned or plan.cloud is None)
    return rehearse(parts_of(plan.model_copy(update={"cells": tuple(left)})), library_of_named(name), tell)


def _left(plan: Plan, ledger: Ledger, is_asked: Callable[[Engine], bool]) -> list[PlannedCell]:
    """Cells of some engines with anything left to measure, and not rejected."""
    left, committed = list[PlannedCell](), ledger.committed_steps()
    for planned in plan.cells:
        done = committed.get(planned.cell.cell_key, ())
        if not is_asked(planned.cell.engine) or all(each.name in done for each in planned.measurements):
            continue
        if not is_rejected(ledger, planned, done):
            left.append(planned)
    return left


class OtherMachine(SpecsweepError):
    """This machine isn't the one that was planned; the text says what is here, and what to write."""


def require_machine(plan: Plan, ledger: Ledger) -> None:
    """Refuse a plan that this machine can't measure; rented machines, and cells that are measured, are not asked.

    Raises:
        OtherMachine: the card is another one, there are too few, or `gpu: auto` found none.
        EngineUnavailable: the engine isn't there, doesn't start, or is too old for its arguments.
        ContainerUnavailable: the engine runs in a container, and the runtime doesn't answer.
    """
    if plan.cloud is not None:
        return
    left = _left(plan, ledger, lambda engine: not is_ours(engine))
    if left and plan.gpu.name == AUTO_GPU:
        raise OtherMachine(
            "gpu: auto found no card here (`nvidia-smi` is not on the PATH, or shows none): install the driver, or "
            "name the card that you mean, as in configs/gpus"
        )
    cards = (gpu.cards() if left else None) or []
    for planned in left if cards else []:  # without a driver nobody can say what is there
        _require_cards(planned, cards)
    for engine in {planned.cell.engine.name: planned.cell.engine for planned in left}.values():
        if engine.kind == "transformers":
            command.require_packages(engine)
        else:
            program.require(engine, (planned.cell.technique for planned in left))


def _require_cards(planned: PlannedCell, cards: Sequence[gpu.Card]) -> None:
    cell = planned.cell
    env = os.environ | cell.engine.env | cell.technique.engine_env
    shown = gpu.visible(cards, env.get("CUDA_VISIBLE_DEVICES"))
    if planned.gpu.reported_as and len(shown) < cell.cards:
        said = f"CUDA_VISIBLE_DEVICES={env['CUDA_VISIBLE_DEVICES']}" if "CUDA_VISIBLE_DEVICES" in env else "nvidia-smi"
        raise OtherMachine(
            f"{cell.label} needs {cell.cards} x {planned.gpu.name}, and {said} shows {len(shown)} of the "
            f"{len(cards)} cards here: change one of them"
        )
    found = other_gpu(planned.gpu, shown[0].name if shown else None)
    if found is not None:
        raise OtherMachine(
            f"gpu: {found.sentence}: write `gpu: auto`, or the name in configs/gpus that is this card's, or choose the "
            "card that you mean with CUDA_VISIBLE_DEVICES"
        )
