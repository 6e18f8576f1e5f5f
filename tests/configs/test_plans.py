"""Every file that comes with the product loads and says what it promises; cells, keys and starts that a sweep plans."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel

from configs.cell import Technique, argument
from configs.checkout import ROOT
from configs.errors import SpecsweepError
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
from configs.schema import Plan, PlannedCell
from configs.steps.eval import EvalStep
from configs.steps.throughput import ThroughputStep
from configs.visits import BACK, FORWARDS, MIDDLE, Visit, split_name
from flows.forecast.forecast import forecast
from tasks.engine.command import speculative_config

Write = Callable[..., str]


def keys(path: str) -> list[str]:
    return [planned.cell.cell_key for planned in expand(load_sweep(path)).cells]


def test_no_style_name_suite_or_gpu_is_part_of_a_key_and_cells_keep_order(write: Write, sweep_text: str) -> None:
    reordered = """\
cells:
  - {technique: ar, precision: bf16, model: tiny-gemma4}
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
    write("name: desk\nbandwidth_gb_s: 80\n", "gpus/desk.yaml")
    other = sweep_text.replace("name: mine", "name: other").replace("suite: tiny-quick", "suite: demo")
    assert keys(write(sweep_text)) == keys(write(other.replace("gpu: cpu", "gpu: desk")))
    first, second = sweep_text.splitlines()[-2:]
    turned = sweep_text.replace(f"{first}\n{second}", f"{second}\n{first}")
    assert keys(write(turned)) == keys(write(sweep_text))[::-1]


SERVED = {"k: 4": "k: 3", "len: 2048": "len: 2049", "2048}": "2048, prefix_cache: true}", "r: mtp}": "r: mtp2}",
          "bf16, technique: mtp": "fp8, technique: mtp"}  # fmt: skip


@pytest.mark.parametrize("old", SERVED)
def test_whatever_changes_what_is_served_changes_the_key(write: Write, sweep_text: str, old: str) -> None:
    assert old in sweep_text
    assert keys(write(sweep_text))[1] != keys(write(sweep_text.replace(old, SERVED[old])))[1]


def test_how_long_a_context_a_model_was_made_for_is_no_part_of_a_key(write: Write, sweep_text: str) -> None:
    facts = (ROOT / "configs/models/tiny-gemma4.yaml").read_text()
    assert "\ncontext_tokens: 4096\n" in facts
    known = expand(load_sweep(write(sweep_text)))
    write(facts.replace("\ncontext_tokens: 4096\n", "\n"), "models/tiny-gemma4.yaml")
    unknown = expand(load_sweep(write(sweep_text)))
    assert known.cells[0].cell.model != unknown.cells[0].cell.model and known.config_hash == unknown.config_hash
    assert [each.cell.cell_key for each in known.cells] == [each.cell.cell_key for each in unknown.cells]


@pytest.mark.parametrize("name", [name for name in names("models") if name.endswith("-shape")])
def test_a_model_is_made_for_the_context_of_its_published_config(name: str) -> None:
    shape, twin = load_model(name).shape, load_model(name.removesuffix("-shape"))
    assert shape is not None
    longest = load_shape(shape).text_config["max_position_embeddings"]
    assert load_model(name).context_tokens == twin.context_tokens == longest


def test_files_beside_the_users_sweep_come_before_ours_and_add_to_them(write: Write, sweep_text: str) -> None:
    facts = "family: mine\ntotal_params_b: 1\nactive_params_b: 1\n"
    for name, hub_id in (("tiny-gemma4", "me/mine"), ("own", "me/own")):
        write(f"name: {name}\nhub_id: {hub_id}\n{facts}", f"models/{name}.yaml")
    sweep = sweep_text + "  - {model: own, precision: bf16, technique: ar}\n"
    models = [planned.cell.model for planned in expand(load_sweep(write(sweep))).cells]
    assert [model.hub_id for model in models] == ["me/mine", "me/mine", "me/own"]
    assert [model.revision for model in models] == [None, None, None]


def plan(name: str) -> Plan:
    return expand(load_sweep(name))


def starts(planned: PlannedCell) -> list[tuple[str, int, str]]:
    found = [(start.served.technique.name, start.leg, start.measurements) for start in planned.starts]
    return [(name, leg, " ".join(each.name for each in measured)) for name, leg, measured in found]


