"""From what a user types to a plan: sweep, recipe of the demo family, what this machine lacks."""

from __future__ import annotations

import os

from configs.cell import Technique
from configs.checkout import ROOT
from configs.evals.spec import EvalStep
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Plan
from tasks.engine.command import overlay_name
from tasks.family.recipe import recipe_hash
from tasks.host import environments
from tasks.prose import paragraphs
from warehouse.ledger import Ledger

DEFAULT_STORE = "results"
"""Where results go when neither an argument nor SPECSWEEP_STORE says: a folder of the checkout."""


def store_url(asked: str | None) -> str:
    """The store that a command or flow works on: the one asked for, else SPECSWEEP_STORE, else `results/`."""
    return asked or os.environ.get("SPECSWEEP_STORE") or str(ROOT / DEFAULT_STORE)


def make_plan(name_or_path: str) -> Plan:
    """The expanded plan of a sweep.

    Raises:
        ConfigError: the sweep or something it names is wrong.
    """
    return expand(load_sweep(name_or_path), recipe=recipe_hash(), available=_unavailable)


def record_run(ledger: Ledger, plan: Plan) -> None:
    """Record what a run is and what its prompts are made of: nodes with another Python have other prose.

    Raises:
        StoreError: the run exists with another plan.
    """
    ledger.write_plan(plan)
    ledger.write_prompts(paragraphs.KEPT_AS, paragraphs.to_json(paragraphs.paragraphs_here()))


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
    engines = {cell.engine.environment for cell in cells if not cell.engine.command}
    return sorted(name for name in engines | {overlay_name(cell) for cell in cells} if name)


def framework_environments(plan: Plan) -> list[str]:
    """Environments of the frameworks that ask the plan's evaluations, sorted."""
    evals = (step for planned in plan.cells for step in planned.steps if isinstance(step, EvalStep))
    return sorted({step.framework for step in evals})


def _unavailable(technique: Technique) -> str | None:
    if technique.needs_module == "arctic_inference":
        return environments.suffix_unavailable()
    return None
