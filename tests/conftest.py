"""What several tests share: the repository and the interpreters of its environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.checkout import ROOT
from tasks.host.environments import ensure


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The root of this repository."""
    return ROOT


@pytest.fixture(scope="session")
def node_python() -> Path:
    """The interpreter of the node environment."""
    return ensure("node")


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """The interpreter of the CPU engine's environment."""
    return ensure("engine-cpu")
