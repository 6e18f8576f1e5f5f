"""Methods as a table: what the pinned vLLM knows, under whichever name, and how many tokens each can draft."""

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.checks.drafting import TREE_DEPTH, USUAL_TREE_DEPTH
from configs.expand import expand
from configs.load import ConfigError, load_sweep, load_technique, names
from configs.methods import ALIASES, METHODS, MOST_K
from flows.clusters.skypilot.task_file import TaskFileError
from flows.forecast.estimates import assumptions
from flows.plans import make_plan
from tasks.engine import command
from tests.configs.conftest import Write

OWN = "name: own\ncommand: [vllm]\nargs: [{args}]\n"
SWEEP = """\
name: mine
engine: {engine}
gpu: {gpu}
suite: tiny-quick
serving: {{max_model_len: 2048}}
cells:
  - {{model: {model}, precision: bf16, {row}}}
"""
HUB = ", draft: {hub_id: some/draft}"


def sweep(row: str, engine: str = "vllm", gpu: str = "h100", model: str = "gemma-4-12b") -> str:
    return SWEEP.format(engine=engine, gpu=gpu, model=model, row=f"technique: {row}")


@pytest.fixture(scope="module")
def vllm(engine_python: Path) -> Path:
    """The pinned engine's own sources."""
    [found] = engine_python.parents[1].glob("lib/python3*/site-packages/vllm")
    return found


Served = Callable[[str], dict[str, object]]


@pytest.fixture
def served(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    """What vLLM is told of the drafts of a sweep's one cell."""
    monkeypatch.setattr(command, "program", lambda _: ("vllm",))  # it isn't installed wherever this runs

    def told(text: str) -> dict[str, object]:
        [planned] = expand(load_sweep(write(text))).cells
        argv = command.engine_command(planned.cell, 1, tmp_path).argv
        return dict(json.loads(argv[argv.index("--speculative-config") + 1]))

    return told


def literals(source: str, *names: str) -> list[str]:
    """The strings of these Literals of a module, without those of other Literals that they name."""
    found: list[str] = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) in names:
            inside = ast.walk(statement.value)
            found += [node.value for node in inside if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return found


def test_the_table_has_every_method_that_the_pinned_vllm_drafts_with_and_every_other_name_of_one(vllm: Path) -> None:
    source = (vllm / "config" / "speculative.py").read_text(encoding="utf-8")
    of_mtp = {*literals(source, "MTPModelTypes")}
    others = "NgramGPUTypes", "DFlashModelTypes", "DSparkModelTypes", "EagleModelTypes", "SpeculativeMethod"
    drafting = {name for name in METHODS if METHODS[name].drafts}
    assert drafting == {*literals(source, *others), "mtp"} - {"extract_hidden_states"}
    assert {*ALIASES} == of_mtp - {"mtp"}


def test_bounds_are_the_pinned_vllms(vllm: Path) -> None:
    files = "v1/sample/rejection_sampler.py", "config/speculative.py", "model_executor/models/registry.py"
    sampler, config, models = ((vllm / file).read_text(encoding="utf-8") for file in files)
    assert f"\nMAX_SPEC_LEN = {MOST_K}\n" in sampler and f"\n    {TREE_DEPTH}: int = {USUAL_TREE_DEPTH}\n" in config
    assert ('    "MLPSpeculatorPreTrainedModel"' in models) is (METHODS["mlp_speculator"].unserved is None)


@pytest.mark.parametrize(
    "row", [f"medusa, k: 4{HUB}", "ngram_gpu, k: 4", f"dspark, k: 7{HUB}", "suffix, k: 24", f"mtp-dynamic-k, k: 4{HUB}"]
)
def test_what_the_pinned_vllm_serves_is_planned(served: Served, row: str) -> None:
    method = load_technique(row.partition(",")[0]).method
    assert served(sweep(row))["method"] == method


def test_every_shipped_drafting_method_has_a_technique() -> None:
    shipped = {load_technique(name).method for name in names("techniques")}
    assert shipped >= {*METHODS} - {"eagle"}, "eagle is eagle3 with another head"


def test_a_class_of_ones_own_needs_its_name_and_no_draft(write: Write, refused: Write) -> None:
    assert "technique: 'custom_class' names no class that drafts; accepted: " in refused(sweep("custom_class, k: 3"))
    own = "name: mine\nmethod: custom_class\ntakes_k: true\nspeculative_config: {model: my_module.MyProposer}\n"
    write(own, "techniques/mine.yaml")
    plan = expand(load_sweep(write(sweep("mine, k: 3"))))
    assert any("custom_class" in said and "AR's speed" in said for said in assumptions(plan, spot=False))


@pytest.mark.parametrize("alias", ["deepseek_mtp", "qwen3_next_mtp"])
def test_an_older_name_of_mtp_is_mtp_and_the_plan_says_so(write: Write, served: Served, alias: str) -> None:
    write(f"name: posted\nmethod: {alias}\ntakes_k: true\n", "techniques/posted.yaml")
    text = sweep("posted, k: 2", model="qwen3.6-27b")
    assert served(text) == {"method": "mtp", "num_speculative_tokens": 2}
    plan = expand(load_sweep(write(text)))
    assert [line for line in assumptions(plan, spot=False) if alias in line and "posted" in line]


def test_another_name_is_refused_with_those_that_are_known(refused: Write) -> None:
    said = refused(sweep("odd, k: 2"), {"techniques/odd.yaml": "name: odd\nmethod: medus\ntakes_k: true\n"})
    assert "odd.yaml:2: method: 'medus' isn't known; accepted: ar, " in said and "did you mean 'medusa'?" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("method: ngram_gpu\ntakes_k: true\nneeds_draft: true", "needs_draft: .* ngram_gpu has no second checkpoint"),
        ("method: medusa\ntakes_k: true", "needs_draft: missing; medusa drafts with a second checkpoint"),
        ("method: ar\ntakes_k: true", "takes_k: true given, but ar drafts nothing"),
        ("method: mtp", "takes_k: missing; vLLM has no K of its own for mtp"),
    ],
)
def test_a_technique_has_the_draft_and_the_k_of_its_method(write: Write, text: str, said: str) -> None:
    write(f"name: odd\n{text}\n", "techniques/odd.yaml")
    row = "odd" + ", k: 2" * ("takes_k" in text) + HUB * ("needs_draft" in text)
    with pytest.raises(ConfigError, match=rf"odd\.yaml:\d: {said}.*accepted: "):
        load_sweep(write(sweep(row)))


