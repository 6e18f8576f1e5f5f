"""`sweep doctor SWEEP`: whether that sweep can run, by a table of checks that are all made, each said on one line.

A check asks what the run itself would ask, so that nothing has to be kept in step: it returns what is fine, or lines,
or raises the run's own error. Nothing is started, rented or recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import httpx

from configs.errors import SpecsweepError
from configs.expand import default_run_id
from configs.load import library_of_named
from configs.local_checkpoint import local_folder
from configs.schema import Cloud, Plan
from configs.secrets import TOKEN, secret
from configs.steps.eval import HUB as ON_THE_HUB
from configs.steps.eval import EvalStep
from flows.clock import StoppableClock
from flows.clusters.skypilot.api import offers
from flows.clusters.skypilot.carried import values_of
from flows.clusters.skypilot.remedies import explain
from flows.clusters.skypilot.server import text_of
from flows.clusters.skypilot.task_file import DOCKER, TaskFile, load_task, require_no_keys_in_mounts, sky_task
from flows.plans import make_plan
from flows.preflight import require_datasets, require_machine
from flows.renting.site import expected
from flows.renting.sky_site import pinned_image, rentable
from flows.run_context import purse_of
from flows.settling import require_budget
from flows.terminal import cloud_checks
from flows.terminal.cloud_checks import problem, remark
from flows.terminal.doctor import store_checks
from tasks.host.environments import InstallError
from tasks.host.hub import HUB, hub_answers, hub_home, repository
from tasks.rehearsal.rehearse import RehearsalFailed, parts_of, rehearse
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store
from warehouse.ledger.store.proof import Check
from warehouse.report.display.figures import plural

HUB_ANSWER_S = 10.0
AT_ONCE = 8  # questions to the hub
REFUSALS = ("GatedRepo", "RepoNotFound")  # of the hub's codes: the second also for what a token may not see
FOR_NODES_ONLY = ": reachable from nodes"  # ends the name of a check of a store that works here all the same


Said = str | Iterable[Check]
"""What a check found: a line that is fine, or lines of its own."""


class Asked(NamedTuple):
    """A sweep and its run. `ledger` is that of an empty store if the sweep's own can't be used; `file` is its task."""

    name: str
    plan: Plan
    ledger: Ledger
    store_url: str
    file: TaskFile | None

    @property
    def task(self) -> TaskFile:
        """The task of a sweep that rents."""
        assert self.file is not None, "asked of sweeps that rent only"
        return self.file

    @property
    def cloud(self) -> Cloud:
        """How a sweep that rents does so."""
        assert self.plan.cloud is not None, "asked of sweeps that rent only"
        return self.plan.cloud

    @property
    def token(self) -> str | None:
        """The hub's token, as its nodes would get it or its engines here would find it."""
        if self.file is not None:
            return values_of((TOKEN,), self.store_url).get(TOKEN)
        file = hub_home(os.environ) / "token"
        return secret(TOKEN) or (file.read_text(encoding="utf-8").strip() if file.is_file() else None)


def examine_sweep(store_url: str, name: str) -> list[Check]:
    """Every check of what a sweep needs. Raises ConfigError, TaskFileError, MemberUnavailable: it can't be planned."""
    plan = make_plan(name)
    file = None if plan.cloud is None else load_task(plan.cloud.task)
    shares_files = file is not None and bool(file.clouds) and file.clouds <= {"slurm", "ssh"}
    checks = store_checks(store_url, for_nodes=file is not None and not shares_files)
    with TemporaryDirectory() as nowhere:
        store = open_store(store_url if _can_be_used(checks) else nowhere)
        asked = Asked(name, plan, Ledger(store, default_run_id(plan)), store_url, file)
        where = "here" if file is None else "rented"
        return [*checks, *(check for row in TABLE if row.where in (where, "both") for check in _made(row, asked))]


def _can_be_used(checks: Iterable[Check]) -> bool:
    return all(check.ok or check.name.endswith(FOR_NODES_ONLY) for check in checks)


def _made(row: Row, asked: Asked) -> list[Check]:
    try:
        found = row.ask(asked)
        return [Check(row.name, True, found)] if isinstance(found, str) else list(found)
    except SpecsweepError as error:
        return [problem(row.name, str(error))]
    except Exception as error:
        if asked.file is None or not isinstance(error, cloud_checks.sky_failures()):
            raise
        return [problem(row.name, explain(text_of(error)))]


def _machine(asked: Asked) -> Said:
    require_machine(asked.plan, asked.ledger)
    return "it has the card and the engine that the cells ask for"


def _image(asked: Asked) -> Said:
    if not str(asked.task.config["resources"].get("image_id", "")).startswith(DOCKER):
        return "the task runs in no container"
    images = {planned.cell.engine.image for planned in asked.plan.cells}
    return ", ".join(pinned_image(image) for image in sorted(filter(None, images))) or "that of the task"


