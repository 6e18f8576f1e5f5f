"""A Prefect server and worker of our own, apart from the user's; they end with the command that started them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, TextIO
from uuid import uuid4

import httpx

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from tasks.engine.machine import state_dir
from tasks.engine.server import free_port
from tasks.host import process_group
from tasks.host.environment_spec import user_cache
from warehouse.ledger.owner import in_words, owner_name

WORK_POOL = "local"  # name of the process work pool that `prefect.yaml` deploys to
HEALTHY_TIMEOUT_S = 180.0  # how long a server may take to answer; 7 to 47 s were seen on two busy cores
SERVER_GRACE_S = 10.0  # how long the server may take to exit; it holds nothing that is needed afterwards

OUR_SETTINGS = {
    # nothing leaves this machine
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # one by one, the recorder lags by tens of seconds per 1000 tasks and then drops task runs
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    # at its default of 20 s an ephemeral server did not start on two busy cores
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
}
"""How our server, worker and flows are set up; each problem that this prevents was seen, not guessed."""

IN_SCRATCH = "import sys, tempfile; tempfile.tempdir = sys.argv.pop(1); from prefect.cli import app; app()"
"""Prefect's command, its own temporary files in the folder that its first argument names.

A worker writes each flow's variables, keys too, into such a file (3.8.8, `runner/_workspace_starter.py`). Killed with
-9 it leaves that, and nobody else could tell whose it is.
"""


class SessionFailed(SpecsweepError):
    """The server or the worker failed; the text says which and where its log is."""


def our_environment(home: Path, api_url: str | None) -> dict[str, str]:
    """This process's environment with a Prefect of our own in `home`; without `api_url` its server is ephemeral."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env |= OUR_SETTINGS | {"PREFECT_HOME": str(home), "PYTHONPATH": str(ROOT), "PREFECT_LOGGING_COLORS": "false"}
    return env | ({"PREFECT_API_URL": api_url} if api_url else {"PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true"})


def default_home() -> Path:
    """Folder of our own Prefect's profiles, databases and logs."""
    return state_dir() / "prefect"


