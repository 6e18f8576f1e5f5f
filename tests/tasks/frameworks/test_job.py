"""The loop of the adapters, around a framework that misbehaves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tasks.frameworks.job import Job, Task, read_result
from tests.tasks.frameworks.adapter_process import adapter

MISBEHAVES = """
import sys
from tasks.frameworks.job import Result
from tasks.frameworks.job import serve

def run(job):
    print("a progress bar on stdout")
    if job.task.suite == "exit":
        sys.exit(0)
    if job.task.suite == "raise":
        raise ValueError("one\\ntwo")
    return Result("hret", "1")

serve("hret", run)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "misbehaves.py").write_text(MISBEHAVES, encoding="utf-8")
    return tmp_path


def job_of(suite: str, folder: Path) -> Job:
    return Job("ask", Task(suite), (), "http://127.0.0.1:9/v1", "m", 8, 1, True, str(folder))


def test_a_failed_job_is_an_error_in_one_line_and_the_next_one_is_served(folder: Path) -> None:
    with adapter(Path(sys.executable), "misbehaves", folder) as served:
        errors = [served.run(job_of(suite, folder)).error for suite in ("exit", "raise", "fine")]
    assert errors == ["SystemExit: 0", "ValueError: one two", None]
    log = (folder / "adapter.log").read_text(encoding="utf-8")
    assert "Traceback" in log and "a progress bar on stdout" in log


def test_a_job_that_cant_be_read_is_an_error_too(folder: Path) -> None:
    with adapter(Path(sys.executable), "misbehaves", folder) as served:
        assert served.process.stdin and served.process.stdout
        print(folder / "none.json", file=served.process.stdin, flush=True)
        assert served.process.stdout.readline() == f"done {folder / 'none.json'}\n"
    assert str(read_result(folder / "none.result.json").error).startswith("FileNotFoundError")