def test_suffix_has_a_k_of_the_engines_own_and_a_row_that_takes_one_says_it(write: Write, refused: Write) -> None:
    write("name: own-k\nmethod: suffix\n", "techniques/own-k.yaml")
    assert load_sweep(write(sweep("own-k"))).cells[0].k is None
    assert "k: missing; 'suffix' needs it" in refused(sweep("suffix"))


SHAPE = """\
name: {name}
config:
  architectures: [Some]
  model_type: some
  vocab_size: 100
  {size}
"""


@pytest.mark.parametrize(
    ("row", "k", "most"),
    [
        (f"mtp{HUB}", 4000, 128),
        ("ngram", 129, 128),
        ("suffix", 25, 24),
        (f"mtp-dynamic-k{HUB}", 5, 4),
        ("dflash, draft: {shape: gemma-4-31b-dflash}", 16, 15),
        ("medusa, draft: {shape: sized}", 6, 5),
        ("dspark, draft: {shape: sized}", 8, 7),
    ],
)
def test_a_k_that_no_step_can_draft_is_refused_and_the_longest_that_one_can_is_not(
    write: Write, refused: Write, row: str, k: int, most: int
) -> None:
    write(SHAPE.format(name="sized", size="medusa_num_heads: 5\n  block_size: 7"), "shapes/sized.yaml")
    model = "gemma-4-31b-shape" if "shape" in row else "gemma-4-12b"
    said = refused(sweep(f"{row}, k: {k}", model=model))
    assert f"cells[0].k: {k} given, but " in said and said.endswith(f"; accepted: {most} or fewer")
    assert load_sweep(write(sweep(f"{row}, k: {most}", model=model))).cells[0].k == most


