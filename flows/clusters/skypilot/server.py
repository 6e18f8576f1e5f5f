"""SkyPilot's API server as this project uses it: started when it is gone, and asked again when it comes back.

Every call that fails because the server is gone starts the server again and is repeated; SkyPilot's requests are
idempotent towards a cluster's name. The server is started outside our process groups: it serves all flows of a user.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import psutil

from configs.errors import SpecsweepError
from flows.clusters.answers import LOOK_S, NoAnswer, answered
from flows.clusters.skypilot import home as sky_home
from tasks.host import process_group

SERVER_START_S = 180.0  # how long an API server may take to answer; 5 to 42 s were seen
ANSWER_S = 60.0  # how long a server that has started may leave health checks unanswered: it is making its executors

PORT_FREE_S = 75.0
"""How long to repeat a start that finds its port taken though nobody listens. SkyPilot's ports are among those that
Linux gives to outgoing connections, and keeps for 60 s."""

PORT_TAKEN = ("is not available", "is already in use by another process", "Address already in use")
"""Part of the last words of a server that found the port of its API, or of its queue (at two moments), taken."""

SERVER_TRIES = 6  # how often one call may find the server gone or broken before it gives up
SERVER_PAUSE_S = 3.0  # pause before the next try; a server that has just been restarted answers 500 for some seconds
ANSI = re.compile(r"\x1b\[[0-9;]*m")

TURN_PAUSE_S = 0.2  # between two looks at whether another process is still starting it

SERVER = "sky.server.server"  # module that an API server runs; its own children have other command lines
GRACE_S = 10.0  # how long killed processes may take to be gone
_starting = threading.Lock()


class SkyUnavailable(SpecsweepError):
    """SkyPilot's API server can't be reached or started; the text says what to do."""


def sdk() -> Any:
    """The `sky` module, imported on first use (seconds) and in its own home."""
    sky_home.enter()
    import sky

    return sky


def sky_errors() -> tuple[type[Exception], ...]:
    """What SkyPilot raises when a cluster can't be asked: gone, not up, unreachable over ssh, cloud not answering."""
    errors = sdk().exceptions
    return (
        errors.ClusterDoesNotExist,
        errors.ClusterNotUpError,
        errors.ClusterStatusFetchingError,
        errors.FetchClusterInfoError,
        errors.CommandError,
        errors.NetworkError,
        errors.CachedClusterUnavailable,
        errors.SkyletInternalError,
        errors.SkyletUnavailableError,
    )


def text_of(error: BaseException) -> str:
    """An error of SkyPilot on one line, without colours; never empty."""
    return " ".join(ANSI.sub("", str(error)).split()) or type(error).__name__


def server_url() -> str:
    """Address of the API server that this process would talk to."""
    sdk()
    from sky.server import common

    return str(common.get_server_url())


def ensure_server() -> None:
    """Start the API server if it does not answer; SkyUnavailable if it is remote, or does not start."""
    sky = sdk()
    with _starting:
        if _healthy(sky):
            return
        if os.environ.get("SKYPILOT_API_SERVER_ENDPOINT"):
            raise SkyUnavailable(
                f"the SkyPilot API server at {server_url()} does not answer: start it, or log in again"
            )
        log_path = Path.home() / ".sky" / "specsweep-api-start.log"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.with_suffix(".lock").open("ab") as lock:
            _take_turn(lock)
            if not _healthy(sky):
                end_leftovers(Path.home())
                _start(sky, log_path)


def _take_turn(lock: BinaryIO) -> None:
    """Wait for other flows of this user, so that they start one server, not one each; SkyUnavailable after `LOOK_S`."""
    deadline = time.monotonic() + LOOK_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:  # it was stopped, perhaps by Ctrl-Z
                said = f"another process has been starting SkyPilot's API server for {LOOK_S:.0f} s"
                raise SkyUnavailable(f"{said}; remedy: end what holds {lock.name}") from None
        time.sleep(TURN_PAUSE_S)


def _start(sky: Any, log_path: Path) -> None:
    deadline: float | None = None  # from the end of the first try: on a busy machine that may take minutes
    while True:
        code = _run_start(log_path)
        if _answers(sky, ANSWER_S if code == 0 else 0.0):
            return
        deadline = deadline or time.monotonic() + PORT_FREE_S
        words = _last_words()
        is_taken = any(taken in words for taken in PORT_TAKEN)
        is_other = is_taken and _somebody_listens()
        if not is_taken or is_other or time.monotonic() > deadline:
            other = f"end what listens at {server_url()}, or set {sky_home.PORT_VARIABLE}"
            remedy = other if is_other else "`bin/sky api stop`"
            ended = f"did not end within {SERVER_START_S:.0f} s" if code is None else f"ended with code {code}"
            raise SkyUnavailable(f"`sky api start` {ended}: {words}; see {log_path}; remedy: {remedy}")
        time.sleep(SERVER_PAUSE_S)


