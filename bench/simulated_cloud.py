"""Clouds with few H100s on a simulated clock: zones run dry for hours, machines are reclaimed without notice."""

from __future__ import annotations

import bisect
import math
import random
from typing import NamedTuple

from bench.simulated_clock import SimulatedClock
from bench.simulated_node import SETUP_S, Durations, SimulatedNode, noisy
from bench.simulated_store import SimulatedStore
from flows.clusters.protocol import CellJob, Ending, LaunchFailed
from flows.clusters.skypilot.cluster import FRESH_S
from warehouse.ledger import Ledger
from warehouse.outcomes import Ended
from warehouse.placement import MachineEnd, Offer

ZONES = (
    ("gcp", "us-central1-a", 2.25, 6.98, 8),
    ("gcp", "us-east5-a", 2.25, 6.98, 6),
    ("gcp", "europe-west4-b", 2.48, 7.40, 6),
    ("aws", "us-east-1a", 2.52, 6.88, 8),
    ("aws", "us-east-1b", 2.52, 6.88, 4),
    ("aws", "us-east-2a", 2.52, 6.88, 6),
    ("aws", "us-west-2a", 2.75, 6.88, 8),
)
"""Cloud, zone, made-up dollars per hour on spot and on demand around those of `configs/gpus/h100.yaml`, and how many
spot machines we can have there at once. `DRY_ZONE` never has any."""

DRY_ZONE = ("gcp", "us-west1-a", 2.20, 6.98, 0)

GOOD_S, DRY_S = 5 * 3600.0, 1.5 * 3600.0
"""Mean length of a spell with spot capacity in a zone, and of one without."""

ASKING_S = 2.0
"""How long a cloud takes to say that it has no capacity (seen: 1 to 2 s)."""

TEARDOWN_S = 20.0
"""How long `down` takes (seen on the pocket cloud: 6 to 30 s); of a machine that is gone already, under a second."""

TERMINATE_S = 2.0
"""The part of `TEARDOWN_S` until EC2, which is asked first, has terminated the machine."""

SETUP_FAILS = 0.01
"""Share of machines whose setup fails."""


class Weather(NamedTuple):
    """What the night is like.

    `reclaimed_per_hour`: probability for each spot machine; `launch_s`: from asking for one, image included, to a node
    runner that takes its cell; `room`: how many times the spot machines of `ZONES` there are.
    """

    reclaimed_per_hour: float
    launch_s: float
    room: int = 1

    def life_s(self, rng: random.Random) -> float:
        """Seconds that a spot machine lives: the risk is the same in every hour."""
        return rng.expovariate(-math.log(1 - self.reclaimed_per_hour) / 3600) if self.reclaimed_per_hour else math.inf


class SimulatedCloud:
    """Every zone of every cloud, its machines, and what each reclaim cost."""

    def __init__(self, clock: SimulatedClock, store: SimulatedStore, weather: Weather, seed: int) -> None:
        """Draw the spells with and without spot capacity for a week."""
        self.clock, self.store, self.weather = clock, store, weather
        self.rng = random.Random(seed)
        self.losses_s: list[float | None] = []
        self._machines = dict.fromkeys((zone[1] for zone in (*ZONES, DRY_ZONE)), 0)
        self._turns = {zone[1]: self._spells() for zone in ZONES}

    def offers(self) -> list[Offer]:
        """Spot and on-demand, cheapest first."""
        found = [
            Offer(
                cloud=cloud,
                region=zone.rstrip("ab").rstrip("-"),
                zone=zone,
                instance_type="1x H100",
                spot=is_spot,
                price_usd_h=spot_usd_h if is_spot else on_demand_usd_h,
                price_source="made up",
            )
            for cloud, zone, spot_usd_h, on_demand_usd_h, _ in (*ZONES, DRY_ZONE)
            for is_spot in (True, False)
        ]
        return sorted(found, key=lambda offer: offer.price_usd_h or 0.0)

    def rent(self, offer: Offer) -> bool:
        """Take a machine; False if there is none. On demand there always is one."""
        zone = offer.zone or ""
        most = {name: places for _, name, _, _, places in (*ZONES, DRY_ZONE)}[zone] * self.weather.room
        if offer.spot and (self._machines[zone] >= most or bisect.bisect(self._turns[zone], self.clock.now_s()) % 2):
            return False
        self._machines[zone] += offer.spot
        return True

    def give_back(self, offer: Offer) -> None:
        """Free the place of a machine, whoever ended it."""
        self._machines[offer.zone or ""] -= offer.spot

    def _spells(self) -> list[float]:
        """Moments at which a zone runs dry and gets capacity again, in turn."""
        turns = [self.clock.now_s() + self.rng.expovariate(1 / GOOD_S)]
        while turns[-1] < self.clock.now_s() + 7 * 86400:
            turns.append(turns[-1] + self.rng.expovariate(1 / (DRY_S if len(turns) % 2 else GOOD_S)))
        return turns


