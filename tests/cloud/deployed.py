"""A night as a deployment: its flow run on a Prefect server and a worker of its own, which a test can restart."""

from __future__ import annotations

import os
import signal
import time

import httpx

from flows.terminal.prefect_session import PrefectSession
from tests.cloud.night import Night, orchestrators
from tests.fake_cloud import children
from tests.flows.test_prefect import SELDOM_S, state_of

CODES = {"COMPLETED": 0, "FAILED": 1, "CANCELLED": 1}  # a crash is none: Prefect starts the run again


class Deployed:
    """The flow run of a night that was deployed, as a process is waited for. Use as a context manager."""

    def __init__(self, night: Night) -> None:
        self._night = night
        self._session = PrefectSession(night.state / "prefect" / "deployed", night.settings)
        night.flow_log_path = self._session.home / "worker.log"

    def __enter__(self) -> Deployed:
        self._session.__enter__()
        try:
            self._session.start(lambda _: None)
            parameters = {"name": str(self._night.folder / "sweep.yaml"), "run_id": self._night.run_id}
            self._id = self._session.run("sweep/demo", parameters)
        except BaseException:
            self._session.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._session.stop()

    def poll(self) -> int | None:
        """How it has ended; None: it has not, or its server does not answer."""
        try:
            return CODES.get(state_of(self._session, self._id)["type"])
        except httpx.TransportError:
            return None

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < deadline, f"the flow run has not ended\n{self._night.said()}"
            time.sleep(SELDOM_S)
        return code

    def restart_server(self) -> None:
        server = self._session.pid_of("server")
        for pid in (server, *children(server)):
            os.kill(pid, signal.SIGKILL)
        self._session.spawn_server()

    def die(self) -> None:
        """Server, worker and flow at once, as with their host."""
        for pid in orchestrators(self._night.folder):
            os.kill(pid, signal.SIGKILL)

    def come_back(self) -> None:
        """Server and worker, as after a reboot: the flow run is Prefect's to start again."""
        self._session.spawn_server()
        self._session.spawn_worker()