class PrefectSession:
    """A server and a worker. Use as a context manager; what a killed session left is ended by the next one."""

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None, silence_s: int | None = None) -> None:
        """Choose a free port; nothing is started yet. `settings`: further variables for server, worker and flows.

        `silence_s`: after which a flow run counts as crashed; None: the default of `flows.automations`.
        """
        self.home = home
        self.url = f"http://127.0.0.1:{free_port()}"
        self.group = process_group.new_group(process_group.SESSION_VARIABLE)
        self._settings = dict(settings or {})
        self._silence_s = silence_s
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock: TextIO | None = None

    @property
    def env(self) -> dict[str, str]:
        """Environment of everything that talks to this session's server."""
        return our_environment(self.home, f"{self.url}/api") | self.group.env | self._settings

    def pid_of(self, name: str) -> int:
        """Process id of the session's `server` or `worker`."""
        return self._processes[name].pid

    @property
    def _scratch(self) -> Path:
        return self.home / "worker"

    @property
    def _record(self) -> Path:
        return self.home / "session.group.json"

    def __enter__(self) -> PrefectSession:
        """End what a killed session of this home left, and record this one. Raises SessionFailed: another one lives.

        Prefect's history is dropped with it: a run that a killed session left "Running" would be taken for dead, and
        be started again beside the new one. The ledger is the truth anyway.
        """
        self._lock_home()
        if self._record.exists():
            process_group.end_recorded(self._record)
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        process_group.record(self.group, self._record)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _lock_home(self) -> None:
        """Keep the home from other commands until this session stops, or its process ends."""
        self.home.parent.mkdir(parents=True, exist_ok=True)
        self._lock = self.home.with_suffix(".lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            who = in_words(self._lock.read()) or "another command"
            self._lock.close()
            raise SessionFailed(
                f"{who} runs a sweep through its own Prefect in {self.home}: wait for it, or press Ctrl-C in its "
                "terminal; `bin/sweep run` needs no such Prefect, and SPECSWEEP_STATE=FOLDER makes room for another"
            ) from None
        self._lock.truncate(0)
        self._lock.write(owner_name())
        self._lock.flush()

    def start(self, tell: Callable[[str], None]) -> None:
        """Start server and worker, and deploy all of `prefect.yaml`; SessionFailed if one does not start."""
        tell("starting a Prefect server of our own")
        lay_database(self.home, self.env)
        self.spawn_server()
        silence = [str(self._silence_s)] if self._silence_s else []
        output_of(["-m", "flows.terminal.deploying", *silence], self.env, once=lambda: self._see_it_up(tell))
        self.spawn_worker()  # last: it looks for runs every 10 s, and its first look should find one

    def spawn_server(self) -> None:
        """Start a server on the session's port and database, after killing an earlier one."""
        self._spawn("server", ["server", "start", "--host", "127.0.0.1", "--port", self.url.rpartition(":")[2]])

    def spawn_worker(self, settings: Mapping[str, str] | None = None) -> None:
        """Start a worker on the pool, after killing an earlier one; `settings` are further variables for its flows."""
        self._scratch.mkdir(exist_ok=True)
        arguments = ["worker", "start", "--pool", WORK_POOL, "--type", "process", "--name", "local"]
        self._spawn("worker", arguments, settings, ["-c", IN_SCRATCH, str(self._scratch)])

    def run(self, deployment: str, parameters: Mapping[str, str]) -> str:
        """Have a deployment run, as `prefect deployment run` does; the flow run's id. SessionFailed: it is refused."""
        with httpx.Client(base_url=f"{self.url}/api/deployments/", timeout=60, trust_env=False) as api:
            known = self._answer(lambda: api.get(f"name/{deployment}"))
            # asked again after an answer that was lost, it is still one run
            body = {"parameters": {**parameters}, "idempotency_key": uuid4().hex}
            return str(self._answer(lambda: api.post(f"{known['id']}/create_flow_run", json=body))["id"])

    def _answer(self, ask: Callable[[], httpx.Response]) -> Any:
        """What the server answers once it is up and not locked. Raises SessionFailed: it refuses, or is silent."""
        started = time.monotonic()
        while True:
            self.raise_if_dead()
            try:
                answer = ask()
            except httpx.TransportError as error:
                said = repr(error)
            else:
                if answer.is_success:
                    return answer.json()
                said = f"{answer.status_code} to {answer.request.url.path}, {answer.text[-300:]}"
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    raise SessionFailed(f"the Prefect server said {said}: see {self._log('server')}")
            waited_s = time.monotonic() - started
            if waited_s > HEALTHY_TIMEOUT_S:
                raise SessionFailed(
                    f"the Prefect server did not answer within {waited_s:.0f} s ({said}): see {self._log('server')}"
                )
            time.sleep(0.5)

    def raise_if_dead(self) -> None:
        """Check that the server and the worker still run. Raises SessionFailed: one of them ended by itself."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise SessionFailed(
                    f"the Prefect {name} ended with code {process.returncode}: see {self._log(name)}; "
                    "nothing measured is lost, run the same command again"
                )

    def stop(self) -> None:
        """Stop runners and flows first, so that they close their attempts, then worker and server; nothing is left."""
        server = self._processes.get("server")
        flows = process_group.members(self.group, without=process_group.ENGINE_VARIABLE)
        process_group.ask_to_leave([pid for pid in flows if server is None or pid != server.pid])
        process_group.stop(self.group, terminate=[server.pid] if server else [], grace_s=SERVER_GRACE_S)
        for process in self._processes.values():
            process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._record.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()

    def _see_it_up(self, tell: Callable[[str], None]) -> None:
        started = time.monotonic()

        def ask() -> httpx.Response:
            tell(f"starting a Prefect server of our own, {time.monotonic() - started:.0f} s")
            return httpx.get(f"{self.url}/api/health", timeout=2, trust_env=False)

        self._answer(ask)
        tell("deploying sweep/demo, sweep/full and sweep/nightly")

    def _spawn(
        self,
        name: str,
        arguments: Sequence[str],
        settings: Mapping[str, str] | None = None,
        prefect: Sequence[str] = ("-m", "prefect"),
    ) -> None:
        earlier = self._processes.pop(name, None)
        if earlier is not None:
            earlier.kill()
            earlier.wait()
        with self._log(name).open("ab") as log:
            self._processes[name] = started([*prefect, *arguments], self.env | dict(settings or {}), log)

    def _log(self, name: str) -> Path:
        return self.home / f"{name}.log"


def started(arguments: Sequence[str], env: Mapping[str, str], log: BinaryIO) -> subprocess.Popen[bytes]:
    """`python ARGUMENTS` beside this process, in a session of its own; what it says goes into a log."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=env,
        stdout=log,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


DATABASE = "prefect.db"  # its name in a home


def lay_database(home: Path, env: Mapping[str, str]) -> None:
    """Give a home that has no database an empty one of the installed Prefect's newest schema, or raise CommandFailed.

    A server makes sure of the schema itself, and finds nothing to do.
    """
    if (home / DATABASE).exists():
        return
    template = template_database(env)
    with TemporaryDirectory(dir=home) as folder:
        Path(shutil.copy(template, folder)).replace(home / DATABASE)


def template_database(env: Mapping[str, str] | None = None) -> Path:
    """The empty database that homes of this user and version copy, a megabyte; CommandFailed: it can't be made.

    The first call costs a run of Prefect's own `database upgrade`, in `env`.
    """
    env = our_environment(default_home(), None) if env is None else env
    template = user_cache() / "prefect" / f"{version('prefect')}.db"
    template.parent.mkdir(parents=True, exist_ok=True)
    with template.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            with TemporaryDirectory(dir=template.parent) as folder:
                upgrade = ["-m", "prefect", "server", "database", "upgrade", "-y"]
                output_of(upgrade, dict(env) | {"PREFECT_HOME": folder})
                (Path(folder) / DATABASE).replace(template)
    return template


class CommandFailed(SpecsweepError):
    """It exited non-zero; the text ends with what it said."""


def output_of(arguments: Sequence[str], env: Mapping[str, str], once: Callable[[], None] | None = None) -> str:
    """What `python ARGUMENTS` writes. Raises CommandFailed: it exits non-zero.

    `once` runs beside it; when that is done, it is given a line.
    """
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=env,
        text=True,
        stdin=subprocess.PIPE if once else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            if once:
                once()
            said, complained = process.communicate("\n" if once else None)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise CommandFailed(f"`python {' '.join(arguments)}` failed: {(complained or said).strip()[-600:]}")
    return said
