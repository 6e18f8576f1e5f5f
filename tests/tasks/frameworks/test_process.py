"""Processes of a group; and an adapter's, from the runner's side and in its own loop around a FAKE that misbehaves."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from configs.checkout import ROOT
from tasks.frameworks.job import Item, Job, Result, Task, read_result, result_of, write
from tasks.frameworks.process import Framework, FrameworkFailed, Frameworks
from tasks.host import process_group
from tasks.host.process_group import peak_bytes, variables_of
from tests.busy_machine import PATIENCE_S
from tests.tasks.test_cell import wait_until

ITEMS = tuple(Item(f"item-{index}", "?", (), "A", "", {}) for index in range(4))


def job_of(workdir: Path, how: str = "honest") -> Job:
    return Job("ask", Task("gpqa"), ITEMS, "http://127.0.0.1:9/v1", how, 1, 1, True, str(workdir))


def fake(workdir: Path) -> Framework:
    return Framework("fake", Path(sys.executable), workdir, "tests.tasks.frameworks.fake_adapter")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def test_one_process_does_one_job_after_another_and_stop_leaves_nothing(tmp_path: Path) -> None:
    framework = fake(tmp_path)
    first, second = await asyncio.gather(*(framework.run(job_of(tmp_path), name) for name in "ab"))
    await framework.stop()
    await framework.stop()
    assert first.version == second.version and not is_alive(int(first.version))
    assert not list(tmp_path.rglob("*.group.json"))
    assert "an import says hello on stdout" in (tmp_path / "adapter.stdout").read_text()


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ("missing", "1 of 4 items missing: item-3"),
        ("twice", "1 of 4 items brought more than once: item-0"),
        ("unknown", "1 of 4 items unknown: nobody-asked"),
        ("failing", "RuntimeError: out of paper"),
    ],
)
async def test_a_partial_result_is_a_failure_and_the_process_goes_on(tmp_path: Path, how: str, complaint: str) -> None:
    framework = fake(tmp_path)
    before = await framework.run(job_of(tmp_path), "before")
    with pytest.raises(FrameworkFailed, match=complaint) as failed:
        await framework.run(job_of(tmp_path, how), "job")
    assert "\n" not in str(failed.value)
    assert (await framework.run(job_of(tmp_path), "after")).version == before.version
    await framework.stop()


async def test_a_process_that_dies_is_a_failure_with_its_last_words_and_is_started_anew(tmp_path: Path) -> None:
    framework = fake(tmp_path)
    with pytest.raises(FrameworkFailed, match=r"exit code 3.*its last words: the last straw"):
        await framework.run(job_of(tmp_path, "dying"), "job")
    assert len((await framework.run(job_of(tmp_path), "job")).samples) == len(ITEMS)
    await framework.stop()


async def test_a_cancelled_job_ends_the_process_and_what_it_started(tmp_path: Path) -> None:
    waiting = asyncio.create_task(fake(tmp_path).run(job_of(tmp_path, "hanging"), "job"))
    await asyncio.to_thread(wait_until, lambda: text_of(tmp_path / "child"), "the adapter's child")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not is_alive(int(text_of(tmp_path / "child")))


HANGS = """
import asyncio, pathlib, sys
from tests.tasks.frameworks.test_process import fake, job_of
workdir = pathlib.Path(sys.argv[1])
asyncio.run(fake(workdir).run(job_of(workdir, "hanging"), "job"))
"""


def test_what_a_runner_leaves_that_was_killed_with_9_is_found_by_its_record(tmp_path: Path) -> None:
    workdir = tmp_path / "cells" / "some-cell" / "evals" / "fake"
    argv, env = [sys.executable, "-c", HANGS, str(workdir)], os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, env=env) as runner:
        wait_until(lambda: text_of(workdir / "child"), "the adapter's child")
        runner.send_signal(signal.SIGKILL)
    child = int(text_of(workdir / "child"))
    assert is_alive(child)
    assert process_group.end_all_recorded(tmp_path / "cells") == 1
    assert not is_alive(child)
    assert process_group.end_all_recorded(tmp_path / "cells") == 0


async def test_an_adapter_gets_what_is_named_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = (
        "AWS_SECRET_ACCESS_KEY GOOGLE_APPLICATION_CREDENTIALS HF_TOKEN SPECSWEEP_STORE https_proxy TOKEN DATABASE_URL "
        "GITHUB_PAT PREFECT_API_AUTH_STRING OPENAI_BASE_URL PYTHONSTARTUP WHATEVER_THIS_IS"
    )
    for name in outside.split():
        monkeypatch.setenv(name, "mine")
    kept = {"LC_CTYPE": "C.UTF-8", "LANG": "C.UTF-8", "SSL_CERT_FILE": "/certificates", "NLTK_DATA": "/nltk"}
    for name, value in kept.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/kept")
    framework = fake(tmp_path)
    env: dict[str, str] = (await framework.run(job_of(tmp_path), "job")).samples[0].details["env"]
    await framework.stop()
    assert "mine" not in env.values()
    assert env.items() >= kept.items()
    assert env["PATH"].endswith(":/kept")
    assert env["HOME"].startswith(str(tmp_path))
    assert env["HF_HUB_OFFLINE"] == env["HF_DATASETS_OFFLINE"] == "1"


async def test_a_missing_environment_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    async with Frameworks(tmp_path) as frameworks:
        with pytest.raises(FrameworkFailed, match="run `bin/environment hret`"):
            frameworks.get("hret")


MISBEHAVES = """
import sys
from tasks.frameworks.job import Result, serve

