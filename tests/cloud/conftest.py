"""The pocket cloud, up once for all tests of this folder; where it can't run they are skipped, and say why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.cloud import Lab
from lab.requirements import why_not
from tests.cloud import checks
from tests.cloud.checks import SHORT, BodyShell, fine_again, nothing_left, silent

LAST = ("test_time_to_live.py", "test_promise.py")
"""The first kills the SkyPilot server that nights look at. The other's nodes have the real engine: by then other tests
leave it more of the processors."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LAST.index(item.path.name) if item.path.name in LAST else -1)


@pytest.fixture(scope="session")
def lab_allowed() -> None:
    if reason := why_not(SHORT):
        pytest.skip(f"no pocket cloud here: {reason}")


@pytest.fixture
def new_lab(lab_allowed: None) -> Iterator[Callable[..., Lab]]:
    """Makes labs of the test's own, not up yet unless asked for; they go down after it."""
    made: list[Lab] = []

    def make(*, up: bool = False) -> Lab:
        made.append(checks.new_lab())
        if up:
            made[-1].up(silent)
        return made[-1]

    yield make
    for lab in made:
        lab.down()


@pytest.fixture(scope="session")
def session_lab(lab_allowed: None) -> Iterator[Lab]:
    lab = checks.new_lab()
    try:
        lab.up(silent)
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
        session_lab.up(silent)
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
    booted: list[BodyShell] = []

    def start(zone: str = "us-east-1a") -> BodyShell:
        booted.append(BodyShell.launch(lab, zone, tmp_path))
        return booted[-1]

    yield start
    for shell in booted:
        shell.terminate()