def _hub(asked: Asked) -> Said:
    """Whether the hub lets the models and datasets be read; what lies in this machine's cache needs no asking."""
    if asked.file is not None and TOKEN not in asked.file.secret_names:
        return [remark("hub", "nodes have a token of their own: nobody asked")]
    sources = [each for planned in asked.plan.cells for each in (planned.cell.model, planned.cell.draft)]
    models = {each.hub_id for each in sources if each is not None and each.hub_id and not local_folder(each.hub_id)}
    if asked.file is None:
        models = {hub_id for hub_id in models if not repository(hub_id, os.environ).exists()}
    evals = [step for planned in asked.plan.cells for step in planned.steps if isinstance(step, EvalStep)]
    datasets = {step.suite.hub_id for step in evals if step.dataset == ON_THE_HUB}
    wanted = sorted([*(("models", each) for each in models), *(("datasets", each) for each in datasets)])
    if not wanted:
        return "nothing has to be fetched from it"
    if not hub_answers():
        return [remark("hub", f"it can't be reached from here, to ask about {', '.join(each for _, each in wanted)}")]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        said = list(filter(None, pool.map(lambda each: _refused(each[0], each[1], asked.token), wanted)))
    if said:
        return [problem("hub", f"{'; '.join(said)}; remedy: accept their terms on the hub, and export {TOKEN}")]
    return f"it lets {len(models)} models and {len(datasets)} datasets be read"


def _refused(kind: str, hub_id: str, token: str | None) -> str | None:
    """Why the hub would not let somebody with this token read a repository; None: it would, or doesn't say."""
    url = f"{(os.environ.get('HF_ENDPOINT') or HUB).rstrip('/')}/api/{kind}/{hub_id}/auth-check"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(url, headers=headers, timeout=HUB_ANSWER_S, follow_redirects=True)
    except httpx.HTTPError as error:
        return f"{hub_id}: no answer ({type(error).__name__})"
    code = answer.headers.get("X-Error-Code", "")
    if answer.status_code in (401, 403) or code in REFUSALS:
        return f"{hub_id}: refused {f'to this {TOKEN}' if token else f'without {TOKEN}'} ({code or answer.status_code})"
    return None


def _datasets(asked: Asked) -> Said:
    require_datasets(asked.plan, asked.ledger)
    return "every step finds its items and prompts"


def _budget(asked: Asked) -> Said:
    require_budget(asked.ledger, asked.plan)
    left = expected(asked.plan, asked.ledger)
    fits = purse_of(asked.ledger, asked.plan, asked.cloud, StoppableClock()).fits(left)
    usd = left.usd_spot if left.spot else left.usd_on_demand
    forecast = "a price isn't known" if usd is None else f"what is left would cost {usd:.2f} USD"
    if not fits:
        return [remark("budget", f"none is set; {forecast}", "set cloud.budget.run_usd in the sweep")]
    return f"{forecast}; " + ", ".join(
        f"{fit.field} is {fit.budget_usd:.2f}, {fit.spent_usd:.2f} spent" for fit in fits
    )


def _rehearsal(asked: Asked) -> Said:
    """Whether the pinned engine would start each cell. Where it serves on this machine, only a refusal is a problem."""
    try:
        found = rehearse(parts_of(asked.plan), library_of_named(asked.name), lambda _: None)
    except (RehearsalFailed, InstallError) as error:
        return [Check("engine rehearsal", asked.file is None, str(error), remark=asked.file is None)]
    if refusals := [line for each in found for line in each.refusals]:
        return [Check("engine rehearsal", False, "; ".join(refusals), f"`bin/sweep rehearse {asked.name}` says more")]
    would = sum(each.would_start for each in found)
    said = f"{would} of {plural(len(found), 'command')} of {asked.name} would start, none is refused"
    return [Check("engine rehearsal", True, said, remark=would < len(found))]


def _task(asked: Asked) -> Said:
    require_no_keys_in_mounts(asked.task)
    sky_task(asked.task)
    return str(asked.task.path)


def _offers(asked: Asked) -> Iterator[Check]:
    why: list[str] = []
    found = offers(sky_task(asked.task), why.append)
    usable = rentable(found, asked.plan, asked.cloud)
    if usable:
        yield Check("offers", True, cloud_checks.said_of(usable))
        yield cloud_checks.quota_for(usable)
    elif found and asked.cloud.budget.is_set and all(each.price_usd_h is None for each in found):
        cause = f"{cloud_checks.said_of(found)}: without a price no budget can be kept"
        yield problem("offers", f"{cause}; remedy: leave cloud.budget out of the sweep")
    else:
        said = "; ".join(dict.fromkeys(why)) or "no enabled cloud has any within any_of and max_hourly_cost"
        yield problem(
            "offers", f"none: {said}; remedy: change that in {asked.task.path}, or enable another cloud of it"
        )


class Row(NamedTuple):
    """A check: its name, where the sweeps are measured that need it, and who asks."""

    name: str
    where: Literal["here", "rented", "both"]
    ask: Callable[[Asked], Said]


TABLE = (
    Row("this machine", "here", _machine),
    Row("hub", "both", _hub),
    Row("datasets", "both", _datasets),
    Row("engine rehearsal", "both", _rehearsal),
    Row("budget", "rented", _budget),
    Row("image", "rented", _image),
    Row("ssh and rsync", "rented", lambda _: [cloud_checks.tools(is_needed=True)]),
    Row("SkyPilot", "rented", lambda _: [cloud_checks.skypilot()]),
    Row("task", "rented", _task),
    Row("SkyPilot API server", "rented", lambda _: [cloud_checks.server()]),
    Row("clouds", "rented", lambda asked: cloud_checks.clouds_of(asked.task)),
    Row("what travels to nodes", "rented", lambda asked: [cloud_checks.travels(asked.task, asked.store_url)]),
    Row("offers", "rented", _offers),
)
