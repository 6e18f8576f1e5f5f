"""This machine as a cluster: the node runner as a subprocess in its own small environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from configs import secrets
from configs.checkout import ROOT
from flows.clusters.protocol import CellJob, CellNeed, Cluster, Ending, Launch, LaunchFailed
from tasks.engine import container
from tasks.engine.machine import cell_workdir
from tasks.host import environments, process_group
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import Offer

STOP_GRACE_S = 60.0  # how long a node runner may take to stop its engine and close its attempt before it is killed


class LocalSite:
    """This machine: always available, and free."""

    def choose(self, need: CellNeed) -> Launch:
        """Always here, whatever the cell needs."""
        return Launch(None)

    def cluster(self, cell_key: str, offer: Offer | None) -> Cluster:
        """One subprocess per cell; this machine has no offers."""
        return LocalCluster()

    def ended(self, cell_key: str, offer: Offer, loss: Ended | None, detail: str = "") -> None:
        """Nothing to remember: this machine has no zones."""


class LocalCluster:
    """One node runner on this machine; it ends with the process that launched it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log_path: Path | None = None
        self._workdir: Path | None = None

    def adopt(self) -> bool:
        """Never: a local runner ends with the flow that started it."""
        return False

    def launch(self, job: CellJob) -> None:
        """Start `python -m tasks.cell` (see `Cluster.launch`)."""
        python = environments.python_of("node")
        if python is None:
            raise LaunchFailed("the node environment is not installed: run `bin/environment node`")
        self._workdir = cell_workdir(job.run_id, job.cell_key)
        self._workdir.mkdir(parents=True, exist_ok=True)
        self._log_path = self._workdir / "node.log"
        argv = [str(python), "-m", "tasks.cell", "--with-parent"]
        argv += ["--store", job.store_url, "--run", job.run_id, "--cell", job.cell_key]
        argv += [] if job.leg is None else ["--leg", str(job.leg)]
        hidden = ("PYTHONDONTWRITEBYTECODE", *secrets.NAMES)
        env = {k: v for k, v in os.environ.items() if k not in hidden and not k.startswith(secrets.FOR_NODES)}
        with self._log_path.open("wb") as log, secrets.handed(secrets.in_environment()) as fd:
            self._process = subprocess.Popen(
                [*argv, "--secrets-fd", str(fd)],
                cwd=ROOT,
                env=env | {"PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(fd,),
            )

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        """The node runner's exit code (see `Cluster.look`)."""
        code = None if self._process is None else self._process.poll()
        return None if code is None else Ending.of_runner(code)

    def log_tail(self, lines: int) -> list[str]:
        """The last lines of the node's log."""
        if self._log_path is None or not self._log_path.exists():
            return []
        return self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]

    def is_there(self) -> bool:
        """Whether its runner lives; this machine stays."""
        return self._process is not None and self._process.poll() is None

    def down(self) -> None:
        """Stop the runner, gently for `STOP_GRACE_S`, and then any engine and framework that it left."""
        if self._process is None or self._workdir is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        process_group.end_all_recorded(self._workdir)
        container.remove_all(self._workdir)

    def machine_end(self, since_s: float) -> None:
        """Always None: this machine goes on."""
