"""Every file that comes with the product loads, expands and says what it promises."""

from collections.abc import Callable

import pytest
from pydantic import BaseModel

from configs.cell import Technique
from configs.expand import default_run_id, expand
from configs.files import Folder
from configs.load import (
    load_engine,
    load_gpu,
    load_gpu_of_card,
    load_model,
    load_precision,
    load_replay,
    load_shape,
    load_suite,
    load_sweep,
    load_technique,
    names,
)
from configs.schema import Plan
from configs.steps.eval import EvalStep
from configs.steps.throughput import ThroughputStep
from flows.forecast.forecast import forecast
from tasks.engine.command import speculative_config

READERS: dict[Folder, Callable[[str], BaseModel]] = {
    "models": load_model,
    "shapes": load_shape,
    "techniques": load_technique,
    "replays": load_replay,
    "precisions": load_precision,
    "engines": load_engine,
    "gpus": load_gpu,
    "suites": load_suite,
    "sweeps": load_sweep,
}


def plan(name: str) -> Plan:
    return expand(load_sweep(name))


@pytest.mark.parametrize(("folder", "name"), [(folder, name) for folder in READERS for name in names(folder)])
def test_every_shipped_file_loads(folder: Folder, name: str) -> None:
    assert READERS[folder](name).model_dump()["name"] == name


@pytest.mark.parametrize("name", names("sweeps"))
def test_every_shipped_sweep_expands_into_different_cells_and_none_of_its_steps_is_free(name: str) -> None:
    cells = plan(name).cells
    assert cells
    assert len({planned.cell.cell_key for planned in cells}) == len(cells)
    assert all(step.seconds > 0 for cell in forecast(plan(name), {}).cells for step in cell.steps)


@pytest.mark.parametrize(
    ("name", "steps"),
    [("speed-bench", "load"), ("prompts", "prompts"), ("depth", "depth prompts"), ("k-sweep", "prompts memory")],
)
def test_the_steps_that_a_sweep_is_for_are_planned_in_every_cell(name: str, steps: str) -> None:
    for cell in (*plan(name).cells, *plan(f"{name}-tiny").cells):
        assert {*steps.split()} <= {step.step for step in cell.steps}, cell


@pytest.mark.parametrize("name", ["speed-bench", "depth", "k-sweep", "transformers"])
def test_the_tiny_twin_of_a_write_up_starts_every_cell_twice_so_that_none_of_its_columns_is_empty(name: str) -> None:
    cells = plan(f"{name}-tiny").cells
    assert {(each.visits, each.drop) for each in cells} == {("mirrored", "never")}
    assert all([start.leg for start in each.starts] == [1, 3] for each in cells)


def test_every_card_has_what_a_ceiling_is_computed_from_and_its_drivers_name_leads_to_it() -> None:
    cards = [gpu for gpu in map(load_gpu, names("gpus")) if gpu.reported_as]
    common = {"a100-80gb", "h100", "h100-pcie", "h200", "b200", "l40s", "rtx-3090", "rtx-4090", "gb10"}
    assert common <= {gpu.name for gpu in cards}
    for gpu in cards:
        assert gpu.memory_gib and gpu.bandwidth_gb_s, gpu.name
        assert {load_gpu_of_card(card).name for card in gpu.reported_as} == {gpu.name}


def test_a_gpu_of_ones_own_is_planned_for_the_card_that_is_there() -> None:
    sweep = load_sweep("own-gpu")
    there, none = (expand(sweep, card=card) for card in ("NVIDIA L40S", None))
    assert (there.gpu.name, there.gpu.bandwidth_gb_s) == ("l40s", 864)
    assert (none.gpu.name, none.gpu.bandwidth_gb_s) == ("auto", None)
    assert {cell.visits for cell in there.cells} == {"mirrored"} and there.cloud is None
    assert [planned.cell.technique.name for planned in there.cells] == ["ar", "ngram"]


def test_full_is_the_eleven_cells_of_its_source_served_as_it_says() -> None:
    full = plan("full").cells
    assert all(planned.spot for planned in full)
    step = next(step for step in full[0].steps if isinstance(step, ThroughputStep))
    assert [(one.name, one.output_tokens) for one in step.conditions] == [("short c=1", 512), ("8k c=1", 512)]
    cells = [planned.cell for planned in full]
    methods = [cell.technique.method for cell in cells]
    assert (methods.count("ar"), methods.count("mtp"), methods.count("diffusion")) == (5, 5, 1)
    assert {cell.precision.name for cell in cells} == {"fp8"}
    assert not any(cell.serving.prefix_cache for cell in cells)
    by_method = {
        (cell.technique.method, cell.serving.max_model_len, cell.serving.gpu_memory_utilization)
        for cell in cells
        if cell.technique.method != "diffusion"
    }
    assert by_method == {("ar", 40960, 0.92), ("mtp", 40960, 0.85)}


