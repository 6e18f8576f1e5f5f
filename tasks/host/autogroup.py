"""An engine on its client's processors runs at a lower priority: the nice value of its kernel group of sessions.

Linux groups tasks by session where `sched_autogroup_enabled` is 1. An engine that keeps every processor busy left the
runner's session without a turn for half a second. Streams came in one burst, and rates of four in flight differed by 35
%. With the engine's group at nice 15 all streams were smooth (largest gap 7 to 10 ms) and no rate fell (two cores,
kernel 6.18, 2026-11). A process's own nice value counts inside its group only.

The price: the engine yields to third parties, too. With others' tests on both cores AR ran at 67 to 289 tok/s, marked
`unsteady`, while the client's timer was late by 1 to 12 ms.

Source: man 7 sched, "The autogroup feature"; kernel/sched/autogroup.c.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

NICE = 15
"""Of the engine's group. Not 19: somebody else's busy session would leave it next to nothing."""

TRIES = 8
"""How often a group that is busy is asked again: an unprivileged user may change one in .1 s, of the whole machine."""

PAUSE_S = 0.15
"""Between two tries."""


def shares_processors(on_cpu: bool) -> bool:
    """Whether an engine's work is done by the processors that its client needs: there is no card, or it uses none."""
    return on_cpu or shutil.which("nvidia-smi") is None


async def give_way(pid: int) -> int | None:
    """Let a new session's group give way, and say so in the log.

    An engine that can't is measured all the same: `client_starved` says where that shows.

    Returns:
        The group's nice value; None where the kernel groups no sessions, or refuses.
    """
    for _ in range(TRIES):
        try:
            nice = _set_nice(pid)
        except BlockingIOError:
            await asyncio.sleep(PAUSE_S)
            continue
        except OSError as error:
            print(f"the engine shares its processors with the client, and does not give way: {error}", flush=True)
            return None
        said = "is in no group of its own" if nice is None else f"gives way to it at nice {nice}"
        print(f"the engine shares its processors with the client: its session {said}", flush=True)
        return nice
    print(f"the engine shares its processors with the client, and does not give way: busy {TRIES} times", flush=True)
    return None


def _set_nice(pid: int) -> int | None:
    """The nice value of a process's group after it was set; None: its group is made by other means than sessions."""
    file = Path(f"/proc/{pid}/autogroup")
    with file.open("r+", encoding="ascii") as group:  # never made, where the kernel has none
        group.write(str(NICE))
    said = file.read_text(encoding="ascii").split()  # "/autogroup-4389 nice 15"
    return int(said[-1]) if said else None
