"""A node runner on a simulated clock: lease, engine start, steps in parts, commits, heartbeats.

It follows `tasks/cell.py`: what is measured is lost until its part is stored, an attempt goes on where the parts of
earlier ones end, and the heartbeat says every 5 s how the time was spent.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

from bench.simulated_clock import SimulatedClock
from bench.simulated_store import SimulatedStore
from configs.schema import PlannedCell
from flows.clusters.protocol import CellJob
from flows.forecast.estimates import download_s, measurement_s, start_s
from tasks.heartbeat import INTERVAL_S
from tasks.runner import todo
from warehouse.lease import Attempt, Heartbeat, Leases
from warehouse.ledger import Ledger, Part
from warehouse.outcomes import Ended

SETUP_S = 30.0
"""Installing the node's environment and starting the runner, once SkyPilot has submitted it."""

ENGINE_STOP_S = 5.0

STORED_EVERY_S = 60.0
"""Longest span between two parts; a condition or a prompt may end sooner."""

NOISE = 0.15
"""Spread of every duration around its forecast (sigma of its logarithm)."""


class Durations(NamedTuple):
    """What one cell really takes, in seconds; the forecast is off by `NOISE`."""

    download_s: float
    start_s: float
    starts: int
    steps: dict[str, float]

    @property
    def load_s(self) -> float:
        """Seconds of all engine starts on one machine, the download before the first included."""
        return self.download_s + self.starts * self.start_s

    @property
    def work_s(self) -> float:
        """Seconds of all steps."""
        return sum(self.steps.values())


def durations(planned: PlannedCell, seed: int) -> Durations:
    """A cell's true durations: by seed and cell alone, whatever happens around it."""
    rng = random.Random(f"{seed} {planned.cell.cell_key}")
    steps = {
        each.name: measurement_s(planned, start.served, each) * noisy(rng)
        for start in planned.starts
        for each in start.measurements
    }
    return Durations(
        download_s(planned.cell) * noisy(rng), start_s(planned.gpu) * noisy(rng), len(planned.starts), steps
    )


def noisy(rng: random.Random) -> float:
    """A random factor around 1, with a spread of `NOISE`."""
    return rng.lognormvariate(0.0, NOISE)


class SimulatedNode:
    """One node runner; `code` is its exit code once it has ended, `lost_s` what its death cost."""

    def __init__(self, clock: SimulatedClock, store: SimulatedStore, job: CellJob, name: str, truth: Durations) -> None:
        self._clock, self._store, self._name, self._truth = clock, store, name, truth
        self._ledger, self._key = Ledger(store, job.run_id, clock), job.cell_key
        self._leases = Leases(self._ledger, job.cell_key)
        self._attempt: int | None = None
        self._granted_s = self._since_s = self._kept_s = 0.0
        self._phase: str | None = None
        self._spent_s = dict.fromkeys(("load", "smoke", "measure"), 0.0)
        self._dead = False
        self.code: int | None = None

    def start(self, setup_s: float) -> None:
        """Begin with the setup, which takes `setup_s`."""
        self._run(self._life(setup_s))

    def kill(self) -> float | None:
        """End it without notice; returns the measured seconds that no part holds, None if it was not measuring."""
        self.beat()
        self._dead = True
        return self._clock.now_s() - self._kept_s if self._phase in ("smoke", "measure") else None

    def beat(self) -> None:
        """Write the heartbeat that was due last; those before it would have been overwritten by now."""
        if self._attempt is None or self._dead or self.code is not None:
            return
        at_s = self._clock.now_s() - (self._clock.now_s() - self._granted_s) % INTERVAL_S
        spent, measuring = dict(self._spent_s), self._phase in ("smoke", "measure")
        if self._phase is not None:
            spent[self._phase] += max(0.0, at_s - self._since_s)
        with self._store.written_at(at_s):
            self._leases.beat(
                Heartbeat(
                    attempt=self._attempt,
                    phase=self._phase or "",
                    load_s=spent["load"],
                    smoke_s=spent["smoke"],
                    measure_s=spent["measure"],
                    at_risk_s=max(0.0, at_s - self._kept_s) if measuring else 0.0,
                    at=self._clock.now_iso(),
                )
            )

    def _run(self, life: Iterator[float]) -> None:
        """Run up to the next pause, and on after it."""
        pause_s = None if self._dead else next(life, None)
        if pause_s is not None:
            self._clock.at(self._clock.now_s() + pause_s, lambda: self._run(life))

    def _life(self, setup_s: float) -> Iterator[float]:
        """From setup to the closed attempt; yields the seconds that each thing takes."""
        yield setup_s
        lease = self._leases.acquire(f"{self._name}/boot/1/1")
        self._attempt, self._granted_s = lease.epoch, self._clock.now_s()
        left = todo(self._ledger, self._ledger.planned_cell(self._key))
        for number, start in enumerate(left):
            self._enter("load")
            yield self._truth.start_s + (self._truth.download_s if number == 0 else 0.0)
            for each in start.measurements:
                self._enter("smoke" if each.spec.step == "smoke" else "measure")
                yield from self._measure(each.name)
        self._enter(None)
        yield ENGINE_STOP_S
        spent = self._spent_s
        self._leases.close(
            Attempt(
                attempt=lease.epoch,
                outcome="completed",
                owner=lease.owner,
                started_at=lease.granted_at,
                ended_at=self._clock.now_iso(),
                load_s=spent["load"],
                smoke_s=spent["smoke"],
                measure_s=spent["measure"],
                lost_s=0.0,
                exit_code=Ended.DONE.exit_code,
            )
        )
        self.code = Ended.DONE.exit_code

    def _measure(self, name: str) -> Iterator[float]:
        """Measure what no part holds yet, part by part, and commit."""
        root, whole_s = f"{self._ledger.step_root(self._key, name)}/parts", self._truth.steps[name]
        kept = self._store.list(root)
        left_s = whole_s - sum(json.loads(self._store.get(key) or b"")["measured_s"] for key in kept)
        while left_s > 1e-6:
            part_s = min(STORED_EVERY_S, left_s)
            yield part_s
            left_s -= part_s
            key = f"{root}/{len(kept):05d}.json"
            if not self._store.put_new(key, json.dumps({"measured_s": part_s, "attempt": self._attempt}).encode()):
                raise RuntimeError(f"{key} was measured twice")
            kept.append(key)
            self._kept_s = self._clock.now_s()
        parts = [Part(key=key, table="work", rows=1, sha256="") for key in kept]
        commit = self._ledger.new_commit(name, self._attempt or 0, self._name, "ok", [], whole_s, parts)
        if self._ledger.commit(self._key, commit) != "committed":
            raise RuntimeError(f"{name} of {self._key} was committed twice")

    def _enter(self, phase: str | None) -> None:
        now_s = self._clock.now_s()
        if self._phase is not None:
            self._spent_s[self._phase] += now_s - self._since_s
        self._phase, self._since_s, self._kept_s = phase, now_s, now_s
