"""A task that rents other cards than a sweep's cells are served on is refused, in every form that SkyPilot reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.load import load_sweep, names
from flows.clusters.skypilot.task_file import TaskFileError
from flows.plans import make_plan

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
    args = "--tensor-parallel-size=4, -dp, '2'"
    with pytest.raises(TaskFileError, match=r"/task\.yaml: resources\.\S+ is .*accepted: .*[Hh]100") as caught:
        make_plan(sweep(tmp_path, resources, args=args))
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
    path = sweep(tmp_path, "any_of: [{infra: aws, accelerators: H100:8}]")
    said = f"{tmp_path}/task.yaml: resources.any_of[0].accelerators is 'H100:8': gemma-4-12b bf16 ar needs 1 x h100; "
    with pytest.raises(TaskFileError) as caught:
        make_plan(path)
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
