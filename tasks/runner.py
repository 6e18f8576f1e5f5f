"""One attempt at one cell: the steps that no commit names, measured and committed in order, and the attempt's row."""

from __future__ import annotations

import time

from configs.errors import SpecsweepError
from configs.evals.spec import EvalStep
from configs.schema import PlannedCell
from configs.step import MeasuredStep
from tasks import provenance
from tasks.client import Client, RequestFailed
from tasks.context import StepContext
from tasks.engine.command import EngineCommand, engine_command
from tasks.engine.machine import cell_workdir, the_only_engine, undisturbed
from tasks.engine.server import Engine, free_port
from tasks.frameworks.process import Frameworks
from tasks.guards.finding import Judgement
from tasks.heartbeat import HeartbeatSender
from tasks.known_steps import file_of, make_ready
from warehouse.lease import Attempt, Lease, Leases, kept_s
from warehouse.ledger import Ledger
from warehouse.outcomes import Ended
from warehouse.tables import PROVENANCE, VERDICTS
from warehouse.verdicts import worst

LOG_TAIL_LINES = 30
"""Lines of the engine's log kept in the attempt's row."""


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
        self.heartbeat.phase("preparing")
        for spec in steps:
            await make_ready(spec, self.heartbeat.line)
        self.heartbeat.phase("waiting")
        async with the_only_engine(self.heartbeat.line), Frameworks(self.workdir) as frameworks:
            port = free_port()
            command = engine_command(cell, port, self.workdir)
            engine = Engine(command, port, self.workdir, cell.engine.start_timeout_s)
            try:
                self.heartbeat.phase("engine")
                for name in sorted({spec.framework for spec in steps if isinstance(spec, EvalStep)}):
                    await frameworks.get(name).warm_up()  # imports for 5 to 40 s, beside the engine's own start
                healthy_s = await engine.start(self.heartbeat.line)
                print(f"engine healthy after {healthy_s:.1f} s: {engine.base_url}", flush=True)
                for spec in steps:
                    await self._measure(spec, engine, command, frameworks)
            finally:
                self.at_risk_s = self.heartbeat.at_risk_s()
                try:
                    self.heartbeat.phase("stopping")  # prints: an error where nobody reads the runner's words any more
                finally:
                    engine.stop()

    async def _measure(
        self, spec: MeasuredStep, engine: Engine, command: EngineCommand, frameworks: Frameworks
    ) -> None:
        self.heartbeat.phase("measuring", spec.step)
        cell, started = self.planned.cell, time.monotonic()
        async with Client(engine.base_url, cell.model, cell.technique) as client:
            attempt = self.lease.epoch
            ctx = StepContext(
                self.planned,
                client,
                self.ledger,
                spec.step,
                attempt,
                self.heartbeat.tell,
                self.heartbeat.kept,
                frameworks,
            )
            try:
                async with undisturbed(spec, self.heartbeat.line):
                    judgements = await file_of(spec).measure(ctx, spec)
                gathered = await provenance.gather(self.planned, command, client, self.config_hash)
                await ctx.write(PROVENANCE, [gathered | ctx.facts])
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


def _verdict_row(judgement: Judgement) -> dict[str, object]:
    return {
        "condition": judgement.condition,
        "mode": judgement.mode,
        "verdict": judgement.verdict,
        "reasons": [finding.reason.value for finding in judgement.findings],
        "details": [finding.sentence for finding in judgement.findings],
    }
