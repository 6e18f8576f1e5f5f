"""A spot machine that its cloud has announced to take back: it is left to it, where that makes it free."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from flows.clock import FlowStopped, StoppableClock
from warehouse.bill.bill import FREE_IF_INTERRUPTED_WITHIN_S, rented_s
from warehouse.clock import moment_s
from warehouse.placement import MachineEnd, PlacementStory

TAKEN_WITHIN_S = 150.0
"""EC2 takes a machine back two minutes after its notice (its user guide); half a minute for clocks and its own word."""


def leave_to_its_cloud(
    story: PlacementStory, machine_end: Callable[[float], MachineEnd | None], clock: StoppableClock, poll_s: float
) -> None:
    """Wait until a noticed machine is taken back, if it is young enough to cost nothing then.

    Whoever ends it sooner pays for all of its time.

    Args:
        story: its open placement.
        machine_end: what the cloud says of the machine launched since a moment; None: it is still there.
        clock: the flow's, whose stop ends the wait.
        poll_s: pause between two questions.
    """
    offer, now_s = story.asked.offer, clock.now_s()
    until_s = now_s + TAKEN_WITHIN_S
    if not offer.spot or rented_s(story, until_s) > FREE_IF_INTERRUPTED_WITHIN_S.get(offer.cloud, 0.0):
        return
    with suppress(FlowStopped):  # its caller takes it down, and whoever goes on looks for the stop
        while now_s < until_s and machine_end(moment_s(story.asked.asked_at)) is None:
            clock.sleep(min(poll_s, until_s - now_s))
            now_s = clock.now_s()
