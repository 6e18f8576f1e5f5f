"""The node runner: serves one cell and measures its steps, in order.

    python -m tasks.cell --store URL --run RUN_ID --cell CELL_KEY

Reads the cell and its steps from the store, takes the cell's lease, starts the engine, measures the steps that have no
commit yet, commits each as soon as it ends, and closes the attempt. Exit codes are those of `warehouse.outcomes`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from contextlib import suppress

from configs.errors import SpecsweepError, leave
from configs.schema import PlannedCell
from configs.step import MeasuredStep
from tasks import provenance
from tasks.client import Client, RequestFailed
from tasks.context import StepContext
from tasks.engine.command import EngineCommand, EngineUnavailable, engine_command
from tasks.engine.machine import cell_workdir, the_only_engine, undisturbed
from tasks.engine.server import Engine, EngineFailed, free_port
from tasks.guards.finding import Judgement
from tasks.heartbeat import INTERVAL_S, HeartbeatSender
from tasks.known_steps import file_of
from warehouse.lease import HEARTBEAT_DEADLINE_S, Attempt, Lease, Leases, kept_s, owner_name
from warehouse.ledger import Ledger
from warehouse.outcomes import Ended, ended_with
from warehouse.store import StoreError, open_store
from warehouse.tables import PROVENANCE, VERDICTS
from warehouse.verdicts import worst

LOG_TAIL_LINES = 30
"""Lines of the engine's log kept in the attempt's row."""

LEAVING_S = 2.0
"""When all processes of a node are asked to leave, the runner may hear of it this much later than its engine."""

PARENT_POLL_S = 1.0
"""Pause between two checks that the parent process is still alive."""


class CellRejected(SpecsweepError):
    """The smoke step rejected the cell; nothing more of it is measured."""

    exit_code = Ended.REJECTED.exit_code


def todo(ledger: Ledger, planned: PlannedCell) -> list[MeasuredStep]:
    """Steps that are left to measure: they have no commit yet.

    Raises:
        CellRejected: an earlier attempt committed the smoke step as rejected.
    """
    left = []
    for spec in planned.measured_steps:
        commit = ledger.read_commit(planned.cell.cell_key, spec.step)
        if commit is not None and spec.is_gate and commit.verdict == "rejected":
            raise CellRejected(f"{spec.step} rejected this cell: {', '.join(commit.reasons)}")
        if commit is None:
            left.append(spec)
    return left


class Runner:
    """One attempt at one cell."""

    def __init__(
        self, ledger: Ledger, planned: PlannedCell, leases: Leases, lease: Lease, heartbeat: HeartbeatSender
    ) -> None:
        self.ledger, self.planned, self.leases, self.lease, self.heartbeat = ledger, planned, leases, lease, heartbeat
        self.config_hash = ledger.plan().config_hash
        self.at_risk_s = 0.0
        self.workdir = cell_workdir(ledger.run_id, planned.cell.cell_key)
        self.workdir.mkdir(parents=True, exist_ok=True)

    async def measure_all(self, steps: list[MeasuredStep]) -> None:
        """Serve the cell and measure the steps. However this ends, the engine is gone afterwards."""
        cell = self.planned.cell
        self.heartbeat.phase("waiting")
        async with the_only_engine(self.heartbeat.line):
            port = free_port()
            command = engine_command(cell, port, self.workdir)
            engine = Engine(command, port, self.workdir, cell.engine.start_timeout_s)
            try:
                self.heartbeat.phase("engine")
                healthy_s = await engine.start(self.heartbeat.line)
                print(f"engine healthy after {healthy_s:.1f} s: {engine.base_url}", flush=True)
                for spec in steps:
                    await self._measure(spec, engine, command)
            finally:
                self.at_risk_s = self.heartbeat.at_risk_s()
                self.heartbeat.phase("stopping")
                engine.stop()

    async def _measure(self, spec: MeasuredStep, engine: Engine, command: EngineCommand) -> None:
        self.heartbeat.phase("measuring", spec.step)
        cell, started = self.planned.cell, time.monotonic()
        async with Client(engine.base_url, cell.model, cell.technique) as client:
            attempt = self.lease.epoch
            ctx = StepContext(
                self.planned, client, self.ledger, spec.step, attempt, self.heartbeat.tell, self.heartbeat.kept
            )
            try:
                async with undisturbed(spec, self.heartbeat.line):
                    judgements = await file_of(spec).measure(ctx, spec)
                await ctx.write(PROVENANCE, [await provenance.gather(self.planned, command, client, self.config_hash)])
            except RequestFailed as error:
                raise await engine.cause_of_failure(error) from error
            await ctx.write(VERDICTS, [_verdict_row(judgement) for judgement in judgements])
        verdict = worst(judgement.verdict for judgement in judgements)
        reasons = sorted({finding.reason.value for judgement in judgements for finding in judgement.findings})
        commit = self.ledger.new_commit(
            spec.step, attempt, self.lease.owner, verdict, reasons, time.monotonic() - started, ctx.parts
        )
        result = self.ledger.commit(cell.cell_key, commit)
        self.heartbeat.kept()
        print(f"{spec.step}: {result} ({verdict}{': ' + ', '.join(reasons) if reasons else ''})", flush=True)
        if spec.is_gate and verdict == "rejected":
            raise CellRejected(f"{spec.step} rejected this cell: {', '.join(reasons)}")

    def close(self, how: Ended, reason: str) -> None:
        """Write the attempt's row. If it has one already, that one stands."""
        outcome = how.row.outcome
        assert outcome is not None, "a granted lease has an attempt"
        spent, lost_s = self.heartbeat.spent_s(), 0.0 if how is Ended.DONE else self.at_risk_s
        smoke_s, measure_s = kept_s(spent["smoke"], spent["measure"], lost_s)
        price = provenance.price_usd_h(self.planned)
        log = self.workdir / "engine.log"
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:] if log.exists() else []
        attempt = Attempt(
            attempt=self.lease.epoch, outcome=outcome, reason=reason, owner=self.lease.owner,
            started_at=self.lease.granted_at, ended_at=self.ledger.clock.now_iso(), load_s=spent["load"],
            smoke_s=smoke_s, measure_s=measure_s, lost_s=lost_s, exit_code=how.exit_code, price_usd_h=price,
            log_tail="" if how is Ended.DONE else "\n".join(tail),
        )  # fmt: skip
        self.leases.close(attempt)


