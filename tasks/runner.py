"""One attempt at one cell: the steps that no commit names, measured and committed in order, and the attempt's row.

Meanwhile heartbeats show that the runner lives, and notice when another runner has taken the cell.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from configs.cell import Cell
from configs.errors import SpecsweepError
from configs.schema import PlannedCell
from configs.steps.eval import EvalStep
from configs.visits import Measurement, Start, unmeasured, without
from tasks import meters
from tasks.client import Client, RequestFailed
from tasks.context import Progress, StepContext, file_of, make_ready
from tasks.engine.command import engine_command, full_environment
from tasks.engine.loaded import loaded
from tasks.engine.machine import cell_workdir, the_only_engine, undisturbed
from tasks.engine.server import Engine, EngineFailed, free_port
from tasks.frameworks.process import Frameworks
from tasks.guards.label import unlike_its_label
from tasks.guards.steadiness import other_gpu
from tasks.outbox import Outbox, outbox_folder
from tasks.place import provenance
from warehouse.ledger.commits import Ledger, Part, said
from warehouse.ledger.lease import Attempt, Heartbeat, Lease, Leases, kept_s
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.store import StoreAway
from warehouse.ledger.tables import VERDICTS, Row
from warehouse.ledger.verdicts import Finding, Judgement, Reason, judge, worst

INTERVAL_S = 5.0  # from one heartbeat to the next; a twelfth of the deadline, so a slow store does not lose the cell


class HeartbeatSender:
    """The runner's state as others see it, written every `interval_s` seconds and at every change of phase."""

    def __init__(self, leases: Leases, lease: Lease, interval_s: float = INTERVAL_S) -> None:
        self._leases = leases
        self._lease = lease
        self._interval_s = interval_s
        self._phase = "starting"
        self._step: str | None = None
        self._progress = Progress(0, "")
        self._changed = asyncio.Event()
        self._spent_s = dict.fromkeys(("load", "smoke", "measure"), 0.0)
        self._since = time.monotonic()
        self._kept_at = time.monotonic()
        self._cut_at: float | None = None  # when measuring was cut short; None: it was not

    def phase(self, phase: str, step: str | None = None) -> None:
        """Enter a phase: starting, waiting, engine, measuring, stopping. Also printed, for the node's log."""
        self._spent_s = self.spent_s()
        self._since = time.monotonic()
        self._cut_at = self._since if (self._phase, phase) == ("measuring", "stopping") else None
        if phase == "measuring":
            self._kept_at = self._since
        self._phase, self._step = phase, step
        self._progress = Progress(0, "")
        print(f"[{phase}] {step or ''}".rstrip(), flush=True)
        self._changed.set()

    def spent_s(self) -> dict[str, float]:
        """Seconds spent so far, named as in the bill: `load` (engine start), `smoke`, `measure` (all other steps)."""
        spent, bill = dict(self._spent_s), {"engine": "load", "measuring": "measure"}.get(self._phase)
        if bill is not None:
            bill = "smoke" if (self._phase, self._step) == ("measuring", "smoke") else bill
            spent[bill] += time.monotonic() - self._since
        return spent

    def kept(self, until: float) -> None:
        """Rows were stored: what was measured until then (`time.monotonic`) survives this node."""
        self._kept_at = max(self._kept_at, until)

    def at_risk_s(self) -> float:
        """Seconds of measuring since rows were last stored; of one that was cut short, until then."""
        until = time.monotonic() if self._phase == "measuring" else self._cut_at
        return 0.0 if until is None else max(0.0, until - self._kept_at)

    def tell(self, progress: Progress) -> None:
        """Note progress; it goes out with the next heartbeat."""
        self._progress = progress

    def line(self, text: str) -> None:
        """Note a line for people; percentage and rate stay as they are."""
        self._progress = self._progress._replace(line=text)

    async def run(self, on_lost: Callable[[], None], on_stop: Callable[[], None]) -> None:
        """Send heartbeats until the lease is lost (calls `on_lost`) or a stop is asked for (calls `on_stop`).

        No error ends them. A store that was away tells on its return whether the lease is lost. One that takes no
        heartbeats takes no results either, and that ends the runner.
        """
        told = ""
        while True:
            self._changed.clear()
            began = time.monotonic()
            try:
                if not await asyncio.to_thread(self._leases.still_mine, self._lease):
                    on_lost()
                    return
                if await asyncio.to_thread(self._leases.stop_asked, self._lease) is not None:
                    on_stop()
                    return
                await asyncio.to_thread(self._leases.beat, self._now())
                told = ""
            except StoreAway:
                told = ""
            except Exception as error:
                if told != str(error):
                    told = str(error)
                    print(f"no heartbeat was stored: {told}", flush=True)
            # A lost machine's bill stands at its last heartbeat. So the store's own time is taken off the pause, unless
            # that is so long that the next beat would come at once.
            pause_s = self._interval_s - min(time.monotonic() - began, self._interval_s / 2)
            try:
                await asyncio.wait_for(self._changed.wait(), pause_s)
            except TimeoutError:
                continue

    def _now(self) -> Heartbeat:
        spent = self.spent_s()
        return Heartbeat(
            attempt=self._lease.epoch,
            phase=self._phase,
            step=self._step,
            percent=self._progress.percent,
            last_line=self._progress.line,
            tok_s=self._progress.tok_s,
            load_s=spent["load"],
            smoke_s=spent["smoke"],
            measure_s=spent["measure"],
            at_risk_s=self.at_risk_s(),
            at=self._leases.clock.now_iso(),
        )


