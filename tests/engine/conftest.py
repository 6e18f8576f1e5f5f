"""Engines side by side: each worker of the tests has processors of its own, and the longest files are begun first."""

from __future__ import annotations

import os

import pytest

LONGEST_FIRST = (
    "test_real_load.py", "test_real_evals.py", "test_real_engine.py", "test_real_depth.py",
    "test_diffusion.py",  # of two tests: beside so few xdist gives its worker the next file as well, whoever is idle
    "test_real_transformers.py", "test_build.py",
)  # fmt: skip
"""By what they take. What is begun last is short, so that no worker waits long for the other.

By itself xdist begins with the files that have most tests. The long ones have few, and would come last."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


@pytest.fixture(scope="session", autouse=True)
def own_processors() -> None:
    """Two vLLMs on the CPU bind their threads to the same core; held to another one each, neither slows the other."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    processors = sorted(os.sched_getaffinity(0))
    if 1 < workers <= len(processors):
        os.sched_setaffinity(0, processors[number::workers])
