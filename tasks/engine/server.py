"""One running engine: started in a session of its own, waited for, watched, and stopped as a whole group."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from configs.errors import SpecsweepError
from configs.secrets import TOKEN, secret
from tasks.engine import container
from tasks.engine.command import EngineCommand, full_environment
from tasks.engine.log import cause, without_prefix
from tasks.engine.machine import asked_nice, give_way, shares_processors
from tasks.host import process_group
from tasks.host.hub import token_variables

POLL_S = 0.25  # pause between two looks at a starting engine
ENGINE_RECORD = f"engine{process_group.RECORD_SUFFIX}"  # beside the log: which processes are the engine's
CAUSE_LINES, TAIL_BYTES = 1000, 262_144  # the log's end that is searched for tracebacks of core, workers and server


class EngineFailed(SpecsweepError):
    """The engine did not start, or died; the text holds the cause from its own log."""


def free_port() -> int:
    """A loopback port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Engine:
    """A served cell. Its exit code is never read: it is 0 even after the engine core was killed."""

    def __init__(self, command: EngineCommand, port: int, workdir: Path, start_timeout_s: float) -> None:
        self.command = command
        self.base_url = f"http://127.0.0.1:{port}"
        self.log_path = workdir / "engine.log"
        self.start_timeout_s = start_timeout_s
        self._record_path = workdir / ENGINE_RECORD
        self._workdir = workdir
        self._healthy = False
        self.nice: int | None = None  # nice value of its session, where it shares processors with the client
        self._process: subprocess.Popen[bytes] | None = None
        self._group: process_group.ProcessGroup | None = None

    async def start(self, tell: Callable[[str], None]) -> float:
        """Seconds until it is healthy; `tell` gets its last log line. Raises EngineFailed: it died, or is too late.

        SpecsweepError as of `asked_nice`, before anything starts.
        """
        nice = asked_nice()
        self._group = process_group.new_group(process_group.ENGINE_VARIABLE)
        process_group.record(self._group, self._record_path)
        container.record(self.command.argv, self._workdir)
        self._group.scratch.mkdir(parents=True)
        env = full_environment(self.command) | self._group.env | {"TMPDIR": str(self._group.scratch)}
        if self.command.reads_hub and not container.is_container(self.command.argv):
            env |= token_variables(self._group.scratch)
        elif self.command.reads_hub and (token := secret(TOKEN)):
            env[TOKEN] = token  # a container sees no file of ours
        started = time.monotonic()
        if self.log_path.exists():  # it is the newest start's; those before are engine-1.log, engine-2.log, ...
            number = 1 + len(list(self._workdir.glob("engine-*.log")))
            self.log_path.rename(self._workdir / f"engine-{number}.log")
        with self.log_path.open("wb") as log:
            log.write((shlex.join(self.command.argv) + "\n").encode())
            log.flush()
            try:
                self._process = subprocess.Popen(
                    self.command.argv,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    env=env,
                    cwd=self._workdir,
                    start_new_session=True,
                )
            except OSError as error:
                raise EngineFailed(f"can't start {self.command.argv[0]}: {error.strerror}") from error
        async with httpx.AsyncClient(base_url=self.base_url, trust_env=False, timeout=2) as client:
            while not await _healthy(client, self.command.served_name):
                self.raise_if_dead()
                waited_s = time.monotonic() - started
                if waited_s > self.start_timeout_s:
                    raise EngineFailed(
                        f"the engine was not healthy after {waited_s:.0f} s; its last words: {self.last_line()}"
                    )
                tell(f"engine starting, {waited_s:.0f} s: {self.last_line()}")
                await asyncio.sleep(POLL_S)
        self._healthy = True
        healthy_s = time.monotonic() - started
        if shares_processors(self.command.on_cpu):  # not before: see `NICE`
            self.nice = await give_way(self._process.pid, nice)
        return healthy_s

    @property
    def alive(self) -> bool:
        """Whether the API server's process still runs."""
        return self._process is not None and self._process.poll() is None

    def raise_if_dead(self) -> None:
        """Raises EngineFailed when the API server's process is gone; the text holds the cause from its log."""
        if not self.alive:
            raise EngineFailed(f"the engine died: {self.cause()}")

    async def cause_of_failure(self, error: Exception) -> EngineFailed:
        """Why a request failed with `error`: the engine's own cause if it dies within 5 s, else `error` itself."""
        for _ in range(20):  # a dying engine answers 500 some seconds before its process ends
            if not self.alive:
                return EngineFailed(f"the engine died during a request: {self.cause()}")
            await asyncio.sleep(POLL_S)
        return EngineFailed(f"a request failed on a living engine: {error!r}; its last words: {self.last_line()}")

    def stop(self) -> None:
        """End the whole group; nothing of it is left afterwards. May be called at any time, and more than once."""
        if self._group is not None:
            # a starting vLLM swallows SIGTERM: the wait would be in vain
            asked = [self._process.pid] if self._process and self._healthy and self.alive else []
            process_group.stop(self._group, terminate=asked)
            shutil.rmtree(self._group.scratch, ignore_errors=True)
        if self._process is not None:
            self._process.wait()
        container.remove(self._workdir)
        self._record_path.unlink(missing_ok=True)

    def last_line(self) -> str:
        """The last line of the log, without its prefixes and cut to 160 characters."""
        lines = self.log_tail(1)
        return without_prefix(lines[0])[:160] if lines else "nothing yet"

    def log_text(self) -> str:
        """All that this start has logged so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def pids(self) -> list[int]:
        """Its living processes; a container's as far as they can be seen from here, and never the runtime's own."""
        found = [] if self._group is None else process_group.members(self._group)
        if self._process is None or not container.is_container(self.command.argv):
            return found
        return [pid for pid in found if pid != self._process.pid]

    def log_tail(self, lines: int) -> list[str]:
        """Up to `lines` last non-empty lines of the log."""
        try:
            with self.log_path.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if line.strip()][-lines:]

    def cause(self) -> str:
        """The last exception in the log that says why, else its last line."""
        return cause(self.log_tail(CAUSE_LINES)) or self.last_line()


async def _healthy(client: httpx.AsyncClient, name: str) -> bool:
    """Whether the server on the port is well, and ours: another one may have taken the port first."""
    try:
        if (await client.get("/health")).status_code != 200:
            return False
        models = await client.get("/v1/models")
        return models.status_code == 200 and name in {model["id"] for model in models.json()["data"]}
    except (httpx.TransportError, ValueError, KeyError, TypeError):
        return False  # nobody is there yet, or whoever answers like this is no OpenAI-compatible server
