"""The node runner: serves one cell and measures its steps, in order.

    python -m tasks.cell --store URL --run RUN_ID --cell CELL_KEY [--leg N]

Reads the cell and its steps from the store, takes the cell's lease, starts the engine, measures the steps that have no
commit yet, commits each as soon as it ends, and closes the attempt. Exit codes are those of `warehouse.outcomes`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from contextlib import suppress

from configs.errors import SpecsweepError, leave
from tasks.engine.server import EngineFailed
from tasks.heartbeat import INTERVAL_S, HeartbeatSender
from tasks.known_steps import file_of
from tasks.runner import Runner, todo
from warehouse.lease import HEARTBEAT_DEADLINE_S, Leases
from warehouse.ledger import Ledger
from warehouse.outcomes import Ended, ended_with
from warehouse.owner import owner_name
from warehouse.store import open_store

LEAVING_S = 2.0
"""When all processes of a node are asked to leave, the runner may hear of it this much later than its engine."""

PARENT_POLL_S = 1.0
"""Pause between two checks that the parent process is still alive."""


async def run(
    store_url: str,
    run_id: str,
    cell_key: str,
    heartbeat_s: float,
    deadline_s: float,
    *,
    leg: int | None,
    with_parent: bool,
) -> Ended:
    """Make one attempt, from taking the lease to closing the attempt.

    Raises:
        SpecsweepError: the attempt did not end well; the error's `exit_code` is one of `warehouse.outcomes`.
    """
    ledger = Ledger(open_store(store_url, is_known=True), run_id)
    planned = ledger.planned_cell(cell_key)
    starts = todo(ledger, planned, leg)
    if not starts:
        print("everything is measured", flush=True)
        return Ended.DONE
    for measurement in (each for start in starts for each in start.measurements):
        file_of(measurement.spec)  # a missing step file shows before an engine starts
    leases = Leases(ledger, cell_key, deadline_s)
    lease = leases.acquire(owner_name())
    heartbeat = HeartbeatSender(leases, lease, heartbeat_s)
    runner = Runner(ledger, planned, leases, lease, heartbeat)
    work = asyncio.create_task(runner.measure_all(starts))
    lost, asked = asyncio.Event(), asyncio.Event()

    def give_up() -> None:
        lost.set()
        work.cancel()

    def stop() -> None:
        asked.set()
        ledger.store.hurry()  # who asks a node to leave gives it seconds
        if not work.cancelling():  # a second signal must not cut the flush short
            work.cancel()

    beating = asyncio.create_task(heartbeat.run(give_up, stop))
    watching = asyncio.create_task(_end_with_parent(work)) if with_parent else None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        return await _ending(runner, work, beating, lost, asked)
    finally:
        beating.cancel()
        if watching is not None:
            watching.cancel()


async def _end_with_parent(work: asyncio.Task[None]) -> None:
    """Cancel the work when the parent process is gone: a cluster on this machine does not outlive its flow."""
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(PARENT_POLL_S)
    work.cancel()


async def _ending(
    runner: Runner, work: asyncio.Task[None], beating: asyncio.Task[None], lost: asyncio.Event, asked: asyncio.Event
) -> Ended:
    try:
        done, _ = await asyncio.wait({work, beating}, return_when=asyncio.FIRST_COMPLETED)
        if beating in done and not lost.is_set() and not work.cancelling():
            work.cancel()  # a store that can't take heartbeats can't take results either
            beating.result()
        await work
    except asyncio.CancelledError:
        if lost.is_set():
            runner.close(Ended.SUPERSEDED, "another runner took the cell over")
            return _explained(Ended.SUPERSEDED, "another runner took the cell over")
        return _stopped(runner)
    except SpecsweepError as error:
        if isinstance(error, EngineFailed):
            with suppress(TimeoutError):
                await asyncio.wait_for(asked.wait(), LEAVING_S)
                return _stopped(runner)  # its engine was asked to stop, too, and left first
        runner.close(ended_with(error.exit_code), str(error))
        raise
    runner.close(Ended.DONE, "")
    return Ended.DONE


def _stopped(runner: Runner) -> Ended:
    runner.close(Ended.STOPPED, "asked to stop")
    return _explained(Ended.STOPPED, "asked to stop; finished items are kept")


def _explained(how: Ended, text: str) -> Ended:
    print(text, file=sys.stderr, flush=True)
    return how


def main() -> int:
    """Run one attempt; returns its exit code, one of `warehouse.outcomes`."""
    parser = argparse.ArgumentParser(prog="python -m tasks.cell", description=(__doc__ or "").partition("\n")[0])
    for name, meaning in (("store", "folder or s3://bucket/prefix"), ("run", "run id"), ("cell", "key, 16 hex digits")):
        parser.add_argument(f"--{name}", required=True, help=meaning)
    parser.add_argument("--leg", type=int, help="of a mirrored design: 1 forwards, 2 back; without it: both")
    parser.add_argument("--heartbeat-s", type=float, default=INTERVAL_S, help="pause between heartbeats")
    parser.add_argument("--deadline-s", type=float, default=HEARTBEAT_DEADLINE_S, help="silence that frees a cell")
    parser.add_argument("--with-parent", action="store_true", help="stop when the starting process is gone")
    args = parser.parse_args()
    work = run(
        args.store,
        args.run,
        args.cell,
        args.heartbeat_s,
        args.deadline_s,
        leg=args.leg,
        with_parent=args.with_parent,
    )
    try:
        return asyncio.run(work).exit_code
    except SpecsweepError as error:
        return leave("", error)  # the line stands alone: it is the last one of the node's log


if __name__ == "__main__":
    sys.exit(main())
