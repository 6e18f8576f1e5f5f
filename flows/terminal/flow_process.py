"""The process in which `sweep run` executes its flow, and what it starts: Prefect's ephemeral server, runners, engines.

A flow that is killed leaves that server behind (200 MB). So all of them are marked, the mark is written down first, and
the next start ends what has no flow any more. Flows beside this one, of the same state folder, are left alone.
"""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

from configs.secrets import guard_streams
from flows.terminal.prefect_session import lay_database, our_environment, started
from tasks.host import process_group

WHY = "the flow failed: "  # begins the line of its log that says why; Prefect's own lines say the same in other words
MODULE = "flows.terminal.flow_process"  # what the flow's process runs: `python -m MODULE NAME STORE RUN_ID`


class FlowProcess:
    """A flow that has been started, with everything of its group."""

    def __init__(self, home: Path, arguments: list[str]) -> None:
        """End what killed flows of this Prefect home left, and start one, with its log and record there."""
        home.mkdir(parents=True, exist_ok=True)
        self.log_path = home / "flow.log"
        self.group = process_group.new_group(process_group.SESSION_VARIABLE)
        self._record = home / f"{self.group.mark[:12]}{process_group.RECORD_SUFFIX}"
        with (home / "starting.lock").open("ab") as lock, self.log_path.open("wb") as log:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a record whose flow is about to be started is no orphan's
            end_orphans(home)
            process_group.record(self.group, self._record)
            env = our_environment(home, None) | self.group.env
            try:
                lay_database(home, env)
                self.process = started(["-m", MODULE, *arguments], env, log)
            except BaseException:  # Ctrl-C
                process_group.stop(self.group, terminate=[])
                self._record.unlink(missing_ok=True)
                raise

    def end(self, *, asks_first: bool) -> None:
        """End everything of the group; if asked for, with time to close what they do."""
        asked = process_group.members(self.group, without=process_group.ENGINE_VARIABLE) if asks_first else []
        process_group.stop(self.group, terminate=asked)
        self.process.wait()
        self._record.unlink(missing_ok=True)


def end_orphans(home: Path) -> None:
    """End what flows of this home started that do not live any more."""
    for path in home.glob(f"*{process_group.RECORD_SUFFIX}"):
        group = process_group.recorded(path)
        if group is not None and not any(_is_flow(pid) for pid in process_group.members(group)):
            process_group.stop(group, terminate=process_group.members(group, without=process_group.ENGINE_VARIABLE))
            path.unlink(missing_ok=True)


def _is_flow(pid: int) -> bool:
    try:
        return MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False  # ended while we looked


def main() -> int:
    """Run the flow; returns 0 if every cell is measured or rejected, else 1."""
    from flows.sweep import sweep  # Prefect takes seconds to import, and only the flow's own process needs it

    guard_streams()
    name, store, run_id = sys.argv[1:4]
    state = sweep(name=name, store=store, run_id=run_id, return_state=True)
    if state.is_completed():
        return 0
    print(f"{WHY}{' '.join(str(state.message).split())}", file=sys.stderr)  # Prefect has logged its lines
    return 1


if __name__ == "__main__":
    sys.exit(main())