def test_full_has_every_evaluation_of_its_source_with_thinking_and_room_for_the_longest_answer() -> None:
    for planned in plan("full").cells:
        evals = {step.step: step for step in planned.steps if isinstance(step, EvalStep)}
        assert {name: (step.n_items, step.framework) for name, step in evals.items()} == {
            "eval-gpqa": (198, "lm-eval"),
            "eval-gpqa-inspect": (198, "inspect"),
            "eval-mmlu-pro": (640, "lm-eval"),
            "eval-ifeval": (541, "lm-eval"),
            "eval-haerae": (640, "hret"),
            "eval-kmmlu": (640, "hret"),
        }
        assert {(step.max_tokens, step.temperature, step.top_p) for step in evals.values()} == {(32768, 0.6, 0.95)}
        assert planned.cell.serving.max_model_len > 32768


def test_a_model_with_an_embedded_head_needs_no_draft() -> None:
    qwen = [p.cell for p in plan("full").cells if p.cell.model.name.startswith("qwen") and p.cell.k is not None]
    assert len(qwen) == 2
    assert all(cell.draft is None and cell.technique.method == "mtp" for cell in qwen)


def test_only_members_of_the_family_have_its_revisions_each_its_own() -> None:
    demo = [planned.cell for planned in expand(load_sweep("demo"), revision_of=str.upper).cells]
    assert {cell.model.revision for cell in demo} == {"TARGET"}
    assert all(cell.draft.revision == str(cell.draft.family_member).upper() for cell in demo if cell.draft)
    assert {planned.cell.model.revision for planned in plan("full").cells} == {None}


def test_optional_cells_without_what_they_need_are_left_out_with_the_reason() -> None:
    def without_modules(technique: Technique) -> str | None:
        return f"{technique.needs_module} isn't installed" if technique.needs_module else None

    whole, smaller = plan("demo"), expand(load_sweep("demo"), available=without_modules)
    assert len(smaller.cells) == len(whole.cells) - 1
    assert smaller.left_out == (("tiny-gemma4 bf16 suffix K=8", "arctic_inference isn't installed"),)


def test_suffix_decoding_looks_nothing_up_in_the_answers_of_earlier_requests() -> None:
    """Else what it drafts depends on how many requests came before, and prompts that come again are recited."""
    cell = next(planned.cell for planned in plan("demo").cells if planned.cell.technique.name == "suffix")
    assert (speculative_config(cell) or {})["suffix_decoding_max_cached_requests"] == 0


def test_cells_that_are_not_optional_stay_whatever_is_missing() -> None:
    everything_missing = expand(load_sweep("tiny-quick"), available=lambda _: "missing")
    assert len(everything_missing.cells) == 2


def test_a_technique_that_only_samples_is_given_no_parity_and_the_plan_says_so() -> None:
    full = plan("full")
    diffusion = next(p for p in full.cells if p.cell.technique.method == "diffusion")
    assert "parity" not in [step.step for step in diffusion.steps]
    assert [label for label, why in full.left_out if why.startswith("parity: ")] == [diffusion.cell.label]


def test_the_default_run_id_is_the_same_for_the_same_plan_and_another_for_another_revision() -> None:
    first, again = plan("tiny-quick"), plan("tiny-quick")
    other = expand(load_sweep("tiny-quick"), revision_of=str.upper)
    assert default_run_id(first) == default_run_id(again) == f"tiny-quick-{first.config_hash[:8]}"
    assert default_run_id(other) != default_run_id(first)


def test_a_better_guess_of_what_is_only_forecast_continues_the_same_run() -> None:
    full = plan("full")
    guessed = {"answer_tokens": 1234, "discordance": 0.3}
    first = full.cells[0]
    steps = tuple(
        step.model_copy(update={name: value for name, value in guessed.items() if name in type(step).model_fields})
        for step in first.steps
    )
    assert {step.step for step, was in zip(steps, first.steps, strict=True) if step != was} >= {"needle", "eval-gpqa"}
    again = full.model_copy(update={"cells": (first.model_copy(update={"steps": steps}), *full.cells[1:])})
    assert again.config_hash == full.config_hash
    more = tuple(
        step.model_copy(update={"margin": 0.04}) if "margin" in type(step).model_fields else step for step in steps
    )
    other = full.model_copy(update={"cells": (first.model_copy(update={"steps": more}), *full.cells[1:])})
    assert other.config_hash != full.config_hash
