"""Which deployments of a Prefect server are ours, and how long their flows may be silent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.client.schemas.responses import DeploymentResponse
from prefect.settings.models.flows import FlowsSettings

from configs.errors import SpecsweepError

TAG = "specsweep"
"""On each deployment of `prefect.yaml`; Prefect copies it to their flow runs, and into the events of these."""

MAX_FLOW_RUNS = 5
"""How often one flow run may be started, crashes included, before it gives up: a loop would cost money for ever."""

BEATS_MISSED = 3
"""Heartbeats in a row that must be missing before a flow run counts as dead."""

HEARTBEAT_VARIABLES = ("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "PREFECT_RUNNER_HEARTBEAT_FREQUENCY")
"""Job variables that set a deployment's heartbeat, in Prefect's order; they win over the worker's own settings."""

DEFAULT_HEARTBEAT_S = int(FlowsSettings.model_fields["heartbeat_frequency"].default)

PAGE = 200
"""Deployments that Prefect lists at once."""


class AutomationsRefused(SpecsweepError):
    """The automations would act on nothing, or on flows that are alive; the text says what to do."""


class Ours(NamedTuple):
    """A deployment of ours: `flow/name`, and the seconds between two heartbeats of its flow runs."""

    name: str
    heartbeat_s: int


async def deployments_of_ours(client: PrefectClient) -> list[Ours]:
    """Every deployment that carries our tag, slowest heartbeat first."""
    wanted = DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
    found: list[DeploymentResponse] = []
    while len(page := await client.read_deployments(deployment_filter=wanted, limit=PAGE, offset=len(found))):
        found += page
    flows = {each.flow_id: (await client.read_flow(each.flow_id)).name for each in found}
    ours = [Ours(f"{flows[each.flow_id]}/{each.name}", _heartbeat_s(each)) for each in found]
    return sorted(ours, key=lambda each: (-each.heartbeat_s, each.name))


def _heartbeat_s(deployment: DeploymentResponse) -> int:
    """By its job variables; without one the worker decides, which nobody can ask: Prefect's default is assumed."""
    env = (deployment.job_variables or {}).get("env") or {}
    said = next((env[name] for name in HEARTBEAT_VARIABLES if name in env), DEFAULT_HEARTBEAT_S)
    return int(said)


def patience_s(ours: Sequence[Ours], asked_s: int | None) -> int:
    """Silence after which a flow run of ours is dead.

    Args:
        ours: our deployments on the server, slowest heartbeat first.
        asked_s: what the user wants; None: as short as the slowest heartbeat allows.

    Raises:
        AutomationsRefused: there is no deployment of ours, or a live flow would be silent for longer.
    """
    if not ours:
        raise AutomationsRefused(f"no deployment on this server has the tag {TAG!r}: run `prefect deploy --all` first")
    slowest = ours[0]
    if asked_s is None:
        return BEATS_MISSED * slowest.heartbeat_s
    if asked_s <= slowest.heartbeat_s:
        raise AutomationsRefused(
            f"silence of {asked_s} s would crash live flows: {slowest.name} beats every {slowest.heartbeat_s} s; "
            f"leave the number out (then it is {BEATS_MISSED * slowest.heartbeat_s} s), or set "
            f"{HEARTBEAT_VARIABLES[0]} in its job variables (work_pool.job_variables.env of prefect.yaml)"
        )
    return asked_s
