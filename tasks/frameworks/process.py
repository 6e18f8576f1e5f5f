"""The runner's side of an adapter: one process per framework, kept because importing one takes tens of seconds.

Its processes are marked and written down, so that the next runner can end them after a kill with -9.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Final, Self

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.evals.suites import Framework as FrameworkName
from tasks.frameworks.job import Job, Result, read_result, result_of, write
from tasks.host import environments, process_group
from tasks.host.environment_spec import user_cache

_INHERITED: Final = frozenset({
    "PATH", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "LD_LIBRARY_PATH", "SPECSWEEP_STATE",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
})  # fmt: skip
"""All that an adapter gets of this process's variables, and LC_*. Whatever else a shell has stays outside: secrets by
any name, proxies, what would steer a framework from outside of the sweep's file."""

DYING_S: Final = 5.0  # how long a process may take to leave after it closed its pipe, for its own exit code
_LAST_BYTES: Final = 65536  # how much of a log's end is searched for its last line
_LONGEST_LINE: Final = 300  # characters of a log's last line that an error repeats
_MOST_NAMED: Final = 3  # items that an error names


class FrameworkFailed(SpecsweepError):
    """A framework can't run, died, failed, or did not bring what it was asked for."""


class Framework:
    """One adapter process. Jobs go to it one after another."""

    def __init__(self, name: str, python: Path, workdir: Path, module: str | None = None) -> None:
        """Nothing starts before the first job; `workdir` is absolute, `module` None: that of the framework's name."""
        self.name = name
        self.log_path = workdir / "adapter.log"
        self.record_path = workdir / f"framework{process_group.RECORD_SUFFIX}"
        self._argv = (str(python), "-P", "-m", module or f"{__package__}.{name.replace('-', '_')}_adapter")
        # what an import prints before the adapter has stdout for itself; in the log it could come after the last words
        self._strays_path = workdir / "adapter.stdout"
        self._workdir = workdir
        self._group: process_group.ProcessGroup | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def run(self, job: Job, name: str) -> Result:
        """Do a job whose files are called `name`; if this is cancelled, the process ends at once.

        Raises FrameworkFailed: it could not start, died, reported an error, or did not bring one sample per item.
        """
        path = self._workdir / f"{name}.json"
        async with self._turn:
            try:
                process = await self._running()
                result_of(path).unlink(missing_ok=True)
                Path(job.workdir).mkdir(parents=True, exist_ok=True)
                write(path, job)
                await self._done(process, path)
            except BaseException:  # a cancelled wait too: the adapter must not go on asking the engine
                await self.stop()
                raise
        result = read_result(result_of(path))
        complaint = result.error or _complaint(job, result)
        if complaint:
            raise FrameworkFailed(f"{self.name} failed: {complaint}; its log: {self.log_path}")
        return result

    async def warm_up(self) -> None:
        """Start the process now, so that its imports are over when the first job comes; FrameworkFailed: it can't."""
        async with self._turn:
            await self._running()

    async def stop(self) -> None:
        """End the process and whatever it started. May be called at any time, and more than once."""
        if self._group is not None:
            process_group.stop(self._group, terminate=())  # nothing in it is worth a grace: the log has the answers
            shutil.rmtree(self._group.scratch, ignore_errors=True)
            self._group = None
        process, self._process = self._process, None
        if process is not None:
            await process.communicate()  # reads to the end and reaps
        self.record_path.unlink(missing_ok=True)

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        await self.stop()
        process_group.end_recorded(self.record_path)
        self._group = process_group.new_group(process_group.FRAMEWORK_VARIABLE)
        process_group.record(self._group, self.record_path)
        self._group.scratch.mkdir(parents=True)
        home = self._workdir / "home"
        home.mkdir(exist_ok=True)
        env = adapter_environment(home) | self._group.env | {"TMPDIR": str(self._group.scratch)}
        with self.log_path.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._argv,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    env=env,
                    cwd=self._workdir,
                    start_new_session=True,
                )
            except OSError as error:
                raise FrameworkFailed(f"{self.name}: can't start {self._argv[0]}: {error.strerror}") from error
        return self._process

    async def _done(self, process: asyncio.subprocess.Process, path: Path) -> None:
        """Hand the job over and wait until its result lies there."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{path}\n".encode())
            await process.stdin.drain()
            while said := await process.stdout.readline():
                if said == f"done {path}\n".encode():
                    return
                with self._strays_path.open("ab") as strays:
                    strays.write(said)
        except ConnectionError:
            pass  # it closed its end of the pipe, and is gone or about to be
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), DYING_S)
        await self.stop()
        raise FrameworkFailed(
            f"{self.name} died (exit code {process.returncode}); its last words: {self._last_line()}; "
            f"its log: {self.log_path}"
        )

    def _last_line(self) -> str:
        with self.log_path.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LAST_BYTES))
            lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:_LONGEST_LINE] if lines else "none"


class Frameworks:
    """The frameworks of one cell, by name; leaving the `async with` ends them all."""

    def __init__(self, workdir: Path) -> None:
        self.workdir = workdir.absolute()
        self._started: dict[FrameworkName, Framework] = {}

    def get(self, name: FrameworkName) -> Framework:
        """The framework, the same each time. Raises FrameworkFailed: its environment is not installed."""
        if name not in self._started:
            python = environments.python_of(name)
            if python is None:
                raise FrameworkFailed(f"the environment {name!r} is not installed: run `bin/environment {name}`")
            self._started[name] = Framework(name, python, self.workdir / name)
        return self._started[name]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for framework in self._started.values():
            await framework.stop()


def adapter_environment(home: Path) -> dict[str, str]:
    """The few variables that may be known inside; the checkout to import from; caches under `home`."""
    if not (nltk_data := os.environ.get("NLTK_DATA")):
        folder = user_cache() / "nltk_data"  # of the user, so that a node downloads it once
        folder.mkdir(parents=True, exist_ok=True)
        nltk_data = str(folder)
    return {name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith("LC_")} | {
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "HF_HOME": str(home / "huggingface"),
        # items come with the job: those of the hub would not be the items of the other frameworks
        "NLTK_DATA": nltk_data,
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "NO_PROXY": "*",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _complaint(job: Job, result: Result) -> str | None:
    """What is wrong with the samples; None if there is exactly one for each item that was to be asked or graded."""
    asked = Counter(item.item_id for item in job.items if job.do == "ask" or item.item_id in job.answers)
    brought = Counter(sample.item_id for sample in result.samples)
    unknown = [item_id for item_id in brought if item_id not in asked]
    twice = [item_id for item_id in brought - asked if item_id in asked]
    for what, ids in (("missing", list(asked - brought)), ("brought more than once", twice), ("unknown", unknown)):
        if ids:
            named = ", ".join([*ids[:_MOST_NAMED], *(["..."] if len(ids) > _MOST_NAMED else [])])
            return f"{len(ids)} of {len(job.items)} items {what}: {named}"
    return None
