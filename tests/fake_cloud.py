"""A fake cloud control plane: its clusters are the real node runner on this machine, and can be taken away."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from flows.clock import StoppableClock
from flows.clusters.protocol import CellJob, CellNeed, Decision, Ending, Launch, LaunchFailed, cluster_name
from flows.run_context import RunContext, Slots
from tests.fake_run import FakeRun
from warehouse.ledger.looks import SharedLook
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import MachineEnd, Offer

OFFER = Offer(
    cloud="aws", region="us-east-1", zone="us-east-1a", instance_type="p5.4xlarge", spot=True, price_usd_h=2.5,
    price_source="test",
)  # fmt: skip


def offer(zone: str = "east-1a", *, spot: bool = True) -> Offer:
    fake = {"cloud": "fake", "region": zone[:-1], "zone": zone, "spot": spot, "price_usd_h": 3.6}
    return OFFER.model_copy(update=fake)


class JumpingClock(StoppableClock):
    """A clock whose pauses take no time; a night that nobody ends is ended."""

    def __init__(self) -> None:
        super().__init__()
        self.begun_s = self.at_s = 1.8e9

    def now_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += max(0.01, seconds)
        assert self.at_s - self.begun_s < 6 * 3600, "it waits for ever"


class FakeCluster:
    """One rented node; `fail` is what its launch raises, `reclaim` takes it away."""

    def __init__(
        self, run: FakeRun, python: Path = Path("no-python"), fail: LaunchFailed | None = None, **env: str
    ) -> None:
        self.run, self.python, self.fail, self.env = run, python, fail, env
        self.process: subprocess.Popen[str] | None = None
        self.gone = self.is_down = False
        self.word: MachineEnd | None = None

    def adopt(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self, job: CellJob) -> None:
        assert job.cell_key == self.run.key
        if self.fail is not None:
            raise self.fail
        self.process = self.run.start(self.python, **self.env)

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        if self.gone:
            return Ending(None, Ended.PREEMPTED, "the cluster does not exist any more")
        code = None if self.process is None else self.process.poll()
        return None if code is None else Ending.of_runner(code)

    def log_tail(self, lines: int) -> list[str]:
        return ["a line of the node's log"]

    def is_there(self) -> bool:
        return self.adopt()

    def down(self) -> None:
        self.is_down = True
        self._kill()

    def machine_end(self, since_s: float) -> MachineEnd | None:
        return self.word

    def reclaim(self) -> None:
        """As a cloud does: everything on the node is gone at once."""
        self._kill()
        self.gone = True

    def _kill(self) -> None:
        if self.process is None or self.process.stdout is None or self.process.stdout.closed:
            return
        alive = self.process.poll() is None
        for pid in [self.process.pid, *children(self.process.pid)] if alive else []:
            with suppress(ProcessLookupError):  # ended by itself meanwhile
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()


class FakeSite:
    """Hands out prepared decisions and clusters, in order; the last of each is repeated."""

    def __init__(self, clusters: Sequence[FakeCluster], decisions: Sequence[Decision] = ()) -> None:
        self.clusters, self.decisions = list(clusters), list(decisions) or [Launch(offer())]
        self.handed: list[FakeCluster] = []
        self.needs: list[CellNeed] = []
        self.memory: list[tuple[str | None, Ended | None]] = []

    def choose(self, need: CellNeed) -> Decision:
        self.needs.append(need)
        return self.decisions.pop(0) if len(self.decisions) > 1 else self.decisions[0]

    def cluster(self, cell_key: str, offer: Offer | None) -> FakeCluster:
        self.handed.append(self.clusters.pop(0) if len(self.clusters) > 1 else self.clusters[0])
        return self.handed[-1]

    def ended(self, cell_key: str, offer: Offer, loss: Ended | None, detail: str = "") -> None:
        self.memory.append((offer.zone, loss))


def context(run: FakeRun, site: FakeSite, tell: Callable[[str], None] = print, **changed: object) -> RunContext:
    made = RunContext(
        site=site, clock=StoppableClock(), max_attempts=2, wait_h=0.01, poll_s=0.2, longest_poll_s=0.2, purse=None,
        look=SharedLook(run.ledger), name_of=lambda key: cluster_name("thestore", "r1", key),
        tell=tell, managing=lambda _: nullcontext(), slots=Slots(2),
    )  # fmt: skip
    return made._replace(**changed)


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            for child in map(int, task.read_text().split()):
                found += [child, *children(child)]
    return found
