"""Denoising steps and canvas of real weights: settings of a row, which change its answers and so name its cell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.cell import Cell
from configs.expand import expand
from configs.load import ConfigError, load_sweep
from configs.schema import PlannedCell
from tasks.engine.command import engine_command
from warehouse.dataset.consolidate.rows import made_up

Write = Callable[..., str]

SWEEP = """\
name: mine
engine: vllm
gpu: h100
suite: full
visits: bracketed
serving: {max_model_len: 65536}
cells:
  - {model: diffusiongemma-26b-a4b, precision: bf16, technique: diffusion}
  - {model: diffusiongemma-26b-a4b, precision: bf16, technique: diffusion, denoising_steps: 8, canvas_length: 256}
  - {model: diffusiongemma-26b-a4b, precision: bf16, technique: diffusion, canvas_length: 128}
"""


@pytest.fixture
def planned(write: Write) -> tuple[PlannedCell, ...]:
    return expand(load_sweep(write(SWEEP))).cells


def told(cell: Cell, workdir: Path) -> dict[str, int | None] | None:
    """What the engine is told of canvas and steps."""
    argv = engine_command(cell, 1, workdir).argv
    if "--diffusion-config" not in argv:
        return None
    found: dict[str, int | None] = json.loads(argv[argv.index("--diffusion-config") + 1])
    return found


def test_steps_and_canvas_of_a_row_reach_the_engine_and_without_them_its_checkpoint_decides(
    planned: tuple[PlannedCell, ...], tmp_path: Path
) -> None:
    assert [told(each.cell, tmp_path) for each in planned] == [
        None,
        {"canvas_length": 256, "max_denoising_steps": 8},
        {"canvas_length": 128, "max_denoising_steps": None},
    ]


def test_they_are_settings_and_nothing_made_up(planned: tuple[PlannedCell, ...]) -> None:
    assert [each.cell.label.partition(" diffusion")[2] for each in planned] == [
        "",
        " denoising_steps=8 canvas_length=256",
        " canvas_length=128",
    ]
    assert [made_up(each.cell) for each in planned] == [None] * 3
    assert len({each.cell.cell_key for each in planned}) == 3
    assert all(each.steps == planned[0].steps for each in planned), "its text is the model's own, and is read"


def test_the_control_of_each_is_the_same_ar(planned: tuple[PlannedCell, ...]) -> None:
    assert len({each.control.cell_key for each in planned if each.control is not None}) == 1


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (", canvas_length: 256", "", "cells[1].canvas_length: missing; vLLM takes a number of denoising steps with"),
        ("technique: diffusion, canvas_length", "technique: ar, canvas_length", "'ar' has no canvas; accepted: no can"),
        ("canvas_length: 128", "canvas_length: 0", "cells[2].canvas_length"),
    ],
)
def test_what_no_engine_can_be_told_is_refused(write: Write, right: str, wrong: str, said: str) -> None:
    assert right in SWEEP
    with pytest.raises(ConfigError) as caught:
        load_sweep(write(SWEEP.replace(right, wrong)))
    assert said in str(caught.value)
