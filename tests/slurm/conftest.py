"""One machine with Slurm for all tests of this folder; where it can't be made they are skipped, and say why."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cloud.checks import SHORT
from tests.slurm.machine import Machine
from tests.slurm.needs import why_not


@pytest.fixture(scope="session")
def new_machine() -> Iterator[Callable[[], Machine]]:
    """Makes machines, not up yet; they go down at the end."""
    if reason := why_not():
        pytest.skip(f"no Slurm here: {reason}")
    made: list[Machine] = []

    def make() -> Machine:
        folder = Path(tempfile.mkdtemp(prefix="slurm", dir=SHORT))
        folder.rmdir()
        made.append(Machine(folder))
        return made[-1]

    yield make
    for machine in made:
        machine.down()


@pytest.fixture(scope="session")
def machine(new_machine: Callable[[], Machine]) -> Machine:
    """The one machine of the session."""
    machine = new_machine()
    machine.up()
    return machine
