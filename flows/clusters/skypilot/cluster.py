"""One cell on one cluster of its own, through SkyPilot. Nothing below us recovers: only our flow does.

Three witnesses say how a node is, and none is trusted alone: the heartbeat in the store, SkyPilot's job status, and the
cloud's own word. While the heartbeat is fresh nobody else is asked: a question to SkyPilot costs the node an ssh login.
The cloud is asked by a forced refresh: a reclaimed cluster still reads UP until somebody refreshes.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.clusters import clouds
from flows.clusters.answers import Answer, MayYetCome, NoAnswer, answer_of, answered, asked
from flows.clusters.protocol import CellJob, Ending
from flows.clusters.skypilot import api as sky_api
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.api import Job
from flows.clusters.skypilot.launch_watch import LaunchBounds, LaunchWatch
from flows.clusters.skypilot.remedies import launch_failed, was_raced
from flows.telling import once_in_a_row
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import MachineEnd, Offer

if TYPE_CHECKING:
    from flows.clusters.clouds.aws import ClusterInstances

LOG = logging.getLogger(__name__)
FRESH_S = 20.0  # a heartbeat younger than this (four beats) is believed; SkyPilot is not asked
ASK_EVERY_S = 10.0  # pause between two questions to SkyPilot about a silent node; each takes 1 to 3 s

CODE_LINE = re.compile(r"specsweep: node runner ended with code (\d+)")
"""What the tasks of sky/ print last: SkyPilot itself keeps only that a job failed, not its exit code."""

CODE_TAIL_LINES = 40
DOWN_TRIES = 3  # how often a machine is taken down before its error stands: a lock may be another's now
DOWN_PAUSE_S = 5.0  # pause before the next try; short, as a flow has half a minute after Ctrl-C
PATIENCE_S = 60.0  # how long an answer is waited for; SkyPilot's own takes 1 to 20 s


class _Questions:
    """Asked one at a time: one without an answer stands in the way of the next, and of nobody else."""

    def __init__(self) -> None:
        self._open: Future[Any] | None = None

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer to a question, or what it raises; NoAnswer if there is none within `PATIENCE_S`."""
        if self._open is not None and not self._open.done():
            raise NoAnswer("an earlier question has no answer yet")
        answer = asked(question)
        self._open = answer
        return answer_of(answer, PATIENCE_S)


class _Submitted(Exception):
    """A launch that would be sent again has submitted its job: a second one would wait behind it on the same node."""


