"""When a machine ended that nobody saw end: at the last that was heard of it or of its flow, plus its idle time.

Runner and flow are what keeps a machine up: without a runner it removes itself after its idle time (the task's
`autostop`), without a flow after the time that its own timer gives it (`cloud.unattended_h`), and a flow that lives
closes its records. So a placement that nobody closed cost no more than until then, however late somebody looks; billing
it until then keeps a weekend of nobody's from eating a budget.
"""

from __future__ import annotations

from collections.abc import Iterable

from warehouse.ledger.claims import Claims, Span
from warehouse.ledger.clock import MINUTE_S, moment_s
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Leases
from warehouse.ledger.placement import PlacementStory

IDLE_S = 10.0 * MINUTE_S
"""For placements that don't say how long their machine idles before it removes itself: the tasks of `sky/` say this."""


def estimated_end_s(ledger: Ledger, story: PlacementStory, next_asked_at: str | None = None) -> float:
    """When the machine of a placement without an end was gone at the latest, seconds since 1970.

    The future while somebody works with it.

    Args:
        ledger: the run.
        story: the placement.
        next_asked_at: when the cell's next machine was asked for, which has the same name.
    """
    cell_key = story.asked.cell_key
    beat = Leases(ledger, cell_key).heartbeat()
    runner = [] if beat is None else [beat.at]
    return end_after(story, runner, Claims(ledger, cell_key).spans(), next_asked_at)


def end_after(
    story: PlacementStory, runner: Iterable[str], flows: Iterable[Span], next_asked_at: str | None = None
) -> float:
    """The same, from what was heard of the cell's runners (ISO 8601) and flows."""
    asked = story.asked
    asked_s = moment_s(asked.asked_at)
    idle_s = IDLE_S if asked.idle_s is None else asked.idle_s
    latest_s = float("inf") if next_asked_at is None else moment_s(next_asked_at)
    words = [asked_s, *(moment_s(each) for each in runner), *([] if story.up is None else [moment_s(story.up.at)])]
    heard = [each for each in words if asked_s <= each <= latest_s]
    heard_s, has_autostop = max(heard, default=asked_s), len(heard) > 1
    attended_s = asked_s
    for flow in flows:  # one that came after the machine's idle time found nothing to keep up
        began_s = asked_s if flow.began_at is None else moment_s(flow.began_at)
        if began_s <= heard_s + idle_s:
            attended_s = max(attended_s, moment_s(flow.heard_at))
            heard_s = max(heard_s, attended_s)
    alone_s = float("inf") if asked.unattended_s is None else asked.unattended_s
    # autostop is set once a machine is up; what its flow left before that has only the timer of its first boot
    idled_s = heard_s + idle_s if has_autostop or asked.unattended_s is None else float("inf")
    return min(idled_s, attended_s + alone_s, latest_s)
