"""The pocket cloud, up once for all tests of this folder; where it can't run they are skipped, and say why."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.cloud import Lab
from lab.requirements import why_not
from tasks.host.environments import ensure
from tests.cloud.body_shell import BodyShell
from tests.cloud.checks import SHORT, Sky, fine_again, new_lab_folder, nothing_left


@pytest.fixture(scope="session")
def lab_allowed() -> None:
    if reason := why_not(SHORT):
        pytest.skip(f"no pocket cloud here: {reason}")


@pytest.fixture
def new_lab(lab_allowed: None) -> Iterator[Callable[[], Lab]]:
    """Makes labs of the test's own, not up yet; they go down after it."""
    made: list[Lab] = []

    def make() -> Lab:
        made.append(Lab(new_lab_folder()))
        return made[-1]

    yield make
    for lab in made:
        lab.down()


@pytest.fixture(scope="session")
def session_lab(lab_allowed: None) -> Iterator[Lab]:
    lab = Lab(new_lab_folder())
    try:
        lab.up(lambda line: None)
        yield lab
    finally:
        lab.down()


@pytest.fixture
def lab(session_lab: Lab) -> Iterator[Lab]:
    """The session's lab, with room, in fine weather; a test that leaves an instance fails, the next starts clean.

    Where its cloud has died, this test fails and says what the cloud said; the next has a new one.
    """
    if not session_lab.running:
        said = session_lab.paths.log.read_text(encoding="utf-8", errors="replace")[-3000:]
        session_lab.up(lambda line: None)
        pytest.fail(f"the session's cloud has died before this test; it said: {said}")
    yield session_lab
    fine_again(session_lab)
    try:
        nothing_left(session_lab)
    finally:
        for each in session_lab.instances():
            if each.alive:
                session_lab.preempt(each.instance_id)


@pytest.fixture
def boot(lab: Lab, tmp_path: Path) -> Iterator[Callable[..., BodyShell]]:
    """Boots an instance by the cloud's own API, without SkyPilot; it is terminated after the test."""
    booted: list[BodyShell] = []

    def start(zone: str = "us-east-1a") -> BodyShell:
        booted.append(BodyShell.launch(lab, zone, tmp_path))
        return booted[-1]

    yield start
    for shell in booted:
        shell.terminate()


@pytest.fixture
def sky_in() -> Callable[[Lab], Sky]:
    """Makes the runner of `sky` commands against a lab, in its home; a command returns the finished process."""
    binary = ensure("control").parent / "sky"

    def of(lab: Lab) -> Sky:
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        env = os.environ | lab.env | {"HOME": str(lab.paths.home), "XDG_CACHE_HOME": cache, "NO_COLOR": "1"}
        env["PATH"] = f"{binary.parent}{os.pathsep}{env['PATH']}"

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            argv = [str(binary), *arguments]
            return subprocess.run(argv, env=env, cwd=lab.paths.home, capture_output=True, text=True)

        return run

    return of


@pytest.fixture
def sky(lab: Lab, sky_in: Callable[[Lab], Sky]) -> Sky:
    return sky_in(lab)