class SimulatedCluster:
    """A `Cluster` whose machine and node runner are simulated."""

    def __init__(self, cloud: SimulatedCloud, offer: Offer, name: str, truth: Durations) -> None:
        self._cloud, self._clock, self._offer = cloud, cloud.clock, offer
        self._name, self._truth = name, truth
        self._node: SimulatedNode | None = None
        self._is_up = self._was_reclaimed = self._setup_failed = False
        self._word: MachineEnd | None = None

    def adopt(self) -> bool:
        """Never: one flow runs all night."""
        return False

    def launch(self, job: CellJob) -> float:
        """Rent, provision, submit; a few fail in their setup afterwards (`SETUP_FAILS`)."""
        rented_at_s = self._provision()
        self._node = SimulatedNode(self._clock, self._cloud.store, job, self._name, self._truth)
        cell_root = Ledger(self._cloud.store, job.run_id).cell_root(job.cell_key)
        self._cloud.store.beating[cell_root] = self._node.beat
        setup_s = SETUP_S * noisy(self._cloud.rng)
        if self._cloud.rng.random() < SETUP_FAILS:
            self._clock.at(self._clock.now_s() + setup_s, self._fail)
        else:
            self._node.start(setup_s)
        return rented_at_s

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        """Believe a fresh heartbeat, as `SkyCluster` does."""
        if self._node is None:
            raise RuntimeError("looked at before it was launched")
        if heard_s is not None and heard_s < FRESH_S:
            return None
        if self._was_reclaimed:
            return Ending(None, Ended.PREEMPTED, "not found on the cloud provider")
        if self._setup_failed:
            return Ending(None, Ended.SETUP_FAILED, "setup ended with code 1")
        return None if self._node.code is None else Ending.of_runner(self._node.code)

    def log_tail(self, lines: int) -> list[str]:
        """Always empty: nobody prints anything here."""
        return []

    def is_there(self) -> bool:
        """Whether the machine is up."""
        return self._is_up

    def down(self) -> None:
        """Give the machine back; takes `TEARDOWN_S` unless it is gone already."""
        if not self._is_up:
            return
        ended_s = TERMINATE_S if self._offer.cloud == "aws" else TEARDOWN_S
        self._clock.sleep(ended_s)
        if self._is_up:  # it may have been reclaimed meanwhile
            self._end(MachineEnd(self._clock.now_s()))
        self._clock.sleep(TEARDOWN_S - ended_s)

    def machine_end(self, since_s: float) -> MachineEnd | None:
        """Ask only AWS, as `SkyCluster` does; it gives no moment for what it took back."""
        return self._word if self._offer.cloud == "aws" else None

    def _provision(self) -> float:
        self._clock.sleep(ASKING_S)
        if not self._cloud.rent(self._offer):
            raise LaunchFailed(f"InsufficientInstanceCapacity in {self._offer.where}", Ended.NO_CAPACITY)
        self._is_up, rented_at_s = True, self._clock.now_s()
        if self._offer.spot:
            self._clock.at(self._clock.now_s() + self._cloud.weather.life_s(self._cloud.rng), self._reclaim)
        self._clock.sleep((self._cloud.weather.launch_s - ASKING_S - SETUP_S) * noisy(self._cloud.rng))
        if self._was_reclaimed:
            raise LaunchFailed("reclaimed while it was provisioned", Ended.PREEMPTED)
        return rented_at_s

    def _reclaim(self) -> None:
        if self._is_up:
            self._was_reclaimed = True
            self._cloud.losses_s.append(None if self._node is None else self._node.kill())
            self._end(MachineEnd(interrupted=True))

    def _fail(self) -> None:
        self._setup_failed = self._is_up

    def _end(self, word: MachineEnd) -> None:
        self._is_up, self._word = False, word
        self._cloud.give_back(self._offer)