def run(job):
    print("a progress bar on stdout")
    if job.task.suite == "exit":
        sys.exit(0)
    if job.task.suite == "raise":
        raise ValueError("one\\ntwo")
    return Result("hret", "1")

serve("hret", run)
"""


class Adapter:
    """An adapter in its own environment, as the node runner keeps it: alive over many jobs."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process, self.folder, self.jobs = process, folder, 0

    def run(self, job: Job) -> Result:
        self.jobs += 1
        path = self.folder / f"job-{self.jobs}.json"
        write(path, job)
        assert self.process.stdin and self.process.stdout
        print(path, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == f"done {path}\n"
        return read_result(result_of(path))


@contextmanager
def adapter(python: Path, module: str, folder: Path, env: Mapping[str, str] | None = None) -> Iterator[Adapter]:
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
        assert process.wait(timeout=PATIENCE_S) == 0


def test_a_failed_job_or_one_that_cant_be_read_is_an_error_and_the_next_one_is_served(tmp_path: Path) -> None:
    (tmp_path / "misbehaves.py").write_text(MISBEHAVES, encoding="utf-8")
    unreadable = tmp_path / "none.json"
    with adapter(Path(sys.executable), "misbehaves", tmp_path) as served:
        assert served.process.stdin and served.process.stdout
        print(unreadable, file=served.process.stdin, flush=True)
        assert served.process.stdout.readline() == f"done {unreadable}\n"
        jobs = [replace(job_of(tmp_path), task=Task(suite), items=()) for suite in ("exit", "raise", "fine")]
        errors = [served.run(job).error for job in jobs]
    assert str(read_result(result_of(unreadable)).error).startswith("FileNotFoundError")
    assert errors == ["SystemExit: 0", "ValueError: one two", None]
    log = (tmp_path / "adapter.log").read_text(encoding="utf-8")
    assert "Traceback" in log and "a progress bar on stdout" in log


@pytest.fixture
def busy() -> Iterator[None]:
    """Every processor has more to do than it can, so that what starts has to wait for one."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    yield
    for each in hogs:
        each.kill()
        each.wait()


def test_a_process_shows_what_it_was_started_with_as_soon_as_it_was_started(busy: None) -> None:
    group = process_group.new_group(process_group.SESSION_VARIABLE)
    mark = f"{group.variable}={group.mark}".encode()
    missed = 0
    for _ in range(60):
        with subprocess.Popen(["sleep", "1000"], env=os.environ | group.env) as process:
            missed += mark not in variables_of(process.pid)
            process.kill()
        assert variables_of(process.pid) == [], "it is gone"
    assert missed == 0


def test_who_carries_another_variable_too_can_be_left_out() -> None:
    group = process_group.new_group(process_group.SESSION_VARIABLE)
    engine = process_group.new_group(process_group.ENGINE_VARIABLE)
    own = [subprocess.Popen(["sleep", "1000"], env=os.environ | group.env | more) for more in ({}, engine.env)]
    assert sorted(process_group.members(group)) == sorted(process.pid for process in own)
    assert process_group.members(group, without=process_group.ENGINE_VARIABLE) == [own[0].pid]
    process_group.stop(group, terminate=[own[0].pid], grace_s=0.0)
    assert [process.wait(PATIENCE_S) for process in own] == [-signal.SIGTERM, -signal.SIGKILL]


def test_a_peak_stays_when_the_memory_was_given_back_and_peaks_add_up() -> None:
    grown = "kept = bytearray(96 * 2**20); del kept; print('grown', flush=True); input()"
    argv = [sys.executable, "-c", grown]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"grown\n"
        alone, own = peak_bytes([process.pid]), peak_bytes([os.getpid()])
        both = peak_bytes([process.pid, os.getpid()])
        assert alone is not None and own is not None and alone > 96 * 2**20
        assert both is not None and both >= alone + own
        process.communicate(b"\n")
    assert peak_bytes([process.pid]) is None, "it is gone"
    assert peak_bytes([]) is None