class SkyCluster:
    """A cluster whose name follows from its run and cell."""

    def __init__(
        self,
        name: str,
        task_of: Callable[[CellJob], AbstractContextManager[Any]],
        offer: Offer | None,
        log_path: Path,
        stopped: Callable[[], bool],
        bounds: LaunchBounds,
    ) -> None:
        """`task_of` makes a SkyPilot task, good within its block; `stopped` and `bounds` cut a launch short."""
        self.name = name
        self._task_of = task_of
        self._offer = offer
        self._log_path, self._stopped, self._bounds = log_path, stopped, bounds
        self._questions = _Questions()
        self._job = Job(None, None)
        self._begun: int | None = None
        """Where in the log its launch begins; None: it was not launched by us."""
        self._since_s = 0.0  # when its launch was asked for, seconds since 1970
        self._goes_on = False  # SkyPilot, with a launch that was cut short
        self._asked_at = 0.0
        self._was_autostopping = False
        self._told = once_in_a_row(LOG.warning)

    def adopt(self) -> bool:
        """Take over a cluster of this name whose runner was submitted and has not ended (see `Cluster.adopt`)."""
        if not sky_api.rented([self.name]):
            return False
        try:
            self._job = self._questions.ask(partial(sky_api.newest_job, self.name))
        except sky_server.sky_errors():
            return False  # vanished, or not up: the next launch starts from scratch
        except NoAnswer as error:
            self._say(error)
            return False
        return self._job.job_id is not None and not self._job.over

    def launch(self, job: CellJob) -> float | None:
        """Rent the cluster and submit the runner (see `Cluster.launch`)."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._begun = self._log_path.stat().st_size if self._log_path.exists() else 0
        self._since_s = time.time()
        requests: list[Any] = []
        was_sent = False

        def cancel() -> None:
            for request_id in requests[-1:]:
                sky_server.cancel_request(request_id)

        def is_submitted() -> bool:
            found = self.adopt()
            if watch.cut is not None:  # that took minutes
                raise watch.cut
            return found

        def send(sky: Any) -> Any:
            nonlocal was_sent
            if watch.cut is not None:  # nobody waits for it any more
                raise watch.cut
            if not was_sent:
                was_sent = True
                return sky.launch(task, cluster_name=self.name)
            if (request_id := sky_api.launch_again(self.name, task, is_submitted)) is None:
                raise _Submitted
            return request_id

        watch = LaunchWatch(self.name, self._offer, self._bounds, self._stopped, cancel)

        def submit() -> Any:
            return watch.result_of(partial(sky_server.call, send, self._log_path, requests.append))[0]

        with self._task_of(job) as task, watch.watching():
            try:
                try:
                    job_id = submit()
                except sky_server.sdk().exceptions.ResourcesUnavailableError:
                    if watch.cut is not None or not was_raced(self._launch_log()):
                        raise
                    job_id = submit()  # no place failed: another launch was there first
                self._job = Job(None if job_id is None else int(job_id), None)
            except _Submitted:
                pass
            except Exception as error:
                if watch.cut is not None:
                    self._goes_on = isinstance(error, NoAnswer)
                    raise watch.cut from error
                left = partial(self._questions.ask, partial(sky_api.rented, [self.name], refresh=True))
                where = self._offer.where if self._offer else self.name
                raise launch_failed(error, where, self._launch_log(), left) from error
        if watch.cut is not None:
            raise watch.cut
        return watch.rented_at_s

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        """How it ended; SkyPilot is asked only if the heartbeat is not fresh (see `Cluster.look`)."""
        now = time.monotonic()
        is_fresh = heard_s is not None and heard_s < FRESH_S
        if not insist and (is_fresh or now - self._asked_at < ASK_EVERY_S):
            return None
        self._asked_at = now
        try:
            word = self._questions.ask(self._word)
        except Exception as error:  # whatever it is, the other witness, the heartbeat, decides when silence is too long
            self._say(error)
            return None
        if isinstance(word, Job):
            return self._ended(word) if word.over else None
        return word

    def _say(self, error: Exception) -> None:
        self._told(f"{self.name} can't be asked now: {sky_server.text_of(error)}")

    def _word(self) -> Job | Ending | None:
        """SkyPilot's word on the job, or its and the cloud's that there is no cluster; None: there is, but silent."""
        try:
            return sky_api.newest_job(self.name)
        except sky_server.sky_errors() as error:
            is_known = not isinstance(error, sky_server.sdk().exceptions.ClusterDoesNotExist)
            if is_known and (left := sky_api.rented([self.name], refresh=True)):
                self._was_autostopping = left[0].status == "AUTOSTOPPING"
                return None  # there, but not answering: silence past the deadline decides
            how = Ended.AUTODOWNED if self._was_autostopping else Ended.PREEMPTED
            return Ending(None, how, f"{self.name} does not exist any more: {sky_server.text_of(error)}")

    def log_tail(self, lines: int) -> list[str]:
        """The last lines of the job's log; of the launch's if there was no job (see `Cluster.log_tail`)."""
        if self._job.job_id is None and self._begun is not None:
            return self._launch_log()[-lines:]
        try:
            return self._questions.ask(partial(sky_api.job_log, self.name, self._job.job_id, lines))
        except Exception as error:
            return [f"(the job's log can't be had: {sky_server.text_of(error)})"]

    def is_there(self) -> bool:
        """Whether its machine is still rented, as its cloud says (see `Cluster.is_there`)."""
        return bool(self._questions.ask(partial(sky_api.rented, [self.name], refresh=True)))

    def down(self) -> None:
        """Terminate it, at its cloud first: SkyPilot takes 10 to 20 s, which are paid for (see `Cluster.down`).

        NoAnswer: SkyPilot doesn't say that it is down, and its cloud was not asked or doesn't, either; or the `down`
        could not be called off.
        """
        for tried in range(1, DOWN_TRIES + 1):
            is_ended = self._is_ended_by_its_cloud() and not self._goes_on
            try:
                sky_api.take_down(self.name, is_ended=is_ended)
                return
            except NoAnswer as error:
                if not is_ended or isinstance(error, MayYetCome):
                    said = f"{self.name} may still be up and cost money: {error}"
                    raise NoAnswer(f"{said}; to end it: `bin/sky down -y {self.name}`, `bin/sweep reap`") from error
                LOG.warning("%s was ended at its cloud, though %s", self.name, error)
                return
            except Exception as error:
                if tried == DOWN_TRIES or isinstance(error, sky_server.SkyUnavailable):  # which was tried already
                    raise
                LOG.warning("%s is not down, and tried again: %s", self.name, sky_server.text_of(error))
            time.sleep(DOWN_PAUSE_S)

    def _is_ended_by_its_cloud(self) -> bool:
        """Have its cloud end its machines by id, and say whether it did; else SkyPilot says what is wrong."""
        if self._offer is None:
            return False
        machines, cloud = self._machines, self._offer.cloud
        by_name = partial(clouds.terminate, self.name, cloud)
        end = by_name if machines is None else partial(machines.terminate, self._since_s)
        try:
            return answered(end, PATIENCE_S)
        except Exception as error:  # whatever it is, SkyPilot is asked all the same
            LOG.warning("%s is left to SkyPilot: %s", self.name, sky_server.text_of(error))
            return False

    def machine_end(self, since_s: float) -> MachineEnd | None:
        """EC2's word; SkyPilot keeps none (see `Cluster.machine_end`)."""
        return None if self._machines is None else self._machines.last_end(since_s)

    @cached_property
    def _machines(self) -> ClusterInstances | None:
        from flows.clusters.clouds.aws import machines_of

        return machines_of(self.name, self._offer)

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

    def _launch_log(self) -> list[str]:
        if not self._log_path.exists():
            return []
        text = sky_server.ANSI.sub("", self._log_path.read_bytes()[self._begun :].decode("utf-8", errors="replace"))
        return [line.rstrip() for line in text.splitlines() if line.strip()]
