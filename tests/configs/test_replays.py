"""Replays, shapes, canvas and denoising steps in a sweep's file: what they make of a cell, and what is refused."""

import json
from pathlib import Path

import pytest

from configs.cell import Cell, Technique, argument
from configs.expand import expand
from configs.load import load_replay, load_shape, load_sweep, names
from configs.schema import Plan, PlannedCell
from configs.without_weights import KTooLong, MeasuredRates
from tasks.engine.command import engine_command
from tests.configs.conftest import Write
from warehouse.dataset.consolidate.rows import made_up

SWEEP = """\
name: mine
engine: vllm-shapes
gpu: h200
suite: shapes
visits: bracketed
serving: {max_model_len: 65536}
cells:
  - {model: gemma-4-31b-shape, precision: fp8, technique: ar}
  - model: gemma-4-31b-shape
    precision: fp8
    technique: mtp
    k: 2
    draft: {shape: gemma-4-31b-assistant}
    acceptance: {replay: mtp-gb10-31b}
  - {model: diffusiongemma-26b-a4b-shape, precision: fp8, technique: diffusion, denoising_steps: 16}
"""


def planned(path: str) -> Plan:
    return expand(load_sweep(path))


@pytest.fixture
def cells(write: Write) -> list[Cell]:
    return [each.cell for each in planned(write(SWEEP)).cells]


def test_a_replay_gives_the_published_rates_up_to_its_k_and_every_label_says_what_is_made_up(cells: list[Cell]) -> None:
    replayed = cells[1].acceptance
    assert replayed is not None
    assert (replayed.label, replayed.rates) == ("replayed:mtp-gb10-31b", (0.787, 0.589))
    acceptance, steps = "acceptance=replayed:mtp-gb10-31b", "routing=random, denoising_steps=16 (replayed)"
    labels = [cell.label.partition(" (")[2] for cell in cells]
    assert labels == ["weights=dummy)", f"weights=dummy, {acceptance})", f"weights=dummy, {steps})"]


def test_a_k_that_was_measured_has_its_own_rates_and_any_other_the_first_of_the_next_longer() -> None:
    published = load_replay("mtp-gb10-26b-a4b")
    assert published.at(1).rates == (0.782,)
    assert published.at(3).rates == (0.722, 0.536, 0.412)
    assert published.at(8).rates[-1] == 0.089
    with pytest.raises(KTooLong, match="accepted: 1 to 8"):
        published.at(9)


@pytest.mark.parametrize(
    ("rates", "said"), [((0.9,), "K=2 has 1 rates"), ((0.5, 0.6), "must fall"), ((1.2, 0.1), "must fall")]
)
def test_a_table_that_nobody_can_have_measured_is_refused(rates: tuple[float, ...], said: str) -> None:
    published = load_replay("mtp-gb10-31b").model_copy(update={"tables": (MeasuredRates(k=2, rates=rates),)})
    assert said in str(next(published.faults()))


VOCABULARIES = {262144, 248320, 129280, 154880, 201088, 151936}  # Gemma 4, Qwen3.6, DeepSeek, GLM-5, gpt-oss, Next


@pytest.mark.parametrize("name", names("shapes"))
def test_every_shipped_shape_is_sound_and_its_layers_are_as_many_as_it_says(name: str) -> None:
    shape = load_shape(name)
    assert not [*shape.faults()] and shape.vocab_size in VOCABULARIES
    layers = shape.text_config["num_hidden_layers"]
    assert len(shape.text_config.get("layer_types", range(layers))) == layers, "DeepSeek's, GLM's and Next's name none"


def test_a_cell_brings_the_shapes_of_its_model_and_draft_and_its_control_those_of_the_ar_model(write: Write) -> None:
    _, mtp, diffusion = planned(write(SWEEP)).cells
    assert [shape.name for shape in mtp.cell.shapes] == ["gemma-4-31b", "gemma-4-31b-assistant"]
    assert mtp.control is not None and diffusion.control is not None
    assert [shape.name for shape in mtp.control.shapes] == ["gemma-4-31b"]
    assert (mtp.control.acceptance, diffusion.control.denoising_steps) == (None, None)
    assert [shape.name for shape in diffusion.control.shapes] == ["gemma-4-26b-a4b"]
    assert diffusion.control.model.weights == "dummy"


def test_whatever_is_replayed_is_part_of_the_key_and_nothing_is_otherwise(write: Write, sweep_text: str) -> None:
    plan = planned(write(SWEEP))
    other = planned(write(SWEEP.replace("denoising_steps: 16", "denoising_steps: 8").replace("k: 2", "k: 1")))
    assert plan.cells[0].cell.cell_key == other.cells[0].cell.cell_key
    assert all(a.cell.cell_key != b.cell.cell_key for a, b in zip(plan.cells[1:], other.cells[1:], strict=True))
    again = Plan.model_validate_json(plan.model_dump_json())
    assert again == plan and again.config_hash == plan.config_hash
    cell = planned(write(sweep_text)).cells[1].cell
    for word in ("shape", "acceptance", "denoising", "canvas"):
        assert word not in cell.canonical_json()


def test_dummy_weights_are_given_no_step_that_reads_what_they_write(write: Write) -> None:
    plan = planned(write(SWEEP.replace("suite: shapes", "suite: full")))
    assert {step.step for each in plan.cells for step in each.steps} == {"smoke", "throughput"}
    refused = {why.split(":")[0] for label, why in plan.left_out if label == plan.cells[0].cell.label}
    assert {"parity", "needle", "eval-gpqa", "eval-ifeval", "eval-kmmlu"} <= refused
    assert all("dummy weights" in why or "no greedy" in why for _, why in plan.left_out)


