"""What a busy machine does to tests: how long they wait, and the reasons that it gives to an engine that is sound."""

from __future__ import annotations

import os
import resource
from pathlib import Path

PATIENCE_S = 1800.0
"""How long a test waits for what a process does. It ends a hang, and judges no speed: a run of 45 s has taken 240."""

KEPT_WAITING = frozenset({"client_starved", "client_limited", "unsteady"})
"""What short windows earn beside a neighbour, of an engine whose streams keep their deadlines whatever happens."""

BUSY_MACHINE = KEPT_WAITING | {"stream_mismatch", "stream_burst"}
"""Of an engine that waits for a processor itself, so that its streams stall."""

CALM_SHARE = 0.02
"""Of all processors, what others may take while a run is called undisturbed. The client's own watch can't tell it: an
engine gives way to its client, so that beside other tests half of the rates were unsteady (cv 17 to 42 %) while no
timer of the client woke more than 7 ms late (2026-11-25)."""


class Neighbours:
    """How much of the processors others took while a child of this process, and all that it waited for, did its work.

    What a child started and did not wait for counts as others': so a machine seems busier than it was, never calmer.
    """

    def __init__(self) -> None:
        self._all, self._own = self._now()

    def share(self) -> float:
        """Their share of all processors' time since then, 0 to 1; 1 where the kernel doesn't tell it."""
        times, own_s = self._now()
        passed = [now - then for now, then in zip(times, self._all, strict=True)]
        idle_s = passed[3] + passed[4]  # idle, and waiting for a disk
        others_s = max(0.0, sum(passed) - idle_s - (own_s - self._own))
        return others_s / sum(passed) if sum(passed) else 1.0

    @staticmethod
    def _now() -> tuple[list[float], float]:
        """Seconds of all processors by kind (proc_stat(5), user to steal), and of this process and its children."""
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        all_s = [int(each) / os.sysconf("SC_CLK_TCK") for each in fields]
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return all_s, sum(each.ru_utime + each.ru_stime for each in own)
