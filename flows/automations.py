"""Prefect automations that continue a run after its host is lost, without a person.

When worker and flow process die together, nobody marks the flow run: it would stay Running for ever. So silence turns
it Crashed, and a crash schedules the same run again; the ledger lets it continue. They look at flow runs with our tag
only, and leave other users of the server alone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta

import httpx
from prefect.automations import Automation
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL
from prefect.settings.models.flows import FlowsSettings

from configs.errors import SpecsweepError, leave

TAG = "specsweep"  # on each deployment of `prefect.yaml`; Prefect copies it to their flow runs, and into their events
MAX_FLOW_RUNS = 5  # starts of one flow run, crashes included, before it gives up: a loop would cost money for ever
BEATS_MISSED = 3  # heartbeats in a row that must be missing before a flow run counts as dead

HEARTBEAT_VARIABLES = ("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "PREFECT_RUNNER_HEARTBEAT_FREQUENCY")
"""Job variables that set a deployment's heartbeat, in Prefect's order; they win over the worker's own settings."""

DEFAULT_HEARTBEAT_S = int(FlowsSettings.model_fields["heartbeat_frequency"].default)
PAGE = 200  # deployments that Prefect lists at once


class AutomationsRefused(SpecsweepError):
    """The automations would act on nothing, or on flows that are alive; the text says what to do."""


async def _deployments_of_ours(client: PrefectClient) -> list[tuple[str, int]]:
    """`flow/name` and seconds between heartbeats of every deployment with our tag, the slowest first."""
    wanted = DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
    found: list[DeploymentResponse] = []
    while len(page := await client.read_deployments(deployment_filter=wanted, limit=PAGE, offset=len(found))):
        found += page
    ours = []
    for each in found:
        env = (each.job_variables or {}).get("env") or {}
        # without a job variable the worker decides, which nobody can ask: Prefect's default is assumed
        beat_s = next((env[name] for name in HEARTBEAT_VARIABLES if name in env), DEFAULT_HEARTBEAT_S)
        ours.append((f"{(await client.read_flow(each.flow_id)).name}/{each.name}", int(beat_s)))
    return sorted(ours, key=lambda each: (-each[1], each[0]))


def _patience_s(ours: Sequence[tuple[str, int]], asked_s: int | None) -> int:
    """Silence after which a flow run of ours, the slowest heartbeat first, is dead; `asked_s` None: the shortest."""
    if not ours:
        raise AutomationsRefused(f"no deployment on this server has the tag {TAG!r}: run `prefect deploy --all` first")
    slowest, beat_s = ours[0]
    if asked_s is None:
        return BEATS_MISSED * beat_s
    if asked_s <= beat_s:
        raise AutomationsRefused(
            f"silence of {asked_s} s would crash live flows: {slowest} beats every {beat_s} s; "
            f"leave the number out (then it is {BEATS_MISSED * beat_s} s), or set "
            f"{HEARTBEAT_VARIABLES[0]} in its job variables (work_pool.job_variables.env of prefect.yaml)"
        )
    return asked_s


CONTINUED = "crashed: continue"  # the message of a run that is scheduled again
LONGEST_RUN = timedelta(days=30)  # how long after its start a crash of a flow run is still seen
_CRASHED = "prefect.flow-run.Crashed"
_ENDINGS = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled")}
_STARTS = {f"prefect.flow-run.{state}" for state in ("Running", "Retrying", "Rerunning")}
_TAGGED = ResourceSpecification({"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"})
_SWEEPS = ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": "sweep"})


class NoServer(SpecsweepError):
    """There is no Prefect server to install on; the text says where it was looked for, and what to do."""


def install(silence_s: int | None = None) -> str:
    """Create the automations, replacing our earlier ones, on this process's Prefect server; says what they do.

    A flow run is dead after `silence_s`; None: three heartbeats of our slowest deployment. Raises AutomationsRefused:
    none of ours is there, or one beats more slowly; NoServer: no Prefect server is named, or it does not answer as one.
    """
    try:
        return asyncio.run(_install(silence_s))
    except httpx.HTTPError as error:
        said = f"status {error.response.status_code}" if isinstance(error, httpx.HTTPStatusError) else str(error)
        where = httpx.URL(PREFECT_API_URL.value() or "").copy_with(userinfo=b"")  # a password may be in it
        raise NoServer(
            f"PREFECT_API_URL: no Prefect server answers at {where} ({said or type(error).__name__}): "
            "start it (`prefect server start`), or name one that runs"
        ) from error


