"""Cells and engine starts that a sweep plans: their keys, the designs, and what a K sweep asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from configs.cell import argument
from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Plan, PlannedCell
from configs.steps.throughput import ThroughputStep
from configs.visits import BACK, FORWARDS, MIDDLE, Visit, split_name
from flows.forecast.forecast import forecast

Write = Callable[..., str]


def keys(path: str) -> list[str]:
    return [planned.cell.cell_key for planned in expand(load_sweep(path)).cells]


def test_the_order_of_keys_and_the_style_of_the_yaml_do_not_change_a_key(write: Write, sweep_text: str) -> None:
    reordered = """\
cells:
  - technique: ar
    precision: bf16
    model: tiny-gemma4
  - draft:
      family_member: mtp
    k: 4
    technique: mtp
    precision: "bf16"
    model: tiny-gemma4
suite: tiny-quick
serving: {prefix_cache: false, max_model_len: 2048}
gpu: cpu
engine: vllm-cpu
name: mine
"""
    assert keys(write(sweep_text)) == keys(write(reordered))


def test_the_name_suite_and_gpu_of_a_sweep_are_no_part_of_a_key(write: Write, sweep_text: str) -> None:
    write("name: desk\nbandwidth_gb_s: 80\n", "gpus/desk.yaml")
    other = sweep_text.replace("name: mine", "name: other").replace("suite: tiny-quick", "suite: demo")
    assert keys(write(sweep_text)) == keys(write(other.replace("gpu: cpu", "gpu: desk")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("k: 4", "k: 3"),
        ("max_model_len: 2048", "max_model_len: 2049"),
        ("precision: bf16, technique: mtp", "precision: int8, technique: mtp"),
        ("2048}", "2048, prefix_cache: true}"),
        ("r: mtp}", "r: mtp2}"),
    ],
)
def test_whatever_changes_what_is_served_changes_the_key(write: Write, sweep_text: str, old: str, new: str) -> None:
    assert old in sweep_text
    assert keys(write(sweep_text))[1] != keys(write(sweep_text.replace(old, new)))[1]


def test_cells_keep_the_order_of_the_file(write: Write, sweep_text: str) -> None:
    first, second = sweep_text.splitlines()[-2:]
    turned = sweep_text.replace(f"{first}\n{second}", f"{second}\n{first}")
    assert keys(write(turned)) == keys(write(sweep_text))[::-1]


def test_files_beside_the_users_sweep_come_before_ours_and_add_to_them(write: Write, sweep_text: str) -> None:
    write(
        "name: tiny-gemma4\nfamily: mine\nhub_id: me/mine\ntotal_params_b: 1\nactive_params_b: 1\n",
        "models/tiny-gemma4.yaml",
    )
    write("name: own\nfamily: mine\nhub_id: me/own\ntotal_params_b: 1\nactive_params_b: 1\n", "models/own.yaml")
    sweep = sweep_text + "  - {model: own, precision: bf16, technique: ar}\n"
    models = [planned.cell.model for planned in expand(load_sweep(write(sweep))).cells]
    assert [model.hub_id for model in models] == ["me/mine", "me/mine", "me/own"]
    assert [model.revision for model in models] == [None, None, None]


def plan(name: str) -> Plan:
    return expand(load_sweep(name))


def starts(planned: PlannedCell) -> list[tuple[str, int, list[str]]]:
    return [
        (start.served.technique.name, start.leg, [each.name for each in start.measurements]) for start in planned.starts
    ]


def test_a_rented_cell_brings_its_control_along_and_does_what_takes_hours_last(tmp_path: Path) -> None:
    text = (ROOT / "configs/sweeps/tiny-quick.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text + "visits: bracketed\n")
    ar, mtp = plan(str(tmp_path / "mine.yaml")).cells
    assert starts(mtp) == [
        ("ar", 1, ["throughput@control-1"]),
        ("mtp", 1, ["smoke", "throughput"]),
        ("ar", 1, ["throughput@control-2"]),
        ("mtp", 1, ["parity", "eval-tiny"]),
    ]
    assert starts(ar) == [
        ("ar", 1, ["smoke", "throughput", "parity"]),
        ("ar", 1, ["throughput@2", "parity@2", "eval-tiny"]),
    ]


def test_a_control_is_served_exactly_as_its_cell() -> None:
    for planned in plan("full").cells:
        if planned.control is None:
            assert planned.cell.technique.is_baseline
            continue
        assert planned.control.technique.is_baseline
        assert planned.control.k is None and planned.control.draft is None
        assert planned.control.serving == planned.cell.serving
        assert planned.control.precision == planned.cell.precision
        assert planned.control.engine == planned.cell.engine
        assert planned.control.model.name == planned.cell.model.compared_as


def test_a_model_without_an_ar_of_its_own_is_held_against_another() -> None:
    diffusion = next(planned for planned in plan("full").cells if planned.cell.technique.denoises)
    assert diffusion.control is not None and diffusion.control.model.name == "gemma-4-26b-a4b"


def test_one_machine_goes_forwards_and_back() -> None:
    for planned in plan("demo-all").cells:
        forwards, back = planned.starts
        assert (forwards.leg, back.leg) == (FORWARDS, BACK)
        own_control = ["parity@2"] if planned.cell.technique.is_baseline else []
        assert [each.name for each in back.measurements] == ["throughput@2", *own_control]
        assert {each.passes for each in planned.measurements} == {1}
        assert forwards.served == back.served == planned.cell


def test_a_balanced_design_starts_ar_in_the_middle_too() -> None:
    ar, *others = plan("demo").cells
    forwards, middle, back = ar.starts
    assert (forwards.leg, middle.leg, back.leg) == (FORWARDS, MIDDLE, BACK)
    assert [each.name for each in middle.measurements] == ["throughput@2"]
    assert [each.name for each in back.measurements] == ["throughput@3", "parity@2"]
    for planned in others:
        assert [start.leg for start in planned.starts] == [FORWARDS, BACK]
        assert [each.name for each in planned.starts[1].measurements] == ["throughput@2"]


def test_a_quick_look_is_one_start() -> None:
    for planned in plan("tiny-quick").cells:
        (start,) = planned.starts
        assert [each.name for each in start.measurements] == [step.step for step in planned.steps]
        twice = [each.name for each in start.measurements if each.passes == 2]
        assert twice == (["parity"] if planned.cell.technique.is_baseline else [])


@pytest.mark.parametrize("visit", [Visit(), Visit(number=2), Visit("control", 1), Visit("control", 2)])
def test_a_name_of_the_ledger_says_which_visit_it_is(visit: Visit) -> None:
    assert split_name(f"eval-gpqa{visit.suffix}") == ("eval-gpqa", visit)


def test_what_is_no_visit_is_an_error() -> None:
    with pytest.raises(ValueError, match="accepted: a number"):
        split_name("throughput@night")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("visits: mirrored\nconcurrency: 2", "2 cells at a time have no order to turn round; accepted: 1"),
        ("visits: mirrored\ncloud: {task: h100-spot}", "accepted: bracketed, single"),
        ("visits: twice", "bracketed"),
    ],
)
def test_a_design_that_can_not_be_is_refused(tmp_path: Path, line: str, said: str) -> None:
    text = (ROOT / "configs/sweeps/tiny-quick.yaml").read_text().replace("concurrency: 1\n", "")
    (tmp_path / "mine.yaml").write_text(text.replace("visits: single\n", "") + line + "\n")
    with pytest.raises(SpecsweepError, match=said):
        load_sweep(str(tmp_path / "mine.yaml"))


def test_a_design_makes_another_run_of_a_sweep(tmp_path: Path) -> None:
    text = (ROOT / "configs/sweeps/tiny-quick.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text + "visits: bracketed\n")
    assert plan(str(tmp_path / "mine.yaml")).config_hash != plan("tiny-quick").config_hash


BOTH = pytest.mark.parametrize("name", ["k-sweep", "k-sweep-tiny"])


@pytest.mark.parametrize(
    ("name", "models", "ks"), [("k-sweep", 2, [None, 1, 2, 4, 8]), ("k-sweep-tiny", 1, [None, 1, 2, 4])]
)
def test_every_k_of_its_source_stands_beside_ar(name: str, models: int, ks: list[int | None]) -> None:
    cells = plan(name).cells
    assert [each.cell.k for each in cells] == models * ks
    assert {each.cell.technique.name for each in cells} == {"ar", "mtp"}
    assert all(
        {"memory", "throughput", "load", "prompts", "parity"} <= {step.step for step in each.steps} for each in cells
    )


@BOTH
def test_cells_of_a_curve_differ_in_k_alone(name: str) -> None:
    drafting = [each.cell for each in plan(name).cells if each.cell.k is not None]
    alike = {cell.model_copy(update={"k": None}).cell_key for cell in drafting}
    assert len(alike) == len({cell.model.name for cell in drafting}), "one curve per model"


@BOTH
def test_answers_of_a_fixed_length_and_those_that_may_end_are_both_asked_for(name: str) -> None:
    for planned in plan(name).cells:
        [found] = [each for each in planned.steps if isinstance(each, ThroughputStep)]
        assert [each.name for each in found.conditions if each.modes == ("fixed", "natural")] == ["short c=1"]


def test_the_true_one_goes_there_and_back_and_drops_no_baseline() -> None:
    planned = plan("k-sweep")
    assert {each.visits for each in planned.cells} == {"mirrored"}
    assert all((each.drop == "never") is each.cell.technique.is_baseline for each in planned.cells)
    assert forecast(planned, {}).droppable == 8


def test_the_true_one_is_the_published_machine_served_as_published() -> None:
    planned = plan("k-sweep")
    engine = planned.cells[0].cell.engine
    assert (planned.gpu.name, planned.cloud, planned.cells[0].spot) == ("gb10", None, False)
    assert (
        argument(engine.args, "--kv-cache-dtype") == "fp8"
        and argument(engine.args, "--max-num-batched-tokens") == "4096"
    )
    assert any("gemma4_mtp.py" in word for word in engine.command or ())
    assert {each.cell.serving.max_model_len for each in planned.cells} == {4096}
