"""Why a launch failed, as the records and the next choice of a place get it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flows.clusters.protocol import LaunchFailed
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.api import Rented
from flows.clusters.skypilot.remedies import cloud_words, explain, refuses
from warehouse.outcomes import Ended

RACED = "InvalidPermission.Duplicate"
"""EC2's word to the second of two launches that open a port of a region's new security group: it is open by now."""


def was_raced(log: Sequence[str]) -> bool:
    """Whether a launch failed because another was there first, so that the same launch may succeed now."""
    return RACED in cloud_words(log)


def launch_failed(
    error: Exception, where: str, log: Sequence[str], left_of_it: Callable[[], Sequence[Rented]]
) -> LaunchFailed:
    """Why a launch failed, by SkyPilot's exception, its log, and what is left of the cluster.

    Args:
        error: SkyPilot's.
        where: the place, for people.
        log: lines that SkyPilot printed about the launch.
        left_of_it: asks the cloud for the cluster; may raise anything.
    """
    said = sky_server.text_of(error)
    errors = sky_server.sdk().exceptions
    if isinstance(error, errors.ResourcesUnavailableError):
        said = f"{said} {cloud_words(log)}"  # the error itself leaves out what EC2 said
        if refuses(said):
            return LaunchFailed(f"{where}: refused ({explain(said)})", Ended.REFUSED)
        return LaunchFailed(f"{where}: no capacity ({explain(said)})", Ended.NO_CAPACITY)
    text = explain(said)
    if isinstance(error, sky_server.SkyUnavailable):  # no cloud took anything away
        return LaunchFailed(f"{where}: {text}", Ended.LAUNCH_FAILED)
    try:
        left = left_of_it()
    except Exception as unanswered:  # whatever it is: why the launch failed is known all the same
        unknown = f"what is left of it can't be asked: {sky_server.text_of(unanswered)}"
        return LaunchFailed(f"{where}: {text} ({unknown})", Ended.LAUNCH_FAILED)
    mended_by_a_person = (errors.NotSupportedError, errors.InvalidCloudConfigs, errors.InvalidCloudCredentials)
    if not left and (refuses(said) or isinstance(error, mended_by_a_person)):
        return LaunchFailed(f"{where}: refused ({text})", Ended.REFUSED)
    if not left:
        return LaunchFailed(f"{where}: the cluster vanished while it was set up ({text})", Ended.PREEMPTED)
    if left[0].status == "INIT":
        return LaunchFailed(f"{where}: setup failed ({text})", Ended.SETUP_FAILED)
    return LaunchFailed(f"{where}: {text}", Ended.LAUNCH_FAILED)
