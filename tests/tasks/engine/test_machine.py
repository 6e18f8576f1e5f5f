"""An engine on its client's own processors gives way to it, where the kernel groups sessions."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.load import load_engine
from tasks.engine.machine import NICE, give_way, shares_processors

OWN_GROUP = Path("/proc/self/autogroup")

groups_sessions = pytest.mark.skipif(
    not OWN_GROUP.exists() or not OWN_GROUP.read_text(), reason="this kernel groups no sessions"
)


@pytest.fixture
def session() -> Iterator[int]:
    """A process in a session of its own."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process.pid
        process.kill()


@groups_sessions
def test_a_session_is_nice_to_others_and_this_one_stays_as_it_is(
    session: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before = OWN_GROUP.read_text()
    assert asyncio.run(give_way(session)) == NICE
    assert Path(f"/proc/{session}/autogroup").read_text().split()[1:] == ["nice", str(NICE)]
    assert OWN_GROUP.read_text() == before
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "nice 15" in said


def test_where_the_kernel_has_no_groups_that_is_said_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert asyncio.run(give_way(gone.pid)) is None
    assert "does not give way" in capsys.readouterr().out


def test_a_machine_without_a_card_shares_its_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shares_processors(on_cpu=False)
    card = tmp_path / "nvidia-smi"
    card.touch(0o755)
    assert not shares_processors(on_cpu=False)


@pytest.mark.parametrize(("name", "shares"), [("vllm-cpu", True), ("vllm-own", False)])
def test_our_engine_for_cpus_uses_no_card_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shares: bool
) -> None:
    (tmp_path / "nvidia-smi").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shares_processors(load_engine(name).on_cpu) is shares
