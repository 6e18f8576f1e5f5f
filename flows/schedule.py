"""A step of `prefect deploy` (see `prefect.yaml`): the schedule that a deployment has, else the one to begin with.

Prefect's deploy sets schedules as the file says. So a nightly that was enabled in the UI would be paused again, and a
reaper that was paused would start. Prefect loads this file by its path.
"""

from __future__ import annotations

from prefect.client.orchestration import get_client
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound

from configs.errors import SpecsweepError


class ScheduleNotKept(SpecsweepError):
    """A deployment has schedules that `prefect deploy` would replace; the text says what to do."""


def as_set(deployment: str, cron: str, timezone: str, active: bool) -> dict[str, object]:
    """What `flow/name` has on the server, else as given; ScheduleNotKept: several schedules, or one without a cron."""
    with get_client(sync_client=True) as client:
        try:
            schedules = client.read_deployment_by_name(deployment).schedules
        except ObjectNotFound:
            return {"cron": cron, "timezone": timezone, "active": active}
    if not schedules:  # removed by somebody who does not want it to run
        return {"cron": cron, "timezone": timezone, "active": False}
    only = schedules[0].schedule
    if len(schedules) > 1 or not isinstance(only, CronSchedule):
        raise ScheduleNotKept(
            f"{deployment} has {len(schedules)} schedule(s) of your own, which `prefect deploy --all` would replace: "
            "deploy the others by name (`prefect deploy -n demo -n full`), or leave it one cron schedule"
        )
    return {"cron": only.cron, "timezone": only.timezone or "UTC", "active": schedules[0].active}