def test_a_rented_cell_brings_its_control_along_and_does_what_takes_hours_last(tmp_path: Path) -> None:
    text = (ROOT / "configs/sweeps/tiny-quick.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text + "visits: bracketed\n")
    bracketed = plan(str(tmp_path / "mine.yaml"))
    ar, mtp = bracketed.cells
    assert starts(mtp) == [
        ("ar", 1, "throughput@control-1"),
        ("mtp", 1, "smoke throughput"),
        ("ar", 1, "throughput@control-2"),
        ("mtp", 1, "parity eval-tiny"),
    ]
    assert starts(ar) == [("ar", 1, "smoke throughput parity"), ("ar", 1, "throughput@2 parity@2 eval-tiny")]
    assert bracketed.config_hash != plan("tiny-quick").config_hash, "a design makes another run of a sweep"


def test_a_control_is_served_exactly_as_its_cell_and_may_be_another_models_ar() -> None:
    cells = plan("full").cells
    for planned in cells:
        control, cell = planned.control, planned.cell
        if control is None:
            assert cell.technique.is_baseline
            continue
        assert control.technique.is_baseline and control.k is None and control.draft is None
        served = [(each.serving, each.precision, each.engine) for each in (control, cell)]
        assert served[0] == served[1] and control.model.name == cell.model.compared_as
    [diffusion] = [planned for planned in cells if planned.cell.technique.denoises]
    assert diffusion.control is not None and diffusion.control.model.name == "gemma-4-26b-a4b"


def test_one_machine_goes_forwards_and_back_balanced_with_ar_in_the_middle_and_a_quick_look_is_one_start() -> None:
    for planned in plan("demo-all").cells:
        name, is_ar = planned.cell.technique.name, planned.cell.technique.is_baseline
        forwards, back = planned.starts
        assert (forwards.leg, starts(planned)[1]) == (FORWARDS, (name, BACK, f"throughput@2{' parity@2' * is_ar}"))
        assert {each.passes for each in planned.measurements} == {1}
        assert forwards.served == back.served == planned.cell
    ar, *others = plan("demo").cells
    assert ar.starts[0].leg == FORWARDS
    assert starts(ar)[1:] == [("ar", MIDDLE, "throughput@2"), ("ar", BACK, "throughput@3 parity@2")]
    for planned in others:
        assert planned.starts[0].leg == FORWARDS
        assert starts(planned)[1:] == [(planned.cell.technique.name, BACK, "throughput@2")]
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


@pytest.mark.parametrize(
    ("name", "models", "ks"), [("k-sweep", 2, [None, 1, 2, 4, 8]), ("k-sweep-tiny", 1, [None, 1, 2, 4])]
)
def test_every_k_of_its_source_stands_beside_ar_in_one_curve(name: str, models: int, ks: list[int | None]) -> None:
    cells = plan(name).cells
    assert [each.cell.k for each in cells] == models * ks
    assert {each.cell.technique.name for each in cells} == {"ar", "mtp"}
    drafting = [each.cell for each in cells if each.cell.k is not None]
    alike = {cell.model_copy(update={"k": None}).cell_key for cell in drafting}
    assert len(alike) == len({cell.model.name for cell in drafting}), "one curve per model"
    for planned in cells:
        assert {"memory", "throughput", "load", "prompts", "parity"} <= {step.step for step in planned.steps}
        [found] = [each for each in planned.steps if isinstance(each, ThroughputStep)]
        both = [each.name for each in found.conditions if each.modes == ("fixed", "natural")]
        assert both == ["short c=1"], "answers of a fixed length and those that may end"


def test_the_true_one_is_the_published_machine_served_as_published_there_and_back() -> None:
    planned = plan("k-sweep")
    assert {each.visits for each in planned.cells} == {"mirrored"}
    assert all((each.drop == "never") is each.cell.technique.is_baseline for each in planned.cells)
    assert forecast(planned, {}).droppable == 8
    engine = planned.cells[0].cell.engine
    assert (planned.gpu.name, planned.cloud, planned.cells[0].spot) == ("gb10", None, False)
    said = {name: argument(engine.args, name) for name in ("kv_cache_dtype", "max_num_batched_tokens")}
    assert said == {"kv_cache_dtype": "fp8", "max_num_batched_tokens": "4096"}
    assert any("gemma4_mtp.py" in word for word in engine.command or ())
    assert {each.cell.serving.max_model_len for each in planned.cells} == {4096}


READERS: dict[Folder, Callable[[str], BaseModel]] = {
    "models": load_model, "shapes": load_shape, "techniques": load_technique, "replays": load_replay,
    "precisions": load_precision, "engines": load_engine, "gpus": load_gpu, "suites": load_suite, "sweeps": load_sweep,
}  # fmt: skip


@pytest.mark.parametrize(("folder", "name"), [(folder, name) for folder in READERS for name in names(folder)])
def test_every_shipped_file_loads(folder: Folder, name: str) -> None:
    assert READERS[folder](name).model_dump()["name"] == name


@pytest.mark.parametrize("name", names("sweeps"))
def test_every_shipped_sweep_expands_into_different_cells_and_none_of_its_steps_is_free(name: str) -> None:
    cells = plan(name).cells
    assert cells and len({planned.cell.cell_key for planned in cells}) == len(cells)
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


def test_every_card_has_what_a_ceiling_is_computed_from_and_ones_own_is_the_one_that_is_there() -> None:
    cards = [gpu for gpu in map(load_gpu, names("gpus")) if gpu.reported_as]
    common = {"a100-80gb", "h100", "h100-pcie", "h200", "b200", "l40s", "rtx-3090", "rtx-4090", "gb10"}
    assert common <= {gpu.name for gpu in cards}
    for gpu in cards:
        assert gpu.memory_gib and gpu.bandwidth_gb_s, gpu.name
        assert {load_gpu_of_card(card).name for card in gpu.reported_as} == {gpu.name}
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
    assert Counter(cell.technique.method for cell in cells) == {"ar": 5, "mtp": 5, "diffusion": 1}
    assert {cell.precision.name for cell in cells} == {"fp8"}
    assert not any(cell.serving.prefix_cache for cell in cells)
    qwen = [cell for cell in cells if cell.model.name.startswith("qwen") and cell.k is not None]
    assert [(cell.draft, cell.technique.method) for cell in qwen] == [(None, "mtp")] * 2, "its head is embedded"


@pytest.mark.parametrize("name", ["full", "nightly", "speed-bench", "precision"])
def test_slots_are_said_so_that_no_engine_takes_a_thousand_and_both_arms_of_a_pair_have_as_many(name: str) -> None:
    cells = [planned.cell for planned in plan(name).cells if not planned.cell.technique.denoises]
    assert all(cell.serving.max_num_seqs for cell in cells)
    served = {(cell.model.name, cell.precision.name): cell.serving for cell in cells if cell.technique.is_baseline}
    assert all(served[cell.model.compared_as, cell.precision.name] == cell.serving for cell in cells)


def test_a_night_measures_cells_of_full() -> None:
    assert {each.cell.cell_key for each in plan("nightly").cells} < {each.cell.cell_key for each in plan("full").cells}


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


def test_only_members_of_the_family_have_its_revisions_each_its_own() -> None:
    demo = [planned.cell for planned in expand(load_sweep("demo"), revision_of=str.upper).cells]
    assert {cell.model.revision for cell in demo} == {"TARGET"}
    assert all(cell.draft.revision == str(cell.draft.family_member).upper() for cell in demo if cell.draft)
    assert {planned.cell.model.revision for planned in plan("full").cells} == {None}


def test_optional_cells_without_what_they_need_are_left_out_with_the_reason_and_others_stay() -> None:
    def without_modules(technique: Technique) -> str | None:
        return f"{technique.needs_module} isn't installed" if technique.needs_module else None

    whole, smaller = plan("demo"), expand(load_sweep("demo"), available=without_modules)
    assert len(smaller.cells) == len(whole.cells) - 1
    assert smaller.left_out == (("tiny-gemma4 bf16 suffix K=8", "arctic_inference isn't installed"),)
    everything_missing = expand(load_sweep("tiny-quick"), available=lambda _: "missing")
    assert len(everything_missing.cells) == 2


def test_suffix_decoding_looks_nothing_up_in_the_answers_of_earlier_requests() -> None:
    """Else what it drafts depends on how many requests came before, and prompts that come again are recited."""
    cell = next(planned.cell for planned in plan("demo").cells if planned.cell.technique.name == "suffix")
    assert (speculative_config(cell, None) or {})["suffix_decoding_max_cached_requests"] == 0


def test_a_technique_that_only_samples_is_given_no_parity_and_the_plan_says_so() -> None:
    full = plan("full")
    diffusion = next(p for p in full.cells if p.cell.technique.method == "diffusion")
    assert "parity" not in [step.step for step in diffusion.steps]
    assert [label for label, why in full.left_out if why.startswith("parity: ")] == [diffusion.cell.label]


def test_a_better_guess_continues_the_same_run_and_another_revision_is_another_one() -> None:
    first, again = plan("tiny-quick"), plan("tiny-quick")
    other = expand(load_sweep("tiny-quick"), revision_of=str.upper)
    assert default_run_id(first) == default_run_id(again) == f"tiny-quick-{first.config_hash[:8]}"
    assert default_run_id(other) != default_run_id(first)
    full = plan("full")

    def with_first(**fields: float) -> Plan:
        """The plan whose first cell's steps have these settings, where they know them."""
        first = full.cells[0]
        known = [{name: fields[name] for name in fields.keys() & type(step).model_fields} for step in first.steps]
        steps = tuple(step.model_copy(update=found) for step, found in zip(first.steps, known, strict=True))
        return full.model_copy(update={"cells": (first.model_copy(update={"steps": steps}), *full.cells[1:])})

    guessed = with_first(answer_tokens=1234, discordance=0.3)
    changed = zip(guessed.cells[0].steps, full.cells[0].steps, strict=True)
    assert {step.step for step, was in changed if step != was} >= {"needle", "eval-gpqa"}
    assert guessed.config_hash == full.config_hash != with_first(margin=0.04).config_hash
