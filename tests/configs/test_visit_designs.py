"""Which engine starts measure a cell, and what a sweep may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Plan, PlannedCell
from configs.visits import BACK, FORWARDS, MIDDLE, Visit, split_name


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