LOG_TAIL_LINES = 30  # lines of the engine's log kept in the attempt's row


class CellRejected(SpecsweepError):
    """The smoke step, or its checkpoint's own files, rejected the cell; nothing more of it is measured."""

    exit_code = Ended.REJECTED.exit_code


def todo(ledger: Ledger, planned: PlannedCell, leg: int | None = None) -> list[Start]:
    """Engine starts of a leg, or all, with what has no commit yet. Raises CellRejected: its smoke step was rejected."""
    read = {each: ledger.read_commit(planned.cell.cell_key, each.name) for each in planned.measurements}
    commits = {measurement: commit for measurement, commit in read.items() if commit is not None}
    for measurement, commit in commits.items():
        if measurement.spec.is_gate and commit.verdict == "rejected":
            raise CellRejected(f"{measurement.name} rejected this cell: {', '.join(commit.reasons)}")
    left = unmeasured(planned.measurements, {each.name: commit.is_usable for each, commit in commits.items()})
    done = {each.name for each in planned.measurements} - {each.name for each in left}
    return [start for start in without(planned.starts, done) if leg in (None, start.leg)]


class Runner:
    """One attempt at one cell."""

    def __init__(
        self, ledger: Ledger, planned: PlannedCell, leases: Leases, lease: Lease, heartbeat: HeartbeatSender
    ) -> None:
        self.planned, self.leases, self.lease, self.heartbeat = planned, leases, lease, heartbeat
        self.notice = ""  # the cloud's word that it takes this machine; empty until it comes
        self.workdir = cell_workdir(ledger.run_id, planned.cell.cell_key)
        self.workdir.mkdir(parents=True, exist_ok=True)
        folder, cell_key = outbox_folder(self.workdir, ledger.store), planned.cell.cell_key
        self.outbox = Outbox(ledger.store, folder, ledger, cell_key, partial(leases.still_mine, lease), heartbeat.kept)
        self.ledger = Ledger(self.outbox, ledger.run_id, ledger.clock)
        self.config_hash = ledger.plan().config_hash

    async def measure_all(self, starts: list[Start]) -> None:
        """Serve the cell, or its control, for each start and measure, until the store has all; no engine is left."""
        try:
            await self._measure_all(starts)
        finally:
            await _to_its_end(self.outbox.flush)

    async def _measure_all(self, starts: list[Start]) -> None:
        self.heartbeat.phase("preparing")
        for spec in dict.fromkeys(each.spec for start in starts for each in start.measurements):
            await make_ready(spec, self.heartbeat.line)
        self.heartbeat.phase("waiting")
        async with the_only_engine(self.heartbeat.line), Frameworks(self.workdir) as frameworks:
            failed: EngineFailed | None = None
            for start in starts:
                try:
                    await self._measure_start(start, frameworks)
                except EngineFailed as error:
                    if start.served == self.planned.cell:
                        raise
                    print(f"the control failed, the cell goes on: {error}", flush=True)
                    failed = EngineFailed(f"the control, {start.served.label}: {error}")
            if failed is not None:
                raise failed

    async def _measure_start(self, start: Start, frameworks: Frameworks) -> None:
        port = free_port()
        command = engine_command(start.served, port, self.workdir)
        engine = Engine(command, port, self.workdir, start.served.engine.start_timeout_s)
        try:
            self.heartbeat.phase("engine")
            specs = [each.spec for each in start.measurements]
            for name in sorted({spec.framework for spec in specs if isinstance(spec, EvalStep)}):
                await frameworks.get(name).warm_up()  # imports for 5 to 40 s, beside the engine's own start
            healthy_s = await engine.start(self.heartbeat.line)
            print(f"{start.served.label}: healthy after {healthy_s:.1f} s: {engine.base_url}", flush=True)
            async with Client(engine.base_url, start.served.model, start.served.technique) as client:
                place = await provenance.gather(self.planned, start.served, command, client, self.config_hash, engine)
            has = loaded(await asyncio.to_thread(engine.log_text))
            place |= has.columns()
            if has.quantization is None:
                print("the engine doesn't say in which format it loaded the weights: the row's label stands unchecked")
            unlike, stored = unlike_its_label(start.served, has), place["model_revision"]
            if unlike is None and (
                text := provenance.unlike_its_label(start.served, stored, full_environment(command))
            ):
                unlike = Finding(Reason.UNLIKE_ITS_LABEL, "rejected", text)
            if unlike is not None:
                print(unlike.sentence, flush=True)
                if not any(each.spec.is_gate for each in start.measurements):
                    raise CellRejected(f"{unlike.reason.value}: {unlike.sentence}")
            uuids = (place.get("gpu_uuid") or "").split(",")
            with meters.opened([*filter(None, uuids)], partial(print, flush=True)) as cards:
                for measurement in start.measurements:
                    await self._measure(measurement, start.served, engine, cards, place, frameworks, unlike)
        finally:
            try:
                self.heartbeat.phase("stopping")  # prints: an error where nobody reads the runner's words any more
            finally:
                await self._stop(engine)

    async def _stop(self, engine: Engine) -> None:
        try:
            if self.notice:  # the cloud may not wait until an engine has stopped
                await _to_its_end(self.outbox.flush)
                self.close(Ended.NOTICE, self.notice)
        finally:
            await _to_its_end(engine.stop)  # heartbeats go on: it may take a minute

    async def _measure(
        self,
        measurement: Measurement,
        served: Cell,
        engine: Engine,
        cards: meters.Cards | None,
        place: Row,
        frameworks: Frameworks,
        unlike: Finding | None,
    ) -> None:
        spec, name, started = measurement.spec, measurement.name, time.monotonic()
        self.heartbeat.phase("waiting", name)
        async with Client(engine.base_url, served.model, served.technique) as client:
            ctx = StepContext(
                self.planned, served, client, self.ledger, measurement, self.lease.epoch,
                self.heartbeat.tell, frameworks, engine, cards,
            )  # fmt: skip
            try:
                async with undisturbed(spec, self.heartbeat.line):
                    self.heartbeat.phase("measuring", name)
                    await ctx.begin(place)
                    # a gate comes first, and what it rejects stops here: no question is asked of another cell's model
                    is_told = unlike is not None and spec.is_gate
                    judgements = [judge(None, None, [unlike])] if is_told else await file_of(spec).measure(ctx, spec)
                    await ctx.keep_counted()
            except RequestFailed as error:
                raise await engine.cause_of_failure(error) from error
            if spec.is_timed and (other := other_gpu(self.planned.gpu, place["gpu_name"])):
                judgements = [each._replace(findings=(*each.findings, other)) for each in judgements]
            await ctx.write(VERDICTS, [judgement.as_row() for judgement in judgements])
            self.heartbeat.phase("committing", name)
        parts, wall_s = await ctx.end(), time.monotonic() - started
        await _to_its_end(partial(self._commit, measurement, judgements, parts, wall_s))

    def _commit(self, measurement: Measurement, judgements: list[Judgement], parts: list[Part], wall_s: float) -> None:
        verdict = worst(judgement.verdict for judgement in judgements)
        reasons = sorted({finding.reason.value for judgement in judgements for finding in judgement.findings})
        commit = self.ledger.new_commit(
            measurement.name, self.lease.epoch, self.lease.owner, verdict, reasons, wall_s, parts,
            judged=len(judgements), judged_ok=sum(judgement.verdict == "ok" for judgement in judgements),
        )  # fmt: skip
        result: str = self.ledger.commit(self.planned.cell.cell_key, commit)
        if not self.outbox.is_empty:
            result = "not stored yet"
        print(f"{measurement.name}: {result} ({said(commit)})", flush=True)
        if measurement.spec.is_gate and verdict == "rejected":
            raise CellRejected(f"{measurement.name} rejected this cell: {', '.join(reasons)}")

    def close(self, how: Ended, reason: str) -> None:
        """Write the attempt's row. If it has one already, that one stands."""
        outcome = how.row.outcome
        assert outcome is not None, "a granted lease has an attempt"
        spent, lost_s = self.heartbeat.spent_s(), 0.0 if how is Ended.DONE else self.heartbeat.at_risk_s()
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


async def _to_its_end(call: Callable[[], None]) -> None:
    """Call it in a thread and wait for its end, even if this task is cancelled meanwhile."""
    calling = asyncio.ensure_future(asyncio.to_thread(call))
    cancelled: asyncio.CancelledError | None = None
    while not calling.done():
        try:
            await asyncio.shield(calling)
        except asyncio.CancelledError as error:
            cancelled = error
    calling.result()
    if cancelled is not None:
        raise cancelled