def test_the_demo_familys_drafter_has_a_block_too(refused: Write) -> None:
    row = "dflash, k: 8, draft: {family_member: dflash}"
    assert "accepted: 7 or fewer" in refused(sweep(row, "vllm-cpu", "cpu", "tiny-gemma4"))


def test_a_step_must_hold_the_draft_and_a_token_and_heads_draft_in_turn(write: Write, refused: Write) -> None:
    small = {"engines/own.yaml": OWN.format(args="--max-num-batched-tokens=64")}
    assert "(--max-num-batched-tokens); accepted: 63 or fewer" in refused(sweep("ngram, k: 64", "own"), small)
    write(SHAPE.format(name="heads", size="num_nextn_predict_layers: 3"), "shapes/heads.yaml")
    row = "mtp, draft: {shape: heads}, k: "
    assert "accepted: up to 3, or a multiple of it" in refused(sweep(f"{row}4", model="gemma-4-31b-shape"))
    assert load_sweep(write(sweep(f"{row}6", model="gemma-4-31b-shape"))).name == "mine"


def test_a_k_in_the_techniques_file_is_held_to_the_same_bounds(refused: Write) -> None:
    text = "name: fixed\nmethod: eagle\nspeculative_config: {model: me/eagle, num_speculative_tokens: 4000}\n"
    said = refused(sweep("fixed"), {"techniques/fixed.yaml": text})
    assert "cells[0].technique: 4000 given, but " in said and said.endswith("accepted: 128 or fewer")


def test_a_schedule_is_never_cut_by_a_smaller_k(refused: Write) -> None:
    assert "drafts up to 4; accepted: 4" in refused(sweep(f"mtp-dynamic-k, k: 2{HUB}"))


def test_what_the_pinned_vllm_knows_by_name_only_is_left_to_another(write: Write, refused: Write) -> None:
    row = f"mlp_speculator, k: 3{HUB}"
    assert "technique: vLLM 0.32.0 knows mlp_speculator by name only" in refused(sweep(row))
    write(OWN.format(args=""), "engines/own.yaml")
    assert load_sweep(write(sweep(row, "own"))).engine == "own"


def test_drafting_over_two_cards_is_planned_on_a_machine_that_has_them(write: Write) -> None:
    text = sweep(f"eagle3, k: 3{HUB}", "vllm-tp2").replace("suite: ", "cloud: {task: h100-x2}\nsuite: ")
    [planned] = make_plan(write(text)).cells
    assert (planned.cell.cards, planned.cell.tensor_parallel, planned.cell.technique.drafts) == (2, 2, True)
    with pytest.raises(TaskFileError, match=r"'H100:1': .* needs 2 x h100"):
        make_plan(write(text.replace("h100-x2", "h100-spot")))


def test_generates_own_schedule_is_generates_alone(write: Write, refused: Write) -> None:
    row = "draft_model-heuristic, k: 4, draft: {family_member: draft}"
    assert "which only generate() knows" in refused(sweep(row, "vllm-cpu", "cpu", "tiny-gemma4"))
    text = sweep(row, "transformers-cpu", "cpu", "tiny-gemma4").replace("tiny-quick", "transformers-tiny")
    [planned] = expand(load_sweep(write(text))).cells
    assert (planned.cell.k, planned.cell.most_drafted) == (4, None), "K is where it begins"
    of_gemma = "name: odd\nmethod: mtp\ntakes_k: true\nneeds_draft: true\nspeculative_config: {{{schedule}}}\n"
    odd = {"techniques/odd.yaml": of_gemma.format(schedule="num_assistant_tokens_schedule: heuristic")}
    said = refused(text.replace("draft_model-heuristic", "odd"), odd)
    assert "which generate() doesn't know" in said
