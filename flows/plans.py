"""From what a user types to a plan: sweep, revisions of the demo family, what this machine lacks, the cards of a task.

A task's cards are read as SkyPilot reads them (0.14.1, `Resources.from_yaml_config`): `H100`, `H100:8`, `{H100: 8}`,
lists of these, by their memory (`80GB+`), under `gpus`, too, and in each entry of `any_of` or `ordered`. A task that
names a machine instead isn't looked at: what is in it only the catalogue knows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from functools import partial

from configs.cell import Engine, Technique
from configs.checkout import ROOT
from configs.expand import expand
from configs.load import AUTO_GPU, library_of, load_engine, load_sweep
from configs.schema import Plan, PlannedCell
from configs.steps.eval import EvalStep
from flows.clusters.skypilot.task_file import TaskFile, load_task
from tasks.engine.command import overlay_name
from tasks.engine.program import is_ours, serves_on_cards, without_module
from tasks.family.members import revision_of
from tasks.host import environments
from tasks.place import gpu
from tasks.prompts import PROSE_KEPT_AS, paragraphs_here, prose_to_json
from warehouse.ledger.commits import Ledger


def store_url(asked: str | None) -> str:
    """The store of a command or flow: the one asked for, else SPECSWEEP_STORE, else `results/` of the checkout."""
    return asked or os.environ.get("SPECSWEEP_STORE") or str(ROOT / "results")


def make_plan(name_or_path: str, gpu_name: str | None = None) -> Plan:
    """The expanded plan of a sweep, on a card of gpus/ in place of its own where `gpu_name` is given.

    Raises:
        ConfigError: the sweep or something it names is wrong.
        MemberUnavailable: a shipped model that it names is missing or damaged.
        TaskFileError: its `cloud.task` is, or rents other cards than its cells are served on.
    """
    sweep = load_sweep(name_or_path, gpu_name)
    task = None if sweep.cloud is None else load_task(sweep.cloud.task)
    card = gpu.name_here() if sweep.gpu == AUTO_GPU else None
    lacking = partial(_lacking, load_engine(sweep.engine, library_of(sweep)), sweep.cloud is not None)
    plan = expand(sweep, revision_of=revision_of, available=lacking, card=card)
    if task is not None:
        require_cards(task, plan)
    return plan


def record_run(ledger: Ledger, plan: Plan) -> None:
    """Record a run's plan, or raise StoreError if it has another, and its prose: nodes' Python may have other prose."""
    ledger.write_plan(plan)
    ledger.write_prompts(PROSE_KEPT_AS, prose_to_json(paragraphs_here()))


def is_rejected(ledger: Ledger, planned: PlannedCell, done: Collection[str]) -> bool:
    """Whether the cell's gate has closed: nothing more of it is measured. Reads the store: to be asked last."""
    gates = [step.step for step in planned.steps if step.is_gate]
    found = [ledger.read_commit(planned.cell.cell_key, gate) for gate in gates if gate in done]
    return any(commit is not None and commit.verdict == "rejected" for commit in found)


_MEMORY = re.compile(r"\d+[GMT]B\+?", re.IGNORECASE)


def family_members(plan: Plan) -> list[str]:
    """Members of the demo family that serve the plan's cells, sorted."""
    sources = [source for planned in plan.cells for source in (planned.cell.model, planned.cell.draft)]
    return sorted({source.family_member for source in sources if source is not None and source.family_member})


def engine_environments(plan: Plan) -> list[str]:
    """Our engine environments, and the overlays on them, that serve the plan's cells, sorted."""
    cells = [planned.cell for planned in plan.cells]
    engines = {cell.engine.environment for cell in cells if is_ours(cell.engine)}
    return sorted(name for name in engines | {overlay_name(cell) for cell in cells} if name)


def framework_environments(plan: Plan) -> list[str]:
    """Environments of the frameworks that ask the plan's evaluations, sorted."""
    evals = (step for planned in plan.cells for step in planned.steps if isinstance(step, EvalStep))
    return sorted({step.framework for step in evals})


def _lacking(engine: Engine, is_rented: bool, technique: Technique) -> str | None:
    """What this machine's engine lacks for a technique; what a rented machine's image has, nobody knows here."""
    if is_ours(engine):
        return environments.suffix_unavailable() if technique.needs_module == "arctic_inference" else None
    return None if is_rented else without_module(engine, technique)


def require_cards(file: TaskFile, plan: Plan) -> None:
    """Refuse, as TaskFileError, a task with a place of other cards than the plan's, or of another number of them."""
    for field, asked in _asked(file):
        try:
            problems = [_other(*cards, planned) for cards in _cards(asked) for planned in plan.cells]
        except ValueError:
            problems = ["is no number of cards; accepted: e.g. H100:1"]
        for problem in filter(None, problems):
            raise file.wrong(field, asked, problem)


def _other(name: str | None, number: float, planned: PlannedCell) -> str | None:
    """Why a cell can't have these cards, or is planned as if it had none, and what would be accepted."""
    gpu, cell = planned.gpu, planned.cell
    if gpu.bandwidth_gb_s is None and not gpu.is_card and serves_on_cards(cell.engine):
        remedy = "accepted: the card's name in configs/gpus, or an engine for processors"
        return f"the sweep's gpu is {gpu.name}, and its engine {cell.engine.name!r} serves on cards; {remedy}"
    if name and gpu.sky_names and name.lower() not in map(str.lower, gpu.sky_names):
        remedy = f"accepted: {', '.join(gpu.sky_names)} (`sky_names` in its file), or another gpu in the sweep"
        return f"the sweep's gpu is {gpu.name}; {remedy}"
    if number != cell.cards:
        name = name or next(iter(gpu.sky_names), gpu.name)
        remedy = f"accepted: {name}:{cell.cards}, or other parallel sizes in the engine's `args`"
        return f"{cell.label} needs {cell.cards} x {gpu.name}; {remedy}"
    return None


def _asked(file: TaskFile) -> Iterator[tuple[str, object]]:
    """What each place that the task allows is asked to have, by the field that says so."""
    of_all = ("resources", file.config["resources"])
    for entry in file.entries:
        field, place = entry if {"accelerators", "gpus"} & set(entry[1]) else of_all
        for name in ("accelerators", "gpus"):
            if place.get(name):
                yield f"{field}.{name}", place[name]


def _cards(asked: object) -> Iterator[tuple[str | None, float]]:
    """Name and number of the cards of each alternative; None: whichever has the memory that was asked for."""
    if isinstance(asked, dict):
        texts: list[object] = [name if count is None else f"{name}:{count}" for name, count in asked.items()]
    else:
        texts = list(asked) if isinstance(asked, list | set) else [asked]
    for text in texts:
        *before, last = str(text).split(":")
        counted = bool(before) and not _MEMORY.fullmatch(last)
        named = before if counted else [*before, last]
        by_memory = any(_MEMORY.fullmatch(word) for word in named)
        yield None if by_memory else ":".join(named), float(last) if counted else 1
