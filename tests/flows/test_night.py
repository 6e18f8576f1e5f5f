"""A night of reclaims: everything is measured, little is lost, and the flow asks little of its store.

On a clock that jumps: the real `measure_cell`, `PolicySite` and ledger; simulated clouds. Zones run dry for hours,
machines are reclaimed without notice, and a node runner stores its work in parts of a minute. One seed always gives
one night.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import json
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest

from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Budget, Cloud, Plan
from flows.cell import measure_cell
from flows.clock import StoppableClock
from flows.clusters.protocol import CellJob, Cluster, Ending, LaunchFailed, cluster_name
from flows.clusters.skypilot.cluster import FRESH_S
from flows.flow_heartbeat import BEAT_EVERY_S, HeldCells
from flows.forecast.budget import Purse
from flows.forecast.estimates import download_s, measurement_s, start_s
from flows.forecast.forecast import forecast
from flows.renting.site import PolicySite
from flows.run_context import CLOUD_POLL_S, RunContext, Slots
from tasks.runner import INTERVAL_S, todo
from tests.fake_cloud import OFFER
from warehouse.ledger.commits import Ledger, Part
from warehouse.ledger.lease import Attempt, Heartbeat, Leases
from warehouse.ledger.looks import LONGEST_S, PAGE_KEYS, SharedLook
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import MachineEnd, Offer
from warehouse.ledger.store.protocol import Seen

NIGHT_S = 1_798_840_800.0  # when it begins: 1 January 2027, 22:00 UTC
ZONES = {"us-central1-a": 3, "us-east5-a": 2, "europe-west4-b": 2, "us-west1-a": 0}
"""Spot machines that there are at once; the last zone never has any. On demand there always is one."""

GOOD_S, DRY_S = 5 * 3600.0, 1.5 * 3600.0  # mean length of a spell with spot capacity in a zone, and of one without
ASKING_S, LAUNCH_S, SETUP_S, TEARDOWN_S = 2.0, 300.0, 30.0, 20.0
"""Until a cloud says that it has none; until a machine is up; its setup; `down`."""

STORED_EVERY_S = 60.0  # longest span between two parts


class Clock(StoppableClock):
    """Once every thread sleeps, it moves on to when the first one wakes; threads and callbacks run one at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = NIGHT_S
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._woken = False
        self._living = 0
        self._failures: list[BaseException] = []

    def now_s(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        awake = threading.Event()
        self._wake_in(max(0.0, seconds), awake)
        self._go_on()
        awake.wait()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self._now_s + seconds, next(self._order), call))

    def run(self, workers: Sequence[Callable[[], object]]) -> None:
        """Each worker in a thread of its own, to their ends; the first failure is raised here."""
        self._living = len(workers)
        threads = []
        for worker in workers:
            awake = threading.Event()
            self._wake_in(0.0, awake)
            threads.append(threading.Thread(target=self._live, args=(worker, awake), daemon=True))
            threads[-1].start()
        self._go_on()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _live(self, worker: Callable[[], object], awake: threading.Event) -> None:
        awake.wait()
        try:
            worker()
        except BaseException as error:
            self._failures.append(error)
        self._living -= 1
        self._go_on()

    def _wake_in(self, seconds: float, sleeper: threading.Event) -> None:
        def wake() -> None:
            self._woken = True
            sleeper.set()

        self.after(seconds, wake)

    def _go_on(self) -> None:
        self._woken = False
        while self._living and not self._woken:
            self._now_s, _, call = heapq.heappop(self._due)
            call()


