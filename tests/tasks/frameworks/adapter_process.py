"""An adapter in its own environment, as the node runner keeps it: alive over many jobs."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from configs.checkout import ROOT
from tasks.frameworks.job import Job, Result, read_result, result_of, write


class Adapter:
    """Sends jobs to a process and reads their results."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process, self.folder, self.jobs = process, folder, 0

    def run(self, job: Job) -> Result:
        """What came of a job."""
        self.jobs += 1
        path = self.folder / f"job-{self.jobs}.json"
        write(path, job)
        assert self.process.stdin and self.process.stdout
        print(path, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == f"done {path}\n"
        return read_result(result_of(path))


@contextmanager
def adapter(python: Path, module: str, folder: Path, env: Mapping[str, str] | None = None) -> Iterator[Adapter]:
    """A running adapter; it ends when its stdin does."""
    argv = [str(python), "-m", module]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    with (
        (folder / "adapter.log").open("w", encoding="utf-8") as log,
        subprocess.Popen(argv, **pipes, stderr=log, text=True, cwd=folder, env=environ) as process,  # type: ignore[call-overload]
    ):
        yield Adapter(process, folder)
        assert process.stdin
        process.stdin.close()
        assert process.wait(timeout=60) == 0
