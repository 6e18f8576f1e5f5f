"""A sweep's `cloud.task`: looked at before anything is stored or rented, and found beside the sweep."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from configs.checkout import ROOT
from flows.clusters.skypilot.task_file import TaskFileError
from flows.plans import make_plan
from flows.terminal.cli import app
from tests.fake_run import write_user_configs


def rented(folder: Path, task: str) -> str:
    """A user's own sweep on machines of a task."""
    write_user_configs(folder, "ar")
    sweep = folder / "sweep.yaml"
    sweep.write_text(sweep.read_text().replace("cells:\n", f"cloud: {{task: {task}}}\ncells:\n"))
    return str(sweep)


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("h100-sopt", r"^cloud\.task is 'h100-sopt': no such file; use one of .*h100-spot"),
        ("tasks/gone.yaml", r"^cloud\.task is '.*tasks/gone\.yaml': no such file"),
        ("mine.yaml", r"/mine\.yaml: resources\.autostop is None: write autostop"),
    ],
)
def test_a_wrong_task_is_refused_before_anything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, task: str, words: str
) -> None:
    monkeypatch.setenv("SPECSWEEP_STATE", str(tmp_path / "state"))
    sweep = rented(tmp_path, task)
    (tmp_path / "mine.yaml").write_text("resources: {accelerators: H100:1}\nrun: exec bin/node run\n")
    store = tmp_path / "store"
    with pytest.raises(TaskFileError, match=words):
        CliRunner().invoke(app, [command, sweep, "--store", str(store)], catch_exceptions=False)
    assert not store.exists()


@pytest.mark.parametrize(
    ("task", "found"), [("tasks/mine.yaml", "tasks/mine.yaml"), ("sky/lab.yaml", str(ROOT / "sky/lab.yaml"))]
)
def test_a_task_lies_beside_its_sweep_or_in_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, found: str
) -> None:
    sweep = rented(tmp_path / "my", task)
    (tmp_path / "my" / "tasks").mkdir()
    (tmp_path / "my" / "tasks" / "mine.yaml").write_bytes((ROOT / "sky" / "lab.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["plan", "my/sweep.yaml", "--store", "store"], catch_exceptions=False)
    assert done.exit_code == 0, done.stdout
    cloud = make_plan(sweep).cloud
    assert cloud is not None and cloud.task == str(tmp_path / "my" / found)
