"""What several tests share: the repository and the interpreters of its environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.checkout import ROOT
from tasks.host.environments import ensure
from tests.quarters import QUARTERS, commit_of, in_words, left_out, quarter_of, slowest_first

CHOICES = ("all", "commit", *map(str, range(QUARTERS)))


def pytest_addoption(parser: pytest.Parser) -> None:
    said = "slow tests: all of them, the quarter that the commit chooses, or this one"
    parser.addoption("--slow", choices=CHOICES, default="all", help=said)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before `-m` chooses a group: a quarter is one of all slow tests, and the groups must not each make their own."""
    asked = config.getoption("slow")
    if asked != "all":
        quarter = quarter_of(commit_of(ROOT)) if asked == "commit" else int(asked)
        if out := {*left_out(items, quarter)}:
            config.hook.pytest_deselected(items=[*out])
            items[:] = [item for item in items if item not in out]
    items[:] = slowest_first(items)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A quarter without a test of this kind is no error."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.getoption("slow") != "all":
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("slow") == "commit":
        terminalreporter.write_line(in_words(commit_of(ROOT)))


@pytest.fixture(scope="session")
def repo_root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def node_python() -> Path:
    return ensure("node")


@pytest.fixture(scope="session")
def engine_python() -> Path:
    return ensure("engine-cpu")
