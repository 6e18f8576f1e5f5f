"""Engines side by side: each worker of the tests has processors of its own."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_processors() -> None:
    """Two vLLMs on the CPU bind their threads to the same core; held to another one each, neither slows the other."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    processors = sorted(os.sched_getaffinity(0))
    if 1 < workers <= len(processors):
        os.sched_setaffinity(0, processors[number::workers])
