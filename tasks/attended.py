"""Keeps a rented machine alive while its flow lives: without renewal its own timer ends it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from tasks.host.time_to_live import renew
from warehouse.ledger.claims import FLOW_DEADLINE_S, Claims

TIME_TO_LIVE_VARIABLE = "SPECSWEEP_TIME_TO_LIVE_S"
"""Tells the node for how long its machine lives without its flow, in seconds; unset: the machine has no timer."""

LOOKS = 6
"""Looks at the flow's heartbeat in the time that a machine lives without one: five requests each, 30 an hour."""

ANXIOUS_S = 60.0
"""Pause after a look that heard nothing new of the flow: when the store is back, so may be the flow."""


async def keep_alive(claims: Claims, tell: Callable[[str], None], renew: Callable[[float], bool] = renew) -> None:
    """Renew the machine's time as far as the flow's last heartbeat allows, again and again; returns if it has no timer.

    The seconds count from that heartbeat, so a machine never outlives its flow by more than its time to live. A store
    that can't be asked renews nothing.
    """
    longest_s, said = float(os.environ.get(TIME_TO_LIVE_VARIABLE) or 0.0), ""
    while longest_s:
        age_s: float | None = None
        try:
            age_s = await asyncio.to_thread(claims.age_s)
        except Exception as error:  # whatever it is, the next look may see that the flow lives
            trouble = f"whether the flow lives can't be seen: {type(error).__name__}: {error}"
            if trouble != said:
                tell(trouble)
            said = trouble
        left_s = 0.0 if age_s is None else longest_s - age_s
        if left_s > 0 and not renew(left_s):
            tell(f"this machine has no timer of its own ({TIME_TO_LIVE_VARIABLE} says that it should)")
            return
        is_heard = age_s is not None and age_s < FLOW_DEADLINE_S
        await asyncio.sleep(longest_s / LOOKS if is_heard else min(ANXIOUS_S, longest_s / LOOKS))
