"""Who is known to be dead: only a process of this very machine, boot and pid namespace that is gone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from configs.checkout import ROOT
from tests.warehouse.ledger.test_ledger import elsewhere, ended_process
from warehouse.ledger.owner import lives_here, owner_name

PARTS = ("host", "machine", "boot", "namespace", "pid", "tick")


def changed(part: str, to: str) -> str:
    """This process's name with another word in one place."""
    parts = dict(zip(PARTS, owner_name().split("/"), strict=True))
    return "/".join((parts | {part: to}).values())


def test_this_process_lives() -> None:
    assert lives_here(owner_name()) is True


def test_a_later_process_with_the_same_id_is_another_one() -> None:
    assert lives_here(changed("tick", "1")) is False


def test_a_process_that_ended_here_is_dead() -> None:
    assert lives_here(ended_process()) is False


@pytest.mark.parametrize(
    "owner",
    [
        changed("host", "another-host"),
        changed("machine", "deadbeef"),
        changed("boot", "deadbeef"),
        changed("boot", ""),
        changed("namespace", "4026532000"),
        changed("namespace", ""),
        elsewhere("a"),
        "host/of/an/earlier/version",
        "",
    ],
    ids=["host", "machine", "boot", "no boot", "namespace", "no namespace", "elsewhere", "earlier version", "nobody"],
)
def test_nobody_knows_of_a_process_that_could_not_be_seen_from_here(owner: str) -> None:
    assert lives_here(owner) is None


@pytest.mark.skipif(
    subprocess.run(["unshare", "-rpf", "true"], capture_output=True, check=False).returncode != 0,
    reason="no user namespaces",
)
@pytest.mark.parametrize("flags", ["-rpf --mount-proc", "-rpf"])
def test_nobody_knows_from_another_pid_namespace(flags: str) -> None:
    code = f"from warehouse.ledger.owner import lives_here; print(lives_here({owner_name()!r}))"
    argv = ["unshare", *flags.split(), sys.executable, "-c", code]
    said = subprocess.run(argv, cwd=ROOT, text=True, capture_output=True, check=True).stdout
    assert said.strip() == "None"
