"""Two Prefect automations that continue a run after its host is lost, without a person.

When worker and flow process die together, nobody marks the flow run: it would stay Running for ever. So silence turns
it Crashed, and a crash schedules the same run again; the ledger lets it continue. Both look at flow runs with our tag
only: what others do on the same server, and how often their flows beat, is no business of ours.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

import httpx
from prefect.automations import Automation
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL

from configs.errors import SpecsweepError, leave
from flows.deployments.ours import MAX_FLOW_RUNS, TAG, AutomationsRefused, deployments_of_ours, patience_s

LONGEST_RUN = timedelta(days=30)
"""How long after its start a crash of a flow run is still seen."""

_ENDINGS = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
_STARTS = {f"prefect.flow-run.{state}" for state in ("Running", "Retrying", "Rerunning")}
_TAGGED = ResourceSpecification({"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"})
_SWEEPS = ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": "sweep"})


class NoServer(SpecsweepError):
    """There is no Prefect server to install on; the text says where it was looked for, and what to do."""


def install(silence_s: int | None = None) -> str:
    """Create both automations on the server that this process talks to, replacing our earlier ones.

    Args:
        silence_s: silence after which a flow run is dead; None: three heartbeats of our slowest deployment.

    Returns:
        What they do, for people.

    Raises:
        AutomationsRefused: no deployment of ours is there, or one beats more slowly than that.
        NoServer: no Prefect server is named, or it does not answer as one.
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


def _client() -> PrefectClient:
    try:
        return get_client()
    except ValueError as error:  # Prefect's own word for it
        raise NoServer(
            "PREFECT_API_URL names no Prefect server: start one (`prefect server start`) and set it to that one's /api"
        ) from error


async def _install(silence_s: int | None) -> str:
    async with _client() as client:
        ours = await deployments_of_ours(client)
    within_s = patience_s(ours, silence_s)
    await replace(within_s)
    names = ", ".join(sorted(each.name for each in ours))
    return f"flow runs of {names}: Crashed after {within_s} s without a heartbeat; sweeps start again after a crash"


async def replace(silence_s: int) -> None:
    """Create both automations, whatever our deployments' heartbeats are, and drop our earlier ones."""
    for automation in (_silent_runs_crash(silence_s), _crashed_sweeps_continue()):
        await _delete(automation.name)
        await automation.acreate()
    await _delete("specsweep: crashed runs continue")  # the earlier name, which matched everybody's runs


def _silent_runs_crash(silence_s: int) -> Automation:
    return Automation(
        name="specsweep: silent runs crash",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.heartbeat", *_ENDINGS},
            match={"prefect.resource.id": ["prefect.flow-run.*"]},
            match_related=_TAGGED,
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=silence_s),
        ),
        actions=[
            ChangeFlowRunState(
                name="Crashed", state=StateType.CRASHED, force=False, message=f"no heartbeat for {silence_s} s"
            )
        ],
    )


def _crashed_sweeps_continue() -> Automation:
    """A crash of a run that had started; one that can't even start would be scheduled again for ever."""
    return Automation(
        name="specsweep: crashed sweeps continue",
        trigger=EventTrigger(
            after=_STARTS,
            expect={"prefect.flow-run.Crashed"},
            match={
                "prefect.resource.id": "prefect.flow-run.*",
                "prefect.run-count": [str(count) for count in range(1, MAX_FLOW_RUNS)],
            },
            match_related=[_TAGGED, _SWEEPS],
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
            within=LONGEST_RUN,
        ),
        actions=[
            ChangeFlowRunState(
                name="AwaitingRetry", state=StateType.SCHEDULED, force=False, message="crashed: continue"
            )
        ],
    )


async def _delete(name: str) -> None:
    try:
        earlier = await Automation.aread(name=name)
    except (ValueError, ObjectNotFound):
        return  # there was none
    await earlier.adelete()


def _seconds(said: str) -> int:
    try:
        return int(said)
    except ValueError:
        raise AutomationsRefused(f"silence {said!r}: give whole seconds, or leave it out") from None


def main() -> int:
    """`python -m flows.automations [SILENCE_S]`: install on the server of PREFECT_API_URL."""
    try:
        print(install(*map(_seconds, sys.argv[1:2])))
    except SpecsweepError as error:
        return leave("flows.automations", error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
