"""Two Prefect automations that continue a run after its host is lost, without a person.

When worker and flow process die together, nobody marks the flow run: it would stay Running for ever. So silence turns
it Crashed, and a crash schedules the same run again; the ledger lets it continue. `flows.sweep` limits how often.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from prefect.automations import Automation
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.exceptions import ObjectNotFound

SILENCE_S = 90
"""Silence after which a flow run is dead: three missed heartbeats of 30 s, the shortest that Prefect allows."""

_ENDINGS = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}


def install(silence_s: int = SILENCE_S) -> None:
    """Create both automations on the server that this process talks to, replacing our earlier ones."""
    asyncio.run(_install(silence_s))


async def _install(silence_s: int) -> None:
    for automation in (_silent_runs_crash(silence_s), _crashed_runs_continue()):
        await _delete(automation.name)
        await automation.acreate()


def _silent_runs_crash(silence_s: int) -> Automation:
    return Automation(
        name="specsweep: silent runs crash",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.heartbeat", *_ENDINGS},
            match={"prefect.resource.id": ["prefect.flow-run.*"]},
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


def _crashed_runs_continue() -> Automation:
    return Automation(
        name="specsweep: crashed runs continue",
        trigger=EventTrigger(
            expect={"prefect.flow-run.Crashed"},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
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


def main() -> None:
    """`python -m flows.automations [SILENCE_S]`: install on the server of PREFECT_API_URL."""
    install(*map(int, sys.argv[1:2]))


if __name__ == "__main__":
    main()
