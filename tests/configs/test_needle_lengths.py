"""Which lengths a cell is given, and what the forecast hears of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.cell import Cell
from configs.expand import expand
from configs.files import ConfigError
from configs.load import load_sweep
from configs.step import Work
from configs.steps.needle import NeedleStep, condition_name


def step(**fields: Any) -> NeedleStep:
    return NeedleStep.model_validate({"step": "needle", **fields})


@pytest.fixture
def cell() -> Callable[[int], Cell]:
    any_cell = expand(load_sweep("demo")).cells[0].cell

    def with_room(tokens: int) -> Cell:
        serving = any_cell.serving.model_copy(update={"max_model_len": tokens})
        return any_cell.model_copy(update={"serving": serving})

    return with_room


def test_lengths_double_up_to_the_longest_that_fits(cell: Callable[[int], Cell]) -> None:
    assert step().lengths(cell(40960)) == (4096, 8192, 16384, 32768, 36864)
    assert step().lengths(cell(16384)) == (4096, 8192, 12288)
    assert step(max_tokens=1000).lengths(cell(6000)) == (4096,)
    assert step(max_tokens=900).lengths(cell(6500)) == (4096, 5120)


def test_a_length_that_does_not_fit_is_left_out_and_a_cell_without_any_says_why(cell: Callable[[int], Cell]) -> None:
    asked = step(context_tokens=[16384, 4096, 241000])
    assert asked.lengths(cell(40960)) == (4096, 16384)
    assert asked.why_not(cell(40960)) is None
    assert asked.why_not(cell(6000)) == (
        "max_model_len 6000 has no room for a text of 4096 tokens and an answer of 4096"
    )
    assert step().why_not(cell(2048)) is not None
    assert list(step().longest_requests(cell(2048))) == []


def test_its_work_is_every_length_depth_and_seed(cell: Callable[[int], Cell]) -> None:
    asked = step(context_tokens=[4096, 8192], seeds=5, answer_tokens=300)
    assert asked.workload(cell(40960)) == (Work(15, 4096, 300, 4), Work(15, 8192, 300, 4))
    assert list(asked.longest_requests(cell(40960))) == [("step 'needle'", 12288)]


def test_rows_are_named_for_people() -> None:
    assert condition_name(32768, 90) == "32k 90 %"
    assert condition_name(8000, 10) == "8000 10 %"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("seeds: 2", "seeds"),
        ("depths_percent: [10, 110]", "depths_percent"),
        ("depths_percent: [10, 10]", "'10 %' is already on line"),
        ("context_tokens: [4096, 4096]", "'4k' is already on line"),
        ("context_tokens: [100]", "context_tokens"),
        ("items: 3", "items"),
    ],
)
def test_a_needle_that_can_not_be_asked_is_named_with_its_line(
    write: Callable[..., str], sweep_text: str, fields: str, said: str, tmp_path: Path
) -> None:
    write(f"name: tiny-quick\nsteps:\n  - {{step: needle, {fields}}}\n", "suites/tiny-quick.yaml")
    with pytest.raises(ConfigError, match=said) as error:
        load_sweep(write(sweep_text))
    assert "tiny-quick.yaml:3" in str(error.value)
