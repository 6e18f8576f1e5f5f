"""From what a user types to a plan: sweep, revisions of the demo family, what this machine lacks."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from configs.cell import Technique
from configs.checkout import ROOT
from configs.expand import expand
from configs.load import AUTO_GPU, library_of, load_engine, load_sweep
from configs.schema import Plan, PlannedCell, Sweep
from configs.steps.eval import EvalStep
from flows.clusters.accelerators import require_cards
from flows.clusters.skypilot.task_file import load_task
from tasks.engine.command import overlay_name
from tasks.engine.program import is_ours, without_module
from tasks.family.members import revision_of
from tasks.host import environments
from tasks.place import gpu
from tasks.prose import paragraphs
from warehouse.ledger import Ledger

DEFAULT_STORE = "results"
"""Where results go when neither an argument nor SPECSWEEP_STORE says: a folder of the checkout."""


def store_url(asked: str | None) -> str:
    """The store that a command or flow works on: the one asked for, else SPECSWEEP_STORE, else `results/`."""
    return asked or os.environ.get("SPECSWEEP_STORE") or str(ROOT / DEFAULT_STORE)


def make_plan(name_or_path: str, gpu_name: str | None = None) -> Plan:
    """The expanded plan of a sweep.

    Args:
        name_or_path: As of `load_sweep`.
        gpu_name: A file of gpus/ in place of the sweep's own.

    Raises:
        ConfigError: the sweep or something it names is wrong.
        MemberUnavailable: a shipped model that it names is missing or damaged.
        TaskFileError: its `cloud.task` is, or rents other cards than its cells are served on.
    """
    sweep = load_sweep(name_or_path, gpu_name)
    task = None if sweep.cloud is None else load_task(sweep.cloud.task)
    card = gpu.name_here() if sweep.gpu == AUTO_GPU else None
    plan = expand(sweep, revision_of=revision_of, available=_lacking(sweep), card=card)
    if task is not None:
        require_cards(task, plan)
    return plan


def record_run(ledger: Ledger, plan: Plan) -> None:
    """Record what a run is and what its prompts are made of: nodes with another Python have other prose.

    Raises:
        StoreError: the run exists with another plan.
    """
    ledger.write_plan(plan)
    ledger.write_prompts(paragraphs.KEPT_AS, paragraphs.to_json(paragraphs.paragraphs_here()))


def is_rejected(ledger: Ledger, planned: PlannedCell, done: Collection[str]) -> bool:
    """Whether the cell's gate has closed: nothing more of it is measured. Reads the store: to be asked last."""
    gates = [step.step for step in planned.measured_steps if step.is_gate]
    found = [ledger.read_commit(planned.cell.cell_key, gate) for gate in gates if gate in done]
    return any(commit is not None and commit.verdict == "rejected" for commit in found)


def family_members(plan: Plan) -> list[str]:
    """Members of the demo family that serve the plan's cells, sorted."""
    members = set()
    for planned in plan.cells:
        sources = [planned.cell.model, planned.cell.draft]
        members |= {source.family_member for source in sources if source is not None and source.family_member}
    return sorted(members)


def engine_environments(plan: Plan) -> list[str]:
    """Our engine environments, and the overlays on them, that serve the plan's cells, sorted."""
    cells = [planned.cell for planned in plan.cells]
    engines = {cell.engine.environment for cell in cells if is_ours(cell.engine)}
    return sorted(name for name in engines | {overlay_name(cell) for cell in cells} if name)


def framework_environments(plan: Plan) -> list[str]:
    """Environments of the frameworks that ask the plan's evaluations, sorted."""
    evals = (step for planned in plan.cells for step in planned.steps if isinstance(step, EvalStep))
    return sorted({step.framework for step in evals})


def _lacking(sweep: Sweep) -> Callable[[Technique], str | None]:
    """Says what this machine's engine lacks for a technique; what a rented machine's image has, nobody knows here."""
    engine = load_engine(sweep.engine, library_of(sweep))

    def lacking(technique: Technique) -> str | None:
        if is_ours(engine):
            return environments.suffix_unavailable() if technique.needs_module == "arctic_inference" else None
        return None if sweep.cloud is not None else without_module(engine, technique)

    return lacking
