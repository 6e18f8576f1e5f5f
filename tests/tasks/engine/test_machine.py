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


@pytest.mark.parametrize(
    ("engine", "has_card", "shares"),
    [("vllm-own", False, True), ("vllm-own", True, False), ("vllm-cpu", True, True)],
)
def test_processors_are_shared_without_a_card_and_by_our_engine_for_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, has_card: bool, shares: bool
) -> None:
    if has_card:
        (tmp_path / "nvidia-smi").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shares_processors(load_engine(engine).on_cpu) is shares