class NightStore:
    """A store in memory, by the simulated clock, that counts its requests as S3 bills them unless a node asks."""

    url = location = "memory:night"
    storage_options: dict[str, str] | None = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[str, tuple[float, bytes]] = {}
        self._keys: list[str] = []
        self._stamp_s: float | None = None
        self._of_a_node = False
        self.beating: dict[str, Callable[[], None]] = {}
        self.requests: Counter[str] = Counter()

    @contextmanager
    def by_a_node(self, stamp_s: float | None = None) -> Iterator[None]:
        """What is asked inside is not counted; what is put is of that moment."""
        before = self._of_a_node, self._stamp_s
        self._of_a_node, self._stamp_s = True, stamp_s
        try:
            yield
        finally:
            self._of_a_node, self._stamp_s = before

    def uri(self, key: str) -> str:
        return f"{self.url}/{key}"

    def put_new(self, key: str, data: bytes) -> bool:
        if key not in self._objects:
            self.put(key, data)
            return True
        self._count("put")
        return self._objects[key][1] == data

    def put(self, key: str, data: bytes) -> None:
        self._count("put")
        if key not in self._objects:
            bisect.insort(self._keys, key)
        self._objects[key] = (self._clock.now_s() if self._stamp_s is None else self._stamp_s, data)

    def get(self, key: str) -> bytes | None:
        self._count("get")
        there = self._objects.get(key)
        return None if there is None else there[1]

    def list(self, prefix: str) -> list[str]:
        first = bisect.bisect_left(self._keys, f"{prefix}/")
        found = self._keys[first : bisect.bisect_left(self._keys, f"{prefix}0", first)]  # "0" comes after "/"
        self._count("list", 1 + len(found) // PAGE_KEYS)
        return found

    def seen(self, prefix: str) -> Iterator[Seen]:
        for cell_root, beat in self.beating.items():  # nodes write the heartbeats that are due
            if f"{prefix}/".startswith(f"{cell_root}/") or cell_root.startswith(f"{prefix}/"):
                beat()
        for key in self.list(prefix):
            moment_s, data = self._objects[key]
            yield Seen(key, f"{moment_s} {len(data)}", self._clock.now_s() - moment_s)

    def age_s(self, key: str) -> float | None:
        self._count("head")
        there = self._objects.get(key)
        return None if there is None else self._clock.now_s() - there[0]

    silence_s = age_s

    def clock_skew_s(self) -> float:
        return 0.0

    def hurry(self) -> None:
        pass

    def delete(self, key: str) -> None:
        raise NotImplementedError(f"the night deletes nothing, {key} neither")

    def _count(self, kind: str, requests: int = 1) -> None:
        if not self._of_a_node:
            self.requests[kind] += requests


class Node:
    """A node runner: lease, engine starts, steps in parts, commits; `code` is its exit code once it has ended."""

    def __init__(self, clock: Clock, store: NightStore, job: CellJob, name: str) -> None:
        self._clock, self._store, self._name, self._key = clock, store, name, job.cell_key
        self._ledger = Ledger(store, job.run_id, clock)
        self._leases = Leases(self._ledger, job.cell_key)
        self._attempt: int | None = None
        self._granted_s = self._kept_s = 0.0
        self._measuring = self._dead = False
        self.code: int | None = None
        self._run(self._life())

    def kill(self) -> float | None:
        """End it without notice; the measured seconds that no part holds, None where it was not measuring."""
        self.beat()
        self._dead = True
        return self._clock.now_s() - self._kept_s if self._measuring else None

    def beat(self) -> None:
        """Write the heartbeat that was due last; those before it would have been overwritten by now."""
        if self._attempt is None or self._dead or self.code is not None:
            return
        at_s = self._clock.now_s() - (self._clock.now_s() - self._granted_s) % INTERVAL_S
        with self._store.by_a_node(at_s):
            phase = "measure" if self._measuring else "load"
            self._leases.beat(Heartbeat(attempt=self._attempt, phase=phase, at=self._clock.now_iso()))

    def _run(self, life: Iterator[float]) -> None:
        if not self._dead:
            with self._store.by_a_node():
                pause_s = next(life, None)
            if pause_s is not None:
                self._clock.after(pause_s, lambda: self._run(life))

    def _life(self) -> Iterator[float]:
        """From setup to the closed attempt; yields the seconds that each thing takes."""
        yield SETUP_S
        lease = self._leases.acquire(f"{self._name}/boot/1/1")
        self._attempt, self._granted_s = lease.epoch, self._clock.now_s()
        planned = self._ledger.planned_cell(self._key)
        for number, start in enumerate(todo(self._ledger, planned)):
            yield start_s(planned.gpu) + (download_s(planned.cell) if number == 0 else 0.0)
            self._measuring = True
            for each in start.measurements:
                yield from self._measure(each.name, measurement_s(planned, start.served, each))
            self._measuring = False
        done = {"attempt": lease.epoch, "outcome": "completed", "owner": lease.owner, "started_at": lease.granted_at}
        done |= {"ended_at": self._clock.now_iso(), "exit_code": Ended.DONE.exit_code}
        self._leases.close(Attempt.model_validate(done))
        self.code = Ended.DONE.exit_code

    def _measure(self, name: str, whole_s: float) -> Iterator[float]:
        root = f"{self._ledger.step_root(self._key, name)}/parts"
        kept = self._store.list(root)
        left_s = whole_s - sum(json.loads(self._store.get(key) or b"") for key in kept)
        self._kept_s = self._clock.now_s()
        while left_s > 1e-6:
            part_s = min(STORED_EVERY_S, left_s)
            yield part_s
            left_s -= part_s
            kept.append(f"{root}/{len(kept):05d}.json")
            assert self._store.put_new(kept[-1], json.dumps(part_s).encode()), f"{kept[-1]} was measured twice"
            self._kept_s = self._clock.now_s()
        parts = [Part(key=key, table="work", rows=1, sha256="") for key in kept]
        commit = self._ledger.new_commit(name, self._attempt or 0, self._name, "ok", [], whole_s, parts)
        assert self._ledger.commit(self._key, commit) == "committed"


class Clouds:
    def __init__(self, clock: Clock, store: NightStore, reclaimed_per_hour: float, seed: int) -> None:
        self.clock, self.store, self.rng = clock, store, random.Random(seed)
        self._risk_s = -math.log(1 - reclaimed_per_hour) / 3600
        self.lost_s: list[float | None] = []  # of each reclaim; None where nothing was being measured
        self.rented_s = 0.0  # of all cells, added up
        self.taken = dict.fromkeys(ZONES, 0)
        self._turns = {zone: self._spells() for zone in ZONES}

    def offers(self) -> list[Offer]:
        google = OFFER.model_copy(update={"cloud": "gcp"})
        return [
            google.model_copy(update={"region": zone[:-2], "zone": zone, "spot": spot, "price_usd_h": usd_h})
            for spot, usd_h in ((True, 2.25), (False, 6.98))
            for zone in ZONES
        ]

    def rent(self, offer: Offer) -> bool:
        zone = offer.zone or ""
        is_dry = bisect.bisect(self._turns[zone], self.clock.now_s()) % 2 or self.taken[zone] >= ZONES[zone]
        if offer.spot and is_dry:
            return False
        self.taken[zone] += offer.spot
        return True

    def life_s(self) -> float:
        return self.rng.expovariate(self._risk_s)

    def _spells(self) -> list[float]:
        """Moments at which a zone runs dry and gets capacity again, in turn."""
        turns = [NIGHT_S + self.rng.expovariate(1 / GOOD_S)]
        while turns[-1] < NIGHT_S + 7 * 86400:
            turns.append(turns[-1] + self.rng.expovariate(1 / (DRY_S if len(turns) % 2 else GOOD_S)))
        return turns


class Machine:
    def __init__(self, clouds: Clouds, offer: Offer, name: str) -> None:
        self._clouds, self._clock, self._offer, self._name = clouds, clouds.clock, offer, name
        self._node: Node | None = None
        self._is_up = self._was_reclaimed = False
        self._rented_at_s = 0.0

    def adopt(self) -> bool:
        return False

    def launch(self, job: CellJob) -> float:
        self._clock.sleep(ASKING_S)
        if not self._clouds.rent(self._offer):
            raise LaunchFailed(f"InsufficientInstanceCapacity in {self._offer.where}", Ended.NO_CAPACITY)
        self._is_up, self._rented_at_s = True, self._clock.now_s()
        if self._offer.spot:
            self._clock.after(self._clouds.life_s(), self._reclaim)
        self._clock.sleep(LAUNCH_S)
        if self._was_reclaimed:
            raise LaunchFailed("reclaimed while it was provisioned", Ended.PREEMPTED)
        self._node = Node(self._clock, self._clouds.store, job, self._name)
        cell_root = Ledger(self._clouds.store, job.run_id).cell_root(job.cell_key)
        self._clouds.store.beating[cell_root] = self._node.beat
        return self._rented_at_s

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        assert self._node is not None
        if heard_s is not None and heard_s < FRESH_S:
            return None
        if self._was_reclaimed:
            return Ending(None, Ended.PREEMPTED, "not found on the cloud provider")
        return None if self._node.code is None else Ending.of_runner(self._node.code)

    def log_tail(self, lines: int) -> list[str]:
        return []

    def is_there(self) -> bool:
        return self._is_up

    def down(self) -> None:
        if self._is_up:
            self._clock.sleep(TEARDOWN_S)
        if self._is_up:  # it may have been reclaimed meanwhile
            self._end()

    def machine_end(self, since_s: float) -> MachineEnd | None:
        return None

    def _reclaim(self) -> None:
        if self._is_up:
            self._was_reclaimed = True
            self._clouds.lost_s.append(None if self._node is None else self._node.kill())
            self._end()

    def _end(self) -> None:
        self._is_up = False
        self._clouds.rented_s += self._clock.now_s() - self._rented_at_s
        self._clouds.taken[self._offer.zone or ""] -= self._offer.spot


def night(cells: int, reclaimed_per_hour: float, seed: int = 1) -> tuple[Clouds, Counter[str]]:
    """The first cells of the sweep `full`, all at once, until all are measured and the last machine is down."""
    clock = Clock()
    store = NightStore(clock)
    plan, cloud = _plan(cells), Cloud(task="simulated")
    clouds = Clouds(clock, store, reclaimed_per_hour, seed)
    ledger = Ledger(store, "night", clock)
    ledger.write_plan(plan)

    def name_of(cell_key: str) -> str:
        return cluster_name("thenight", "night", cell_key)

    def make_cluster(cell_key: str, offer: Offer | None) -> Cluster:
        assert offer is not None
        return Machine(clouds, offer, name_of(cell_key))

    waiting_s = {cell.cell_key: cell.total_s for cell in forecast(plan, {}).cells}
    site = PolicySite(
        clouds.offers, make_cluster, cloud, [], clock.now_s, random.Random(seed), waiting_s=waiting_s, places=cells
    )
    held, look = HeldCells(ledger, lambda _: None), SharedLook(ledger)
    _beating(clock, held)
    context = RunContext(
        site=site, clock=clock, max_attempts=plan.max_attempts, wait_h=cloud.wait_h, poll_s=CLOUD_POLL_S,
        longest_poll_s=LONGEST_S, look=look, name_of=name_of,
        managing=held.managing, slots=Slots(8), tell=lambda _: None,
        purse=Purse(store, "night", Budget.model_validate({"run_usd": 1e6}), clock.now_s, look=look),
    )  # fmt: skip
    clock.run([partial(measure_cell, ledger, planned, context, lambda _: None) for planned in plan.cells])
    requests, committed = Counter(store.requests), ledger.committed_steps()
    assert all(len(committed.get(each.cell.cell_key, [])) == len(each.measurements) for each in plan.cells)
    return clouds, requests


def _beating(clock: Clock, held: HeldCells) -> None:
    held.beat()
    clock.after(BEAT_EVERY_S, partial(_beating, clock, held))


def _plan(cells: int) -> Plan:
    plan = expand(load_sweep("full"))
    rows = []
    for index in range(cells):  # told apart by their context's length
        planned = plan.cells[index % len(plan.cells)]
        serving = planned.cell.serving.model_copy(update={"max_model_len": 16384 + index})
        rows.append(planned.model_copy(update={"cell": planned.cell.model_copy(update={"serving": serving})}))
    return plan.model_copy(update={"cells": tuple(rows), "concurrency": cells, "cloud": Cloud(task="simulated")})


@pytest.mark.slow(8)
def test_a_night_of_reclaims_costs_a_part_each_and_200_requests_an_hour_and_cell() -> None:
    clouds, requests = night(6, reclaimed_per_hour=0.2)
    assert clouds.lost_s and max(lost or 0.0 for lost in clouds.lost_s) <= STORED_EVERY_S
    assert requests.total() <= 200 * clouds.rented_s / 3600, requests