MISTAKES = {
    "K that nobody published": ("k: 2", "k: 8", ["cells[1].k", "8 is more than 'mtp-gb10-31b'", "1 to 4"]),
    "unknown replay": ("mtp-gb10-31b}", "mtp-gb10}", ["cells[1].acceptance", "'mtp-gb10' isn't in replays/"]),
    "unknown shape": ("{shape: gemma-4-31b-a", "{shape: gemma-4-31-a", ["cells[1]", "isn't in shapes/"]),
    "replay of nothing": ("technique: ar}", "technique: ar, acceptance: {replay: mtp-gb10-31b}}",
        ["cells[0].acceptance", "drafts nothing"]),
    "real weights": ("  - model: gemma-4-31b-shape", "  - model: gemma-4-31b",
        ["cells[1].acceptance", "real weights", "weights: dummy"]),
    "steps without a canvas": ("technique: ar}", "technique: ar, denoising_steps: 8}",
        ["cells[0].denoising_steps", "no canvas"]),
    "canvas of a shape without one": ("technique: ar}",
        "technique: diffusion, canvas_length: 128, denoising_steps: 8}",
        ["cells[0].denoising_steps", "'gemma-4-31b-shape' has no canvas"]),
    "steps of a real checkpoint": ("diffusiongemma-26b-a4b-shape", "diffusiongemma-26b-a4b",
        ["cells[2].canvas_length", "missing", "config.json"]),
    "two sources": ("{shape: gem", "{hub_id: a/b, shape: gem", ["cells[1].draft", "hub_id and shape", "exactly one"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_would_pass_for_a_measurement_is_refused_on_one_line(refused: Write, mistake: str) -> None:
    right, wrong, parts = MISTAKES[mistake]
    assert right in SWEEP
    said = refused(SWEEP.replace(right, wrong, 1))
    assert all(part in said for part in parts), said


def test_a_techniques_own_synthetic_acceptance_is_refused_beside_real_weights(refused: Write, sweep_text: str) -> None:
    dice = (
        "name: dice\nmethod: mtp\ntakes_k: true\nneeds_draft: true\n"
        "speculative_config: {rejection_sample_method: synthetic, synthetic_acceptance_rates: [0.5, 0.2]}\n"
    )
    text = sweep_text.replace("technique: mtp, k: 4", "technique: dice, k: 2")
    assert "real weights" in refused(text, {"techniques/dice.yaml": dice})


ODD = "name: odd\nfamily: f\nshape: gemma-4-31b\ntotal_params_b: 1\nactive_params_b: 1\n"


@pytest.mark.parametrize(
    ("file", "text", "right", "wrong", "said"),
    [
        ("engines/own.yaml", "name: own\ncommand: [vllm]\nargs: [--load-format=auto]\n", "vllm-shapes", "own",
         "cells[0].model: 'gemma-4-31b-shape' has dummy weights, and 'own' or 'ar' loads with --load-format"),
        ("models/odd.yaml", f"{ODD}weights: dummy\nheld_against: gemma-4-31b\n", "model: gemma-4-31b-shape,",
         "model: odd,", "same kind of both"),
        ("models/odd.yaml", ODD, "model: gemma-4-31b-shape,", "model: odd,",
         "a shape has no weights, real ones have a router; accepted: weights: dummy"),
    ],
    ids=["weights that are loaded", "AR of another kind", "a shape with weights"],
)  # fmt: skip
def test_dummy_weights_are_told_apart(refused: Write, file: str, text: str, right: str, wrong: str, said: str) -> None:
    assert said in refused(SWEEP.replace(right, wrong), {file: text})


def test_lists_and_maps_go_to_the_engine_as_they_were_written() -> None:
    written = {"num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 64, 1]], "draft": {"a": [1, None, 0.5, True]}}
    technique = Technique(name="t", method="mtp", speculative_config=written)
    assert Technique.model_validate_json(technique.model_dump_json(), strict=True) == technique
    assert technique.speculative_config == written


CANVAS = """\
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
def canvases(write: Write) -> tuple[PlannedCell, ...]:
    return expand(load_sweep(write(CANVAS))).cells


def test_steps_and_canvas_of_a_row_reach_the_engine(canvases: tuple[PlannedCell, ...], tmp_path: Path) -> None:
    said = [argument(engine_command(each.cell, 1, tmp_path).argv, "diffusion_config") for each in canvases]
    assert said.pop(0) is None, "its checkpoint decides"
    both, canvas = (
        {"canvas_length": length, "max_denoising_steps": steps} for length, steps in ((256, 8), (128, None))
    )
    assert [json.loads(each or "") for each in said] == [both, canvas]


def test_they_are_settings_and_nothing_made_up_beside_the_same_ar(canvases: tuple[PlannedCell, ...]) -> None:
    said = [each.cell.label.partition(" diffusion")[2] for each in canvases]
    assert said == ["", " denoising_steps=8 canvas_length=256", " canvas_length=128"]
    assert [made_up(each.cell) for each in canvases] == [None] * 3
    assert len({each.cell.cell_key for each in canvases}) == 3
    assert all(each.steps == canvases[0].steps for each in canvases), "its text is the model's own, and is read"
    assert len({each.control.cell_key for each in canvases if each.control is not None}) == 1


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (", canvas_length: 256", "", "cells[1].canvas_length: missing; vLLM takes a number of denoising steps with"),
        ("technique: diffusion, canvas_length", "technique: ar, canvas_length", "'ar' has no canvas; accepted: no can"),
        ("canvas_length: 128", "canvas_length: 0", "cells[2].canvas_length"),
    ],
)
def test_what_no_engine_can_be_told_is_refused(refused: Write, right: str, wrong: str, said: str) -> None:
    assert right in CANVAS
    assert said in refused(CANVAS.replace(right, wrong))
