"""What a sweep without a cloud would lack on this machine, said before anything is started.

A card that isn't the planned one, or an engine that can't serve, would otherwise show once for each cell, after the
minutes that each start takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from configs.errors import SpecsweepError
from configs.load import AUTO_GPU
from configs.schema import Plan, PlannedCell
from flows.plans import is_rejected
from tasks.engine import command, program
from tasks.engine.program import is_ours
from tasks.guards.machine import other_gpu
from tasks.place import gpu
from warehouse.ledger.commits import Ledger


class OtherMachine(SpecsweepError):
    """This machine isn't the one that was planned; the text says what is here, and what to write."""


def require_machine(plan: Plan, ledger: Ledger) -> None:
    """Refuse a plan that this machine can't measure; rented machines, and cells that are measured, are not asked.

    The run of `ledger` may not exist yet.

    Raises:
        OtherMachine: the card is another one, there are too few, or `gpu: auto` found none.
        EngineUnavailable: the engine isn't there, doesn't start, or is too old for its arguments.
        ContainerUnavailable: the engine runs in a container, and the runtime doesn't answer.
    """
    if plan.cloud is not None:
        return
    left = list(_left(plan, ledger))
    if left and plan.gpu.name == AUTO_GPU:
        raise OtherMachine(
            "gpu: auto found no card here (`nvidia-smi` is not on the PATH, or shows none): install the driver, or "
            "name the card that you mean, as in configs/gpus"
        )
    cards = gpu.cards() if left else None
    for planned in left if cards else []:  # without a driver nobody can say what is there
        _require_cards(planned, cards or [])
    for engine in {planned.cell.engine.name: planned.cell.engine for planned in left}.values():
        if engine.kind == "transformers":
            command.require_packages(engine)
        else:
            program.require(engine, (planned.cell.technique for planned in left))


def _left(plan: Plan, ledger: Ledger) -> Iterator[PlannedCell]:
    committed = ledger.committed_steps()
    for planned in plan.cells:
        done = committed.get(planned.cell.cell_key, ())
        if is_ours(planned.cell.engine) or all(each.name in done for each in planned.measurements):
            continue
        if not is_rejected(ledger, planned, done):
            yield planned


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
