"""`sweep doctor SWEEP`: whether that sweep can run, each check on its line, all of them made.

A check asks what the run itself would ask, so that nothing has to be kept in step. Nothing is rented or recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory
from typing import NamedTuple

import httpx
from rich.console import Console

from configs.expand import default_run_id
from configs.local_checkpoint import local_folder
from configs.schema import Plan
from configs.secrets import TOKEN, secret
from configs.steps.eval import HUB as ON_THE_HUB
from configs.steps.eval import EvalStep
from flows.clusters.skypilot.carried import values_of
from flows.clusters.skypilot.task_file import TaskFile, load_task
from flows.plans import make_plan
from flows.preflight import rehearsed, require_datasets, require_machine
from flows.renting.sky_site import pinned_image
from flows.settling import require_budget
from flows.terminal.cloud_checks import Rented, made, sky_checks
from flows.terminal.doctor import store_checks
from flows.terminal.run import told
from tasks.host.environments import InstallError
from tasks.host.hub import HUB, hub_home, repository
from tasks.rehearsal.rehearse import RehearsalFailed
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store
from warehouse.ledger.store.proof import Check
from warehouse.report.display.figures import plural

HUB_ANSWER_S = 10.0
REFUSALS = ("GatedRepo", "RepoNotFound")  # of the hub's codes: the second also for what a token may not see
FOLDER_CLOUDS = frozenset({"slurm", "ssh"})  # whose nodes may share a folder with this machine


class Asked(NamedTuple):
    """A sweep and its run; `file` is its task, None if it is measured on this machine."""

    name: str
    plan: Plan
    ledger: Ledger
    store_url: str
    file: TaskFile | None


def examine_sweep(store_url: str, name: str) -> list[Check]:
    """Every check of what a sweep needs. Raises ConfigError, TaskFileError, MemberUnavailable: it can't be planned."""
    plan = make_plan(name)
    file = None if plan.cloud is None else load_task(plan.cloud.task)
    shares_folder = file is not None and bool(file.clouds) and file.clouds <= FOLDER_CLOUDS
    checks = store_checks(store_url, for_nodes=file is not None and not shares_folder)
    with TemporaryDirectory() as nowhere:  # where the store can't be used, the rest is told as of an empty one
        store = open_store(store_url if all(check.ok for check in checks) else nowhere)
        asked = Asked(name, plan, Ledger(store, default_run_id(plan)), store_url, file)
        for what, ask in (BOTH | (HERE if file is None else RENTED)).items():
            checks += made(what, partial(ask, asked))
    return checks if file is None else [*checks, *sky_checks(Rented(file, store_url, plan))]


def _machine(asked: Asked) -> str:
    require_machine(asked.plan, asked.ledger)
    return "no card and no engine that the cells ask for is missing"


def _hub(asked: Asked) -> str | list[Check]:
    """Whether the hub lets models and datasets be read; what lies in this machine's cache needs no asking there."""
    if asked.file is None:
        file = hub_home(os.environ) / "token"
        token = secret(TOKEN) or (file.read_text(encoding="utf-8").strip() if file.is_file() else None)
    elif TOKEN in asked.file.secret_names:
        token = values_of((TOKEN,), asked.store_url).get(TOKEN)
    else:
        return [Check("hub", True, f"the task passes no {TOKEN}: nobody asked for nodes", remark=True)]
    wanted = _on_the_hub(asked)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    address = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
    lines, refused, unsaid = list[Check](), list[str](), list[str]()
    try:
        with httpx.Client(headers=headers, timeout=HUB_ANSWER_S, follow_redirects=True) as hub:
            for place in wanted:
                answer = hub.get(f"{address}/api/{place}/auth-check")
                code = answer.headers.get("X-Error-Code", "")
                if answer.status_code in (401, 403) or code in REFUSALS:
                    refused.append(f"{place} ({code or answer.status_code})")
                elif not answer.is_success:
                    unsaid.append(f"{place} ({answer.status_code})")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        said = f"can't be reached from here ({type(error).__name__}), to ask about {plural(len(wanted), 'repo')}"
        lines.append(Check("hub", True, said, remark=True))
    if unsaid:
        lines.append(Check("hub", True, f"did not say of {', '.join(unsaid)}", remark=True))
    if refused:
        who = f"this {TOKEN}" if token else f"who has no {TOKEN}"
        remedy = f"accept their terms on the hub, and export {TOKEN}"
        lines.append(Check("hub", False, f"refuses {who}: {', '.join(refused)}", remedy))
    return lines or (f"lets {plural(len(wanted), 'repo')} be read" if wanted else "nothing has to be fetched from it")


def _on_the_hub(asked: Asked) -> list[str]:
    """Models and datasets as parts of the hub's addresses: `models/ORG/NAME`."""
    cells = [planned.cell for planned in asked.plan.cells]
    sources = [each for cell in cells for each in (cell.model, cell.draft) if each is not None and each.hub_id]
    models = {each.hub_id for each in sources if each.hub_id and not local_folder(each.hub_id)}
    if asked.file is None:
        models = {hub_id for hub_id in models if not repository(hub_id, os.environ).exists()}
    evals = [step for planned in asked.plan.cells for step in planned.steps if isinstance(step, EvalStep)]
    datasets = {step.suite.hub_id for step in evals if step.dataset == ON_THE_HUB}
    return [*(f"models/{each}" for each in sorted(models)), *(f"datasets/{each}" for each in sorted(datasets))]


def _datasets(asked: Asked) -> str:
    require_datasets(asked.plan, asked.ledger)
    return "every step finds its items and prompts"


def _rehearsal(asked: Asked) -> list[Check]:
    """Whether the pinned engine would start each cell that is left. On this machine only a refusal is a problem."""
    name, is_here = "engine rehearsal", asked.file is None
    try:
        with told(Console(stderr=True), "checking the cells against the engine") as tell:
            found = rehearsed(asked.plan, asked.ledger, asked.name, tell)
    except (RehearsalFailed, InstallError) as error:
        return [Check(name, is_here, str(error), remark=is_here)]
    refusals = [line for each in found for line in each.refusals]
    would = sum(each.would_start for each in found)
    said = f"{would} of {plural(len(found), 'command')} of {asked.name} would start, none is refused"
    more = "" if would == len(found) else f"`bin/sweep rehearse {asked.name}` says more"
    return [Check(name, not refusals, "; ".join(refusals) or said, more, remark=bool(more) and not refusals)]


def _budget(asked: Asked) -> str:
    require_budget(asked.ledger, asked.plan)
    return f"what is left fits into it; `bin/sweep plan {asked.name}` shows the dollars"


def _image(asked: Asked) -> str | list[Check]:
    assert asked.file is not None, "asked of sweeps that rent only"
    if not asked.file.is_container:
        return "the task runs in no container"
    images = sorted(filter(None, {planned.cell.engine.image for planned in asked.plan.cells}))
    return [line for image in images for line in made("image", partial(pinned_image, image))] or "that of the task"


Ask = Callable[[Asked], str | list[Check]]
BOTH: dict[str, Ask] = {"hub": _hub, "datasets": _datasets, "engine rehearsal": _rehearsal}
HERE: dict[str, Ask] = {"this machine": _machine}
RENTED: dict[str, Ask] = {"budget": _budget, "image": _image}
