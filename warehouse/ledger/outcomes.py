"""How things end: one row per kind of ending, and all that follows from it.

What runner, cluster, flow and reaper write down, forgive or avoid is read from `ENDINGS`; docs/operations.md shows the
same table. Needs nothing but the standard library, because bare nodes import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple

AttemptOutcome = Literal["completed", "failed", "stopped", "notice", "lost", "superseded"]
"""What the row of an attempt says. `notice`: its cloud announced its end, and its runner left in time. `lost`: its
runner never got to say anything."""


class Fault(StrEnum):
    """Whose fault an ending is."""

    NOBODY = "nobody's"
    CELL = "the cell's"
    CLOUD = "the cloud's"
    UNKNOWN = "unknown"


class Ended(StrEnum):
    """Every kind of ending. What follows from each is its `row`."""

    DONE = "done"
    REJECTED = "rejected"
    FAILED = "failed"
    KILLED = "killed"
    STOPPED = "stopped"
    REAPED = "reaped"
    LEASE_HELD = "lease_held"
    SUPERSEDED = "superseded"
    NO_CAPACITY = "no_capacity"
    REFUSED = "refused"
    PREEMPTED = "preempted"
    NOTICE = "notice"
    SETUP_FAILED = "setup_failed"
    SILENT = "silent"
    AUTODOWNED = "autodowned"
    JOB_FAILED = "job_failed"
    LAUNCH_FAILED = "launch_failed"

    @property
    def row(self) -> EndingRow:
        """Its row of `ENDINGS`."""
        return ENDINGS[self]

    @property
    def exit_code(self) -> int:
        """The exit code of a node runner that ends this way. ValueError: none does."""
        code = self.row.exit_code
        if code is None:
            raise ValueError(f"a node runner has no exit code for {self.value!r}")
        return code

    @property
    def was_rented(self) -> bool:
        """Whether there was a machine, which costs money."""
        return self not in (Ended.NO_CAPACITY, Ended.REFUSED)

    @property
    def loss(self) -> Ended | None:
        """The recorded word that is held against the place; None: the place is not to blame."""
        return self.row.recorded if self.row.avoided_s else None


class EndingRow(NamedTuple):
    """One kind of ending.

    `recorded`: the word in the placement's record; kinds that share one are told apart by the attempt's row. `outcome`:
    the word in that row; None: nobody writes one. `exit_code`: the node runner's; None: it has none of its own.
    `is_failed_try`: counts towards `max_attempts`. `is_lost_machine`: counts towards `cloud.on_demand_after`.
    `avoided_s`: how long the place is avoided after its first failure; 0: it is not to blame.
    """

    ended: Ended
    recorded: Ended
    outcome: AttemptOutcome | None
    exit_code: int | None
    fault: Fault
    is_failed_try: bool
    is_lost_machine: bool
    avoided_s: float
    meaning: str


ENDINGS: Mapping[Ended, EndingRow] = MappingProxyType({row.ended: row for row in (
    #         ended                recorded             outcome       exit  fault          try    lost   avoided
    EndingRow(Ended.DONE,          Ended.DONE,          "completed",  0,    Fault.NOBODY,  False, False,    0.0,
              "its runner measured all that was left"),
    EndingRow(Ended.REJECTED,      Ended.DONE,          "failed",     3,    Fault.CELL,    False, False,    0.0,
              "its smoke step found it insane, or its weights aren't its label's: nothing more is measured"),
    EndingRow(Ended.FAILED,        Ended.JOB_FAILED,    "failed",     1,    Fault.UNKNOWN, True,  True,   300.0,
              "its runner said that it failed (engine or store) or was done, and it was not; or it got nowhere"),
    EndingRow(Ended.KILLED,        Ended.JOB_FAILED,    "lost",       None, Fault.UNKNOWN, True,  True,   300.0,
              "its runner ended with a code that is not its own, e.g. for want of memory"),
    EndingRow(Ended.STOPPED,       Ended.STOPPED,       "stopped",    143,  Fault.NOBODY,  True,  False,    0.0,
              "it was asked to stop: by Ctrl-C, or by the budget; finished items are kept"),
    EndingRow(Ended.REAPED,        Ended.STOPPED,       "lost",       None, Fault.NOBODY,  False, False,    0.0,
              "nobody worked on it any more, and the reaper took it down"),
    EndingRow(Ended.LEASE_HELD,    Ended.STOPPED,       None,         75,   Fault.NOBODY,  True,  False,    0.0,
              "another runner has the cell"),
    EndingRow(Ended.SUPERSEDED,    Ended.STOPPED,       "superseded", 76,   Fault.NOBODY,  True,  False,    0.0,
              "another runner took the cell over"),
    EndingRow(Ended.NO_CAPACITY,   Ended.NO_CAPACITY,   None,         None, Fault.CLOUD,   False, False,  600.0,
              "nothing was rented"),
    EndingRow(Ended.REFUSED,       Ended.REFUSED,       None,         None, Fault.CLOUD,   False, False, 14400.0,
              "this account can't rent it (quota of 0, a permission, an image): not asked again by this flow"),
    # a reclaim says most about the coming hour
    EndingRow(Ended.PREEMPTED,     Ended.PREEMPTED,     "lost",       None, Fault.CLOUD,   False, True,  1800.0,
              "its cloud took it back"),
    EndingRow(Ended.NOTICE,        Ended.NOTICE,        "notice",     77,   Fault.CLOUD,   False, True,  1800.0,
              "its cloud said that it takes it back; its runner stored what it had and left at once"),
    EndingRow(Ended.SETUP_FAILED,  Ended.SETUP_FAILED,  "lost",       None, Fault.UNKNOWN, True,  True,   300.0,
              "the task's setup failed, before there was a runner"),
    EndingRow(Ended.SILENT,        Ended.SILENT,        "lost",       None, Fault.UNKNOWN, True,  True,   600.0,
              "no heartbeat within the deadline, and nobody else knows of its end"),
    EndingRow(Ended.AUTODOWNED,    Ended.AUTODOWNED,    "lost",       None, Fault.NOBODY,  False, True,   300.0,
              "its own timer took it down, or it was gone when the reaper looked"),
    EndingRow(Ended.JOB_FAILED,    Ended.JOB_FAILED,    "lost",       None, Fault.UNKNOWN, True,  True,   300.0,
              "SkyPilot says that the job failed, and nobody else says why"),
    EndingRow(Ended.LAUNCH_FAILED, Ended.LAUNCH_FAILED, "lost",       None, Fault.UNKNOWN, True,  True,   300.0,
              "it could not be launched, and nobody knows why"),
)})  # fmt: skip
"""Exit codes are promised: 75 is sysexits' EX_TEMPFAIL, 143 is 128 + SIGTERM, as a shell would say it."""

_BY_EXIT_CODE = {row.exit_code: row.ended for row in ENDINGS.values() if row.exit_code is not None}


def ended_with(exit_code: int) -> Ended:
    """How a node runner with this exit code ended; `KILLED` if the code isn't one of its own."""
    return _BY_EXIT_CODE.get(exit_code, Ended.KILLED)
