"""One cell on one cluster of its own, through SkyPilot. Nothing below us recovers: only our flow does.

Three witnesses say how a node is, and none is trusted alone: the heartbeat in the store (while it is fresh nobody else
is asked: each question to SkyPilot costs the node an ssh login while it measures), SkyPilot's job status, and the
cloud's own word through a forced refresh (a reclaimed cluster still reads UP until somebody refreshes).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.clock import FlowStopped
from flows.clusters.protocol import CellJob, Ending, LaunchFailed
from flows.clusters.skypilot import api as sky_api
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.api import Job
from flows.clusters.skypilot.launch_watch import LaunchWatch
from flows.clusters.skypilot.remedies import explain, refuses
from warehouse.outcomes import Ended
from warehouse.placement import MachineEnd, Offer

if TYPE_CHECKING:
    from flows.clusters.clouds.aws import Machines

FRESH_S = 20.0
"""A heartbeat younger than this (four beats) is believed; SkyPilot is not asked."""

ASK_EVERY_S = 10.0
"""Pause between two questions to SkyPilot about a silent node; each takes 1 to 3 s."""

CLOCKS_AGREE_S = 5.0
"""How long before our request a machine may have been launched, by its cloud's clock."""

CODE_LINE = re.compile(r"specsweep: node runner ended with code (\d+)")
"""What the tasks of sky/ print last: SkyPilot itself keeps only that a job failed, not its exit code."""

CODE_TAIL_LINES = 40