async def run(
    store_url: str, run_id: str, cell_key: str, heartbeat_s: float, deadline_s: float, *, with_parent: bool
) -> Ended:
    """Make one attempt, from taking the lease to closing the attempt.

    Raises:
        SpecsweepError: the attempt did not end well; the error's `exit_code` is one of `warehouse.outcomes`.
    """
    ledger = Ledger(open_store(store_url), run_id)
    planned = ledger.planned_cell(cell_key)
    steps = todo(ledger, planned)
    if not steps:
        print("everything is measured", flush=True)
        return Ended.DONE
    for spec in steps:
        file_of(spec)  # a missing step file shows before an engine starts
    leases = Leases(ledger, cell_key, deadline_s)
    lease = leases.acquire(owner_name())
    heartbeat = HeartbeatSender(leases, lease, heartbeat_s)
    runner = Runner(ledger, planned, leases, lease, heartbeat)
    work = asyncio.create_task(runner.measure_all(steps))
    lost, asked = asyncio.Event(), asyncio.Event()

    def give_up() -> None:
        lost.set()
        work.cancel()

    def stop() -> None:
        asked.set()
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
    except (CellRejected, EngineFailed, EngineUnavailable, StoreError) as error:
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


def _verdict_row(judgement: Judgement) -> dict[str, object]:
    return {
        "condition": judgement.condition,
        "mode": judgement.mode,
        "verdict": judgement.verdict,
        "reasons": [finding.reason.value for finding in judgement.findings],
        "details": [finding.sentence for finding in judgement.findings],
    }


def _explained(how: Ended, text: str) -> Ended:
    print(text, file=sys.stderr, flush=True)
    return how


def main() -> int:
    """Run one attempt; returns its exit code, one of `warehouse.outcomes`."""
    parser = argparse.ArgumentParser(prog="python -m tasks.cell", description=(__doc__ or "").partition("\n")[0])
    for name, meaning in (("store", "folder or s3://bucket/prefix"), ("run", "run id"), ("cell", "key, 16 hex digits")):
        parser.add_argument(f"--{name}", required=True, help=meaning)
    parser.add_argument("--heartbeat-s", type=float, default=INTERVAL_S, help="pause between heartbeats")
    parser.add_argument("--deadline-s", type=float, default=HEARTBEAT_DEADLINE_S, help="silence that frees a cell")
    parser.add_argument("--with-parent", action="store_true", help="stop when the starting process is gone")
    args = parser.parse_args()
    work = run(args.store, args.run, args.cell, args.heartbeat_s, args.deadline_s, with_parent=args.with_parent)
    try:
        return asyncio.run(work).exit_code
    except SpecsweepError as error:
        return leave("", error)  # the line stands alone: it is the last one of the node's log


if __name__ == "__main__":
    sys.exit(main())