def _run_start(log_path: Path) -> int | None:
    """Run `sky api start` and return its exit code; None if it did not end."""
    marks = (process_group.ENGINE_VARIABLE, process_group.SESSION_VARIABLE)
    env = {name: value for name, value in sky_home.without_tokens(os.environ).items() if name not in marks}
    private = Path.home() / ".sky" / "api_server"  # its database has what each request brought, keys of a cloud as well
    private.mkdir(parents=True, exist_ok=True)
    private.chmod(0o700)
    try:
        with log_path.open("ab") as log:
            done = subprocess.run(
                [str(Path(sys.executable).parent / "sky"), "api", "start"],
                env=env | sky_home.server_environment(),
                cwd=Path.home(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=SERVER_START_S,
                start_new_session=True,
            )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def _answers(sky: Any, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not _healthy(sky):
        if time.monotonic() >= deadline:
            return False
        time.sleep(SERVER_PAUSE_S)
    return True


def _somebody_listens() -> bool:
    """Whether something that is not an API server listens on its port."""
    address = urlsplit(server_url())
    try:
        socket.create_connection((address.hostname or "127.0.0.1", address.port or 0), timeout=SERVER_PAUSE_S).close()
    except OSError:
        return False
    return True


def _last_words() -> str:
    """The last line of the API server's own log: after a failed start, its exception."""
    path = Path.home() / ".sky" / "api_server" / "server.log"
    if not path.exists():
        return "it wrote no log"
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - 4096))
        lines = log.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")


def call(
    request: Callable[[Any], Any],
    log: Path | None = None,
    started: Callable[[Any], None] = lambda _: None,
    within_s: float | None = None,
) -> Any:
    """The result of one SDK request, or what it raises; SkyUnavailable: its server was gone `SERVER_TRIES` times.

    `request` is given the `sky` module and returns a request id, which `started` gets; `log` gets what is printed. An
    answer that is cut off is asked for again. The request is sent again only if the server has forgotten it. NoAnswer:
    a request without a `log` is not over after `within_s` (`LOOK_S`); a launch has a log, and `LaunchWatch` ends it.
    """
    sky, request_id = sdk(), None

    def ask() -> Any:
        nonlocal request_id
        if request_id is None:
            request_id = request(sky)
            started(request_id)
        if log is None:
            return sky.get(request_id)
        with log.open("a", encoding="utf-8") as stream:
            return sky.stream_and_get(request_id, output_stream=stream)

    for tried in range(1, SERVER_TRIES + 1):
        ensure_server()
        try:
            return answered(ask, within_s or LOOK_S) if log is None else ask()
        except NoAnswer as error:
            raise NoAnswer(f"SkyPilot's API server gave {error}; see `bin/sky api status`") from error
        except Exception as error:
            if _is_forgotten(sky, error):
                request_id = None
            elif not _is_about_server(sky, error):
                raise
            if tried == SERVER_TRIES:
                raise SkyUnavailable(f"SkyPilot's API server went away {tried} times: {text_of(error)}") from error
            time.sleep(SERVER_PAUSE_S)
    raise AssertionError("the last try returns or raises")


def cancel_request(request_id: Any) -> None:
    """End a running request; its waiter gets `RequestCancelled`."""
    call(lambda sky: sky.api_cancel(request_ids=[request_id]))


def _healthy(sky: Any) -> bool:
    from sky.server import common

    try:
        return bool(common.get_api_server_status().status == common.ApiServerStatus.HEALTHY)
    except (sky.exceptions.ApiServerConnectionError, OSError):
        return False


def _is_about_server(sky: Any, error: Exception) -> bool:
    """Whether the API server, rather than the request, failed."""
    import requests

    gone = (
        sky.exceptions.ApiServerConnectionError,
        sky.exceptions.ServerTemporarilyUnavailableError,
        requests.exceptions.ConnectionError,
        requests.exceptions.Timeout,  # its SDK gives a busy server 5 s to take a request
        requests.exceptions.ChunkedEncodingError,
    )
    answer = error.response if isinstance(error, requests.exceptions.HTTPError) else None
    return isinstance(error, gone) or (answer is not None and answer.status_code >= 500)


def _is_forgotten(sky: Any, error: Exception) -> bool:
    """Whether the API server does not know the request, or has given it up: it was started anew meanwhile."""
    unknown = (RuntimeError, "Failed to get request"), (sky.exceptions.ClientError, "Failed to stream logs")
    said = any(isinstance(error, kind) and text in str(error) for kind, text in unknown)
    return said or isinstance(error, sky.exceptions.RequestInterruptedError)


def end_leftovers(home: Path) -> list[int]:
    """Kill what writes into the logs of `home`'s API server, unless that lives. Nobody may start one meanwhile."""
    folders = (home / ".sky" / "api_server", home / "sky_logs" / "api_server")
    lineage = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    writers = []
    for process in psutil.process_iter():
        try:
            if process.pid in lineage or process.uids().real != os.getuid():
                continue
            # a mere reader of logs is none of ours; only Linux tells the mode
            written = [Path(file.path) for file in process.open_files() if getattr(file, "mode", "a") != "r"]
            if any(path.is_relative_to(folder) for path in written for folder in folders):
                if SERVER in " ".join(process.cmdline()):
                    return []
                writers.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    for process in writers:
        with suppress(psutil.NoSuchProcess):  # gone with its siblings
            process.kill()
    psutil.wait_procs(writers, timeout=GRACE_S)
    return [process.pid for process in writers]