async def _install(silence_s: int | None) -> str:
    try:
        client = get_client()
    except ValueError as error:  # Prefect's own word for it
        raise NoServer(
            "PREFECT_API_URL names no Prefect server: start one (`prefect server start`) and set it to that one's /api"
        ) from error
    async with client:
        ours = await _deployments_of_ours(client)
    within_s = _patience_s(ours, silence_s)
    await replace(within_s)
    names = ", ".join(sorted(name for name, _ in ours))
    return f"flow runs of {names}: Crashed after {within_s} s without a heartbeat; sweeps start again after a crash"


async def replace(silence_s: int) -> None:
    """Create the automations, whatever our deployments' heartbeats are, and drop our earlier ones."""
    silence = timedelta(seconds=silence_s)
    said = f"no heartbeat for {silence_s} s"
    for automation in (_silent_runs_crash(silence, said), _crashed_sweeps_continue(), _silenced_again(silence, said)):
        await _delete(automation.name)
        await automation.acreate()
    await _delete("specsweep: crashed runs continue")  # the earlier name, which matched everybody's runs


def _silent_runs_crash(silence: timedelta, said: str) -> Automation:
    """A flow run that sends no heartbeat for a while, and has not ended, is dead.

    The crash is none of the endings: Prefect would look at its own while it still acts, and act again. One that
    crashed by itself is found silent later: it stays Crashed, or if it waits to be started again, is scheduled again.
    """
    return Automation(
        name="specsweep: silent runs crash",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.heartbeat", *_ENDINGS},
            match={"prefect.resource.id": ["prefect.flow-run.*"]},
            match_related=_TAGGED,
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            within=silence,
        ),
        actions=[ChangeFlowRunState(name="Crashed", state=StateType.CRASHED, force=False, message=said)],
    )


def _crashed_sweeps_continue() -> Automation:
    """A crash of a run that had started; one that can't even start would be scheduled again for ever."""
    return _continued("specsweep: crashed sweeps continue", after=_STARTS, within=LONGEST_RUN, match={})


def _silenced_again(silence: timedelta, said: str) -> Automation:
    """A crash by silence of a run that waits to be started again: it had crashed by itself, or by the same silence.

    Prefect acts before it commits that it has acted. If its database is locked meanwhile, the silence is found once
    more (3.8.8, `evaluate` in server/events/triggers.py). This automation looks for two, as one may be found late.
    """
    after = {"prefect.flow-run.AwaitingRetry"}
    match = {"prefect.state-message": [said, CONTINUED]}  # of both events: a crash for any other reason is final
    return _continued("specsweep: sweeps that crash twice continue", after=after, within=2 * silence, match=match)


def _continued(name: str, *, after: set[str], within: timedelta, match: Mapping[str, list[str]]) -> Automation:
    """Schedule a sweep again that crashes `within` a time `after` an event, a few times at most.

    The crash is in `after` too, or Prefect on SQLite would lose it: it reads its count and then writes it, which fails
    if anybody writes in between. Four failures in a second are enough. What is in `after` it writes first (3.8.8,
    `reactive_evaluation` in server/events/triggers.py). It lets such a count start below 0: the first crash without an
    event of `after` before it only brings it to 0. A run that can't start is scheduled once more at most.
    """
    counts = [str(count) for count in range(1, MAX_FLOW_RUNS)]
    return Automation(
        name=name,
        trigger=EventTrigger(
            after={*after, _CRASHED},
            expect={_CRASHED},
            match={"prefect.resource.id": "prefect.flow-run.*", "prefect.run-count": counts, **match},
            match_related=[_TAGGED, _SWEEPS],
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            within=within,
        ),
        actions=[ChangeFlowRunState(name="AwaitingRetry", state=StateType.SCHEDULED, force=False, message=CONTINUED)],
    )


async def _delete(name: str) -> None:
    try:
        earlier = await Automation.aread(name=name)
    except (ValueError, ObjectNotFound):
        return  # there was none
    await earlier.adelete()


def main() -> int:
    """`python -m flows.automations [SILENCE_S]`: install on the server of PREFECT_API_URL."""
    try:
        silence_s = [int(said) for said in sys.argv[1:2]]
    except ValueError:
        error = AutomationsRefused(f"silence {sys.argv[1]!r}: give whole seconds, or leave it out")
        return leave("flows.automations", error)
    try:
        print(install(*silence_s))
    except SpecsweepError as refused:
        return leave("flows.automations", refused)
    return 0


if __name__ == "__main__":
    sys.exit(main())
