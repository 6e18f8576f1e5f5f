"""The builder, at a hundredth of the steps: complete, resumable, alone, nothing left behind by a signal."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.checkout import ROOT
from tasks.family.members import DONE_FILE
from tasks.family.training.recipe import missing

pytestmark = [pytest.mark.engine, pytest.mark.slow(60)]

SCALE = 0.01
TIMEOUT_S = 120


def command(python: Path, out: Path, *options: str, scale: float = SCALE) -> list[str]:
    module = [str(python), "-m", "tasks.family.training.build"]
    return [*module, "--out", str(out), "--json", "--steps-scale", str(scale), *options]


def run(python: Path, out: Path, *options: str, **env: str) -> "subprocess.CompletedProcess[str]":
    argv = command(python, out, *options)
    return subprocess.run(argv, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, timeout=TIMEOUT_S)


def processes_about(out: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(out).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture
def training(engine_python: Path, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A long build of the target that has just reported its first step."""
    process = subprocess.Popen(
        command(engine_python, tmp_path, "--only", "target", scale=1.0), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["member"] == "target"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="module")
def family(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, object]]]:
    out = tmp_path_factory.mktemp("family")
    result = run(engine_python, out)
    assert result.returncode == 0, result.stderr
    return out, [json.loads(line) for line in result.stdout.splitlines()]


def test_all_members_are_complete_and_nothing_else_is_left(family: tuple[Path, list[dict[str, object]]]) -> None:
    out, lines = family
    members = ["target", "draft", "dflash", "mtp"]
    last = dict(lines[-1])
    beside = last.pop("beside_shipped")
    assert last == {"done": True, "out": str(out), "members": members}
    assert isinstance(beside, dict)
    assert {figure["member"] for figure in beside["figures"]} == set(members)
    assert "not as good as shipped" in beside["verdict"], "after a hundredth of the training"
    reports = [line for line in lines if line.get("member") == "target"]
    assert all({"member", "step", "steps", "elapsed_s", "eta_s"} <= set(report) for report in reports)
    assert reports[-1]["step"] == reports[-1]["steps"]
    assert {entry.name for entry in out.iterdir()} == {".lock", *members}
    assert missing(out, members, SCALE) == []
    assert missing(out, ["target"]) == ["target"], "a scaled build is not taken for a full one"
    done = json.loads((out / "mtp" / DONE_FILE).read_text())
    assert done["name"] == "mtp" and done["parameters"] > 0


def test_only_what_is_missing_is_trained(engine_python: Path, family: tuple[Path, list[dict[str, object]]]) -> None:
    result = run(engine_python, family[0])
    assert result.returncode == 0
    assert [json.loads(line).get("done") for line in result.stdout.splitlines()] == [True], "nothing is missing"
    (family[0] / "draft" / DONE_FILE).unlink()
    result = run(engine_python, family[0])
    assert {json.loads(line).get("member") for line in result.stdout.splitlines()} == {"draft", None}
    assert missing(family[0], ["draft"], SCALE) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_children(training: "subprocess.Popen[str]", tmp_path: Path, number: int, code: int) -> None:
    training.send_signal(number)
    assert training.wait(timeout=30) == code
    assert processes_about(tmp_path) == []
    assert {entry.name for entry in tmp_path.iterdir()} == {".lock"}


def test_children_of_a_killed_builder_end_by_themselves(training: "subprocess.Popen[str]", tmp_path: Path) -> None:
    training.kill()
    training.wait()
    deadline_s = time.monotonic() + 30
    while processes_about(tmp_path) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert processes_about(tmp_path) == []
    assert missing(tmp_path, ["target"]) == ["target"]


def test_two_builders_take_turns(engine_python: Path, tmp_path: Path) -> None:
    argv = command(engine_python, tmp_path, "--only", "draft")
    both = [subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted('"step"' in output for output in outputs) == [False, True]


def test_a_failed_training_shows_its_error(engine_python: Path, tmp_path: Path) -> None:
    package = tmp_path / "broken"
    package.mkdir()
    (package / "torch.py").write_text("raise RuntimeError('no such wheel')\n")
    result = run(engine_python, tmp_path / "out", "--only", "draft", PYTHONPATH=str(package))
    assert result.returncode == 1
    assert "no such wheel" in result.stderr
    assert "done" not in result.stdout
