"""A user's own task: what is wrong with it is one line that names the file, the field and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.clusters.protocol import CellJob
from flows.clusters.skypilot.task_file import Rental, TaskFileError, load_task, task_for

GOOD = """
resources: {accelerators: H100:1, autostop: {idle_minutes: 10, down: true}}
run: exec bin/node run
"""


def _refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TaskFileError) as caught:
        load_task(str(path))
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    return message


def test_a_name_or_a_path_finds_a_task(tmp_path: Path) -> None:
    assert load_task("h100-spot").path.name == "h100-spot.yaml"
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert load_task(str(path)).config["run"] == "exec bin/node run"


def test_an_unknown_task_names_those_there_are() -> None:
    with pytest.raises(TaskFileError, match=r"cloud\.task is 'h200-spot'.*h100-pip, .*lab"):
        load_task("h200-spot")


@pytest.mark.parametrize(
    "autostop",
    [
        "10",
        "{idle_minutes: 10}",
        "{idle_minutes: true, down: true}",
        "{idle_minutes: 10, down: false}",
        "{idle_minutes: ten, down: true}",
        "null",
    ],
)
def test_a_cluster_that_could_run_for_ever_is_refused(tmp_path: Path, autostop: str) -> None:
    text = GOOD.replace("{idle_minutes: 10, down: true}", autostop)
    assert "autostop: {idle_minutes: 10, down: true}" in _refused(tmp_path, text)


def test_a_secret_written_into_the_file_is_refused_and_not_shown(tmp_path: Path) -> None:
    message = _refused(tmp_path, GOOD + "secrets: {HF_TOKEN: hf_canary}")
    assert "secrets.HF_TOKEN" in message and "hf_canary" not in message


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (GOOD + "num_nodes: 2", "num_nodes is 2"),
        (
            GOOD + "envs: {SPECSWEEP_VLLM: git+https://x.y/vllm.git@refs/pull/1/head}",
            "envs.SPECSWEEP_VLLM is 'git+https",
        ),
        (GOOD.replace("run: exec bin/node run", ""), "run is None"),
        ("run: true", "resources is None"),
        ("- a list", "is no SkyPilot task"),
        ("resources: [unclosed", "is no YAML"),
        (GOOD + "name: \a", "is no YAML"),
        (GOOD + "envs: {BUILT: 2026-02-30}", "is no YAML: day is out of range for month"),
        (GOOD + "envs: [HF_HOME]", "envs is ['HF_HOME']"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, field: str) -> None:
    assert field in _refused(tmp_path, text)


def test_an_engine_built_from_a_pull_request_needs_a_commit() -> None:
    with pytest.raises(TaskFileError, match=r"^sky/h100-pr\.yaml: envs\.SPECSWEEP_VLLM is .*COMMIT': .*40 hex digits"):
        load_task("h100-pr")


def test_a_store_that_no_node_can_reach_is_refused_before_anything_is_rented() -> None:
    rental = Rental(CellJob("/home/me/results", "run-1", "0123456789abcdef"), None, None, 0.0, None, None)
    with pytest.raises(TaskFileError, match=r"'/home/me/results' is a folder of this machine.*--store s3://"):
        task_for(load_task("h100-spot"), rental, {})
