"""Secrets on rented nodes: every process is looked at through a whole night, and every file after it."""

from __future__ import annotations

import stat

import pytest

from tests.cloud.night import CANARY, STORE_CANARY
from tests.cloud.reclaims import ReclaimedNight, holds

pytestmark = [pytest.mark.cloud, pytest.mark.slow]


@pytest.mark.parametrize("phase", ["bin/node setup", "bin/node run", "tasks.cell", "fake_engine.py"])
def test_each_phase_was_seen(survived: ReclaimedNight, phase: str) -> None:
    assert any(phase in command for command in survived.watch.commands)


def test_no_process_shows_a_secret(survived: ReclaimedNight) -> None:
    assert survived.watch.leaks == set()


def test_skypilots_server_has_no_token(survived: ReclaimedNight) -> None:
    shown = survived.watch.of_users
    assert any(needle == STORE_CANARY and "sky.server" in command for needle, command in shown), "it rents with the key"
    assert not [command for needle, command in shown if needle == CANARY and "sky.server" in command]


def test_the_engine_finds_the_token_in_a_file_of_its_own(survived: ReclaimedNight) -> None:
    assert survived.watch.token_files == {(0o600, CANARY)}


def test_the_node_had_no_file_with_one_and_no_credentials_of_the_users(survived: ReclaimedNight) -> None:
    names = [path.name for path in survived.node_files]
    assert any(name.startswith("sky_job_") for name in names), "SkyPilot's own script of the job is among them"
    assert survived.node_leaks == []
    assert "credentials" not in names and ".specsweep-secrets" not in names


def test_no_file_and_no_object_is_left_with_one(survived: ReclaimedNight) -> None:
    found = [str(path) for path in survived.lab.places.root.rglob("*") if holds(path, CANARY)]
    found += [str(path) for path in survived.folder.rglob("*") if holds(path, CANARY, STORE_CANARY)]
    store = survived.ledger.store
    found += [key for key in store.list("") if CANARY.encode() in (store.get(key) or b"")]
    assert found == []
    private = survived.lab.places.home / ".sky" / "api_server"
    kept = [path for path in survived.lab.places.root.rglob("*") if holds(path, STORE_CANARY)]
    assert all(path.is_relative_to(private) for path in kept), "SkyPilot's own records of requests, in a folder of 0700"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