class SkyCluster:
    """A cluster whose name follows from its run and cell."""

    def __init__(
        self,
        name: str,
        task_of: Callable[[CellJob], Any],
        offer: Offer | None,
        log_path: Path,
        stopped: Callable[[], bool],
    ) -> None:
        """Prepare a cluster; SkyPilot is not asked yet.

        Args:
            name: from `names.cluster_name`.
            task_of: makes the SkyPilot task of a job.
            offer: what will be rented, for messages.
            log_path: file that gets what SkyPilot prints about the launch.
            stopped: whether the flow is asked to end; a launch is then cut short.
        """
        self.name = name
        self._task_of = task_of
        self._offer = offer
        self._log_path, self._stopped = log_path, stopped
        self._job = Job(None, None)
        self._asked_at = 0.0
        self._was_autostopping = False

    def adopt(self) -> bool:
        """Take over a cluster of this name whose runner was submitted and has not ended (see `Cluster.adopt`)."""
        if not sky_api.rented([self.name]):
            return False
        try:
            self._job = sky_api.newest_job(self.name)
        except sky_server.sky_errors():
            return False  # vanished, or not up: the next launch starts from scratch
        return self._job.job_id is not None and not self._job.over

    def launch(self, job: CellJob) -> float | None:
        """Rent the cluster and submit the runner (see `Cluster.launch`)."""
        task = self._task_of(job)
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        requests: list[Any] = []
        watch = LaunchWatch(self.name, self._offer, self._stopped, lambda: sky_server.cancel_request(requests[-1]))
        with watch.watching():
            try:
                job_id, _ = sky_server.call(
                    lambda sky: sky.launch(task, cluster_name=self.name), self._log_path, requests.append
                )
            except Exception as error:
                if watch.was_stopped:
                    raise FlowStopped("the flow ends") from error
                if watch.vanished:
                    text = f"{self._where}: the machine was taken away while it was set up"
                    raise LaunchFailed(text, Ended.PREEMPTED) from error
                raise self._launch_failed(error) from error
        self._job = Job(None if job_id is None else int(job_id), None)
        return watch.rented_at_s

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        """How it ended; SkyPilot is asked only if the heartbeat is not fresh (see `Cluster.look`)."""
        now = time.monotonic()
        is_fresh = heard_s is not None and heard_s < FRESH_S
        if not insist and (is_fresh or now - self._asked_at < ASK_EVERY_S):
            return None
        self._asked_at = now
        errors = sky_server.sdk().exceptions
        try:
            job = sky_api.newest_job(self.name)
        except errors.ClusterDoesNotExist as error:
            return self._gone(error)
        except sky_server.SkyUnavailable:
            return None  # the other witness, the heartbeat, decides when silence is too long
        except sky_server.sky_errors() as error:
            return self._unreachable(error)
        return self._ended(job) if job.over else None

    def log_tail(self, lines: int) -> list[str]:
        """The last lines of the job's log; of the launch's if there was no job (see `Cluster.log_tail`)."""
        if self._job.job_id is not None:
            try:
                return sky_api.job_log(self.name, self._job.job_id, lines)
            except sky_server.any_error() as error:
                return [f"(the job's log can't be had: {sky_server.text_of(error)})"]
        return self._launch_log(lines)

    def down(self) -> None:
        """Terminate it; a cluster that is gone already is fine (see `Cluster.down`).

        SkyPilot takes 10 to 20 s to terminate the machine, and they are paid for: so EC2 is asked to do it at once.
        """
        if self._machines is not None:
            self._machines.terminate()
        sky_api.take_down(self.name)

    def machine_end(self, since_s: float) -> MachineEnd | None:
        """EC2's word; SkyPilot keeps none (see `Cluster.machine_end`)."""
        return None if self._machines is None else self._machines.last_end(since_s - CLOCKS_AGREE_S)

    @cached_property
    def _machines(self) -> Machines | None:
        from flows.clusters.clouds.aws import machines_of

        return machines_of(self.name, self._offer)

    @property
    def _where(self) -> str:
        return self._offer.where if self._offer else self.name

    def _launch_failed(self, error: Exception) -> LaunchFailed:
        """Why a launch failed, by SkyPilot's exception and by what is left of the cluster."""
        where = self._where
        said = sky_server.text_of(error)
        text = explain(said)
        errors = sky_server.sdk().exceptions
        if isinstance(error, errors.ResourcesUnavailableError) and refuses(said):
            return LaunchFailed(f"{where}: refused ({text})", Ended.REFUSED)
        if isinstance(error, errors.ResourcesUnavailableError):
            return LaunchFailed(f"{where}: no capacity ({text})", Ended.NO_CAPACITY)
        left = sky_api.rented([self.name], refresh=True)
        if isinstance(error, sky_server.SkyUnavailable):  # it answers again; no cloud took anything away
            return LaunchFailed(f"{where}: {text}", Ended.LAUNCH_FAILED)
        if not left:
            return LaunchFailed(f"{where}: the cluster vanished while it was set up ({text})", Ended.PREEMPTED)
        if left[0].status == "INIT":
            return LaunchFailed(f"{where}: setup failed ({text})", Ended.SETUP_FAILED)
        return LaunchFailed(f"{where}: {text}", Ended.LAUNCH_FAILED)

    def _gone(self, error: Exception) -> Ending:
        how = Ended.AUTODOWNED if self._was_autostopping else Ended.PREEMPTED
        return Ending(None, how, f"{self.name} does not exist any more: {sky_server.text_of(error)}")

    def _unreachable(self, error: Exception) -> Ending | None:
        """SkyPilot could not ask the node: ask the cloud whether the node is still there."""
        left = sky_api.rented([self.name], refresh=True)
        if not left:
            return self._gone(error)
        self._was_autostopping = left[0].status == "AUTOSTOPPING"
        return None  # there, but not answering: silence past the deadline decides

    def _ended(self, job: Job) -> Ending:
        self._job = job
        tail = self.log_tail(CODE_TAIL_LINES)
        last = tail[-1] if tail else str(job.status)
        if job.status == "FAILED_SETUP":
            return Ending(None, Ended.SETUP_FAILED, f"setup failed: {last}")
        codes = [int(found[1]) for line in tail if (found := CODE_LINE.search(line))]
        if job.status == "SUCCEEDED" or codes:
            return Ending.of_runner(codes[-1] if codes else 0, last)
        return Ending(None, Ended.JOB_FAILED, f"SkyPilot says {job.status}: {last}")

    def _launch_log(self, lines: int) -> list[str]:
        if not self._log_path.exists():
            return []
        text = sky_server.ANSI.sub("", self._log_path.read_text(encoding="utf-8", errors="replace"))
        return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]
