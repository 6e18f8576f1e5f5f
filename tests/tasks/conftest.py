"""What tests of the node share; coroutines run in loops of their own, in virtual time if they ask for a `clock`."""

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.expand import expand
from configs.load import load_sweep
from configs.schema import PlannedCell
from tasks.host.environments import ensure
from tests.fake_hub import FakeHub, fake_hub
from tests.fake_run import FakeRun
from tests.tasks.timed_step import Clock


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    with asyncio.Runner(loop_factory=given["clock"].loop if "clock" in given else None) as runner:
        runner.run(pyfuncitem.obj(**given))
    return True


@pytest.fixture
def clock() -> Clock:
    """Virtual time: minutes of waiting take milliseconds."""
    return Clock()


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    return FakeRun(tmp_path)


@pytest.fixture(scope="session")
def ar() -> PlannedCell:
    return expand(load_sweep("speed-bench-tiny")).cells[0]


@pytest.fixture(scope="session")
def mtp() -> PlannedCell:
    return expand(load_sweep("speed-bench-tiny")).cells[1]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A FAKE hub, for a user without a token and with nothing fetched."""
    ensure("lm-eval")
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with fake_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub
