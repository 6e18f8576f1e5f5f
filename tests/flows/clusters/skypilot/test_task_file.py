"""A user's own task: what is wrong with it is one line that names the file, the field and the remedy."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

from configs.checkout import ROOT
from configs.load import ConfigError, load_sweep, names
from flows.clusters.protocol import CellJob
from flows.clusters.skypilot import task_file
from flows.clusters.skypilot.home import USER_VARIABLE
from flows.clusters.skypilot.task_file import Rental, TaskFileError, load_task, sky_task, task_for
from flows.plans import make_plan
from flows.terminal.cli import app
from tests.fake_run import write_user_configs

GOOD = """
resources: {accelerators: H100:1, autostop: {idle_minutes: 10, down: true}}
run: exec bin/node run
"""


BRANCH = "git+https://x.y/vllm.git@refs/pull/1/head"


def _refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TaskFileError) as caught:
        load_task(str(path))
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return str(caught.value)


def test_a_name_or_a_path_finds_a_task(tmp_path: Path) -> None:
    assert load_task("h100-spot").path.name == "h100-spot.yaml"
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert load_task(str(path)).config["run"] == "exec bin/node run"


def test_an_unknown_task_names_those_there_are() -> None:
    with pytest.raises(TaskFileError, match=r"cloud\.task is 'h200-spot'.*h100-pip, .*lab"):
        load_task("h200-spot")


WRONG = (("true", "true"), ("10", "false"), ("ten", "true"))


@pytest.mark.parametrize(
    "autostop",
    ["10", "null", "{idle_minutes: 10}", *(f"{{idle_minutes: {minutes}, down: {down}}}" for minutes, down in WRONG)],
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
        (GOOD + f"envs: {{SPECSWEEP_VLLM: {BRANCH}}}", f"envs.SPECSWEEP_VLLM is '{BRANCH}"),
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


def test_a_mount_from_the_home_is_of_the_users_home_and_not_of_skypilots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = "file_mounts: {~/a: ~/data, /b: {source: [~/b, ~/c], mode: COPY}, /c: s3://bucket/~/c, /d: ~other/d}"
    (tmp_path / "mine.yaml").write_text(f"{GOOD}{mounts}\n", encoding="utf-8")
    sky = MagicMock()
    monkeypatch.setattr(task_file, "sdk", lambda: sky)
    monkeypatch.setenv(USER_VARIABLE, "/home/me")
    sky_task(load_task(str(tmp_path / "mine.yaml")))
    assert sky.Task.from_yaml_config.call_args.args[0]["file_mounts"] == {
        "~/a": "/home/me/data",
        "/b": {"source": ["/home/me/b", "/home/me/c"], "mode": "COPY"},
        "/c": "s3://bucket/~/c",
        "/d": "~other/d",
    }


def test_a_store_that_no_node_can_reach_is_refused_before_anything_is_rented() -> None:
    rental = Rental(CellJob("/home/me/results", "run-1", "0123456789abcdef"), "ab2" * 8, None, None, 0.0, None, None)
    with pytest.raises(TaskFileError, match=r"'/home/me/results' is a folder of this machine.*--store s3://"):
        task_for(load_task("h100-spot"), rental, {})


ENGINE = "name: own\nimage: vllm/vllm-openai:v0.32.0\nargs: [{args}]\n"
SWEEP = """
name: mine
engine: own
gpu: {gpu}
suite: tiny-quick
cloud: {{task: task.yaml}}
serving: {{max_model_len: 2048}}
cells:
  - {{model: gemma-4-12b, precision: bf16, technique: ar}}
"""
TASK = "resources: {{{resources}, autostop: {{idle_minutes: 10, down: true}}}}\nrun: exec bin/node run\n"


def sweep(folder: Path, resources: str, gpu: str = "h100", args: str = "") -> str:
    """A sweep of one cell on a task of the user's own; `resources` is what it rents."""
    (folder / "engines").mkdir()
    (folder / "engines" / "own.yaml").write_text(ENGINE.format(args=args))
    (folder / "task.yaml").write_text(TASK.format(resources=resources))
    (folder / "mine.yaml").write_text(SWEEP.format(gpu=gpu))
    return str(folder / "mine.yaml")


TWO = "any_of: [{infra: aws}, {infra: gcp, accelerators: %s}]"


@pytest.mark.parametrize(
    "resources",
    [
        "accelerators: H100",
        "accelerators: h100:4",
        "gpus: 'H100:4'",
        "accelerators: {H100: 4}",
        "accelerators: {H100: 4, L4: 8}",
        "accelerators: [H100:8, 'H100-SXM:4']",
        "accelerators: 80GB+",
        "accelerators: nvidia:80GB:4",
        "accelerators: H100:8, " + TWO % "H100:2",
        "ordered: [{infra: aws, gpus: H100:8}, {infra: gcp, accelerators: H100}]",
        "accelerators: H100:eight",
    ],
)
def test_other_than_eight_cards_for_a_cell_of_eight_are_refused(tmp_path: Path, resources: str) -> None:
    with pytest.raises(TaskFileError, match=r"/task\.yaml: resources\.\S+ is .*accepted: .*[Hh]100") as caught:
        make_plan(sweep(tmp_path, resources, args="--tensor-parallel-size=4, -dp, '2'"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("resources", "gpu"),
    [
        ("accelerators: H100:1", "l40s"),
        ("accelerators: A100", "h100"),
        ("accelerators: A100", "a100-80gb"),
        ("accelerators: [H100, A100-80GB]", "h100"),
        ("accelerators: H100, " + TWO % "H200", "h100"),
    ],
)
def test_another_card_than_the_sweeps_is_refused(tmp_path: Path, resources: str, gpu: str) -> None:
    with pytest.raises(TaskFileError, match=rf"resources\.\S+ is .*: the sweep's gpu is {gpu}; accepted: "):
        make_plan(sweep(tmp_path, resources, gpu))


def test_the_line_names_file_field_value_and_remedy(tmp_path: Path) -> None:
    said = f"{tmp_path}/task.yaml: resources.any_of[0].accelerators is 'H100:8': gemma-4-12b bf16 ar needs 1 x h100; "
    with pytest.raises(TaskFileError) as caught:
        make_plan(sweep(tmp_path, "any_of: [{infra: aws, accelerators: H100:8}]"))
    assert str(caught.value) == f"{said}accepted: H100:1, or other parallel sizes in the engine's `args`"


@pytest.mark.parametrize(
    ("resources", "gpu", "args"),
    [
        ("accelerators: H100-SXM:8", "h100", "-tp=8"),
        ("accelerators: {h100: 1}", "h100", ""),
        ("accelerators: 'L40S:2', any_of: [{infra: aws}, {infra: gcp, gpus: {L40S: 2}}]", "l40s", "-pp=2"),
        ("accelerators: nvidia:80GB+", "h100", ""),
        ("instance_type: p5.48xlarge", "h100", "-tp=8"),
        ("cpus: 16+", "h100", ""),
        ("accelerators: H100:8, any_of: [{accelerators: null, instance_type: p5.48xlarge}]", "h100", ""),
    ],
)
def test_the_cards_of_the_plan_and_what_nobody_can_tell_are_accepted(
    tmp_path: Path, resources: str, gpu: str, args: str
) -> None:
    assert make_plan(sweep(tmp_path, resources, gpu, args)).cloud is not None


@pytest.mark.parametrize("started", ["image: vllm/vllm-openai:v0.32.0", "command: [/opt/vllm/bin/vllm]"])
def test_a_cards_engine_is_not_planned_as_a_processors_on_cards_that_are_paid_for(tmp_path: Path, started: str) -> None:
    path = sweep(tmp_path, "accelerators: H100:1", "cpu")
    (tmp_path / "engines" / "own.yaml").write_text(f"name: own\n{started}\n")
    said = r"the sweep's gpu is cpu, and its engine 'own' serves on cards; accepted: the card's name in configs/gpus"
    with pytest.raises(TaskFileError, match=said):
        make_plan(path)
    (tmp_path / "task.yaml").write_text(TASK.format(resources="cpus: 16+"))
    assert make_plan(path).gpu.name == "cpu"


def test_of_a_gpu_without_sky_names_only_the_number_is_compared(tmp_path: Path) -> None:
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "mine.yaml").write_text("name: mine\nmemory_gib: 80\nbandwidth_gb_s: 3350\n")
    path = sweep(tmp_path, "accelerators: TheirName:2", "mine", "-tp=2")
    assert make_plan(path).gpu.name == "mine"
    (tmp_path / "task.yaml").write_text(TASK.format(resources="accelerators: TheirName"))
    with pytest.raises(TaskFileError, match="needs 2 x mine; accepted: TheirName:2"):
        make_plan(path)


@pytest.mark.parametrize("name", [name for name in names("sweeps") if load_sweep(name).cloud is not None])
def test_every_shipped_sweep_rents_its_own_cards(name: str) -> None:
    assert make_plan(name).cells


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("h100-sopt", r"sweep\.yaml:9: cloud\.task: no file for 'h100-sopt'; .*did you mean 'h100-spot'"),
        ("tasks/gone.yaml", r"sweep\.yaml:9: cloud\.task: no file for '.*tasks/gone\.yaml'; .*the path of your own"),
        ("mine.yaml", r"/mine\.yaml: resources\.autostop is None: write autostop"),
    ],
)
def test_a_wrong_task_is_refused_before_anything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, task: str, words: str
) -> None:
    monkeypatch.setenv("SPECSWEEP_STATE", str(tmp_path / "state"))
    sweep = str(write_user_configs(tmp_path, "ar", more=f"cloud: {{task: {task}}}\n"))
    (tmp_path / "mine.yaml").write_text("resources: {accelerators: H100:1}\nrun: exec bin/node run\n")
    with pytest.raises(TaskFileError if "resources" in words else ConfigError, match=words):
        CliRunner().invoke(app, [command, sweep, "--store", str(tmp_path / "store")], catch_exceptions=False)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("task", "found"), [("tasks/mine.yaml", "tasks/mine.yaml"), ("sky/lab.yaml", str(ROOT / "sky/lab.yaml"))]
)
def test_a_task_lies_beside_its_sweep_or_in_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, found: str
) -> None:
    sweep = str(write_user_configs(tmp_path / "my", "ar", more=f"cloud: {{task: {task}}}\n"))
    (tmp_path / "my" / "tasks").mkdir()
    shutil.copy(ROOT / "sky" / "lab.yaml", tmp_path / "my" / "tasks" / "mine.yaml")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["plan", "my/sweep.yaml", "--store", "store"], catch_exceptions=False)
    assert done.exit_code == 0, done.stdout
    cloud = make_plan(sweep).cloud
    assert cloud is not None and cloud.task == str(tmp_path / "my" / found)
