"""The node runner: serves one cell and measures its steps, in order.

    python -m tasks.cell --store URL --run RUN_ID --cell CELL_KEY [--leg N]

It reads the cell from the store, takes its lease, starts the engine and measures the steps that have no commit yet.
Each step is committed as it ends, then the attempt is closed. Exit codes are those of `warehouse.ledger.outcomes`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import sys
from contextlib import suppress
from functools import partial

from configs import secrets
from configs.errors import SpecsweepError, leave
from configs.secrets import guard_streams
from tasks.context import file_of
from tasks.engine.machine import cell_workdir
from tasks.engine.server import EngineFailed
from tasks.notice import heed, keep_alive
from tasks.outbox import outbox_folder, send_left
from tasks.runner import INTERVAL_S, HeartbeatSender, Runner, todo
from warehouse.ledger.claims import Claims
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import HEARTBEAT_DEADLINE_S, Leases
from warehouse.ledger.outcomes import Ended, ended_with
from warehouse.ledger.owner import owner_name
from warehouse.ledger.store import open_store

LEAVING_S = 2.0  # a runner may hear this much later than its engine that all processes are asked to leave
PARENT_POLL_S = 1.0  # pause between two checks that the parent process is still alive


async def run(args: argparse.Namespace) -> Ended:
    """Make one attempt with the arguments of `main`, from its lease to its row. Raises SpecsweepError if it fails."""
    ledger = Ledger(open_store(args.store, is_known=True), args.run)
    send_left(ledger.store, outbox_folder(cell_workdir(args.run, args.cell), ledger.store))
    planned = ledger.planned_cell(args.cell)
    starts = todo(ledger, planned, args.leg)
    if not starts:
        print("everything is measured", flush=True)
        return Ended.DONE
    for measurement in (each for start in starts for each in start.measurements):
        file_of(measurement.spec)  # a missing step file shows before an engine starts
    leases = Leases(ledger, args.cell, args.deadline_s)
    lease = leases.acquire(owner_name())
    heartbeat = HeartbeatSender(leases, lease, args.heartbeat_s)
    runner = Runner(ledger, planned, leases, lease, heartbeat)
    work = asyncio.create_task(runner.measure_all(starts))
    asked = asyncio.Event()

    def give_up() -> None:
        runner.outbox.drop()
        work.cancel()

    def stop() -> None:
        asked.set()
        runner.outbox.hurry()  # who asks a node to leave gives it seconds
        if not work.cancelling():  # a second signal must not cut the flush short
            work.cancel()

    def leave_early(notice: str) -> None:
        runner.notice = notice
        stop()

    beating = asyncio.create_task(heartbeat.run(give_up, stop))
    others = [keep_alive(Claims(ledger, args.cell), heartbeat.line)]
    if args.metadata:
        others.append(heed(args.metadata, args.heartbeat_s, leave_early, partial(print, flush=True)))
    if args.with_parent:
        others.append(_end_with_parent(work))
    beside = [beating, *map(asyncio.create_task, others)]
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        return await _ending(runner, work, beating, asked)
    finally:
        for task in beside:
            task.cancel()


async def _end_with_parent(work: asyncio.Task[None]) -> None:
    """Cancel the work when the parent process is gone: a cluster on this machine does not outlive its flow."""
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(PARENT_POLL_S)
    work.cancel()


async def _ending(runner: Runner, work: asyncio.Task[None], beating: asyncio.Task[None], asked: asyncio.Event) -> Ended:
    try:
        done, _ = await asyncio.wait({work, beating}, return_when=asyncio.FIRST_COMPLETED)
        if beating in done and not work.cancelling():
            work.cancel()
            beating.result()
        await work
    except asyncio.CancelledError:
        return _stopped(runner)
    except SpecsweepError as error:
        if runner.notice:
            return _stopped(runner)  # whatever fails on a machine that goes
        if isinstance(error, EngineFailed):
            with suppress(TimeoutError):
                await asyncio.wait_for(asked.wait(), LEAVING_S)
                return _stopped(runner)  # its engine was asked to stop, too, and left first
        runner.close(ended_with(error.exit_code), str(error))
        raise
    runner.close(Ended.DONE, "")
    return Ended.DONE


def _stopped(runner: Runner) -> Ended:
    how, why = (Ended.NOTICE, runner.notice) if runner.notice else (Ended.STOPPED, "asked to stop")
    runner.close(how, why)
    print(f"{why}; finished items are kept", file=sys.stderr, flush=True)
    return how


def main() -> int:
    """Run one attempt; returns its exit code, one of `warehouse.ledger.outcomes`."""
    parser = argparse.ArgumentParser(prog="python -m tasks.cell", description=(__doc__ or "").partition("\n")[0])
    for name, meaning in (("store", "folder or s3://bucket/prefix"), ("run", "run id"), ("cell", "key, 16 hex digits")):
        parser.add_argument(f"--{name}", required=True, help=meaning)
    parser.add_argument("--leg", type=int, help="mirrored design: 1 forwards, 2 the middle, 3 back; without it: all")
    parser.add_argument("--heartbeat-s", type=float, default=INTERVAL_S, help="from one heartbeat to the next")
    parser.add_argument("--deadline-s", type=float, default=HEARTBEAT_DEADLINE_S, help="silence that frees a cell")
    parser.add_argument("--secrets-fd", type=int, help="descriptor with keys and tokens, as one JSON object")
    parser.add_argument("--with-parent", action="store_true", help="stop when the starting process is gone")
    parser.add_argument(
        "--metadata", metavar="URL", help="the machine's metadata service, asked for its cloud's notice"
    )
    args = parser.parse_args()
    secrets.receive(args.secrets_fd)
    guard_streams()
    # each request in flight is an open file, and a schedule that an engine doesn't follow has no most of them
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        return asyncio.run(run(args)).exit_code
    except SpecsweepError as error:
        return leave("", error)  # the line stands alone: it is the last one of the node's log


if __name__ == "__main__":
    sys.exit(main())
