"""What planning knows of a prompts step and of evaluations: names, requests, room, price, and their mistakes."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.checkout import ROOT
from configs.expand import expand
from configs.files import ConfigError, Library
from configs.load import load_suite, load_sweep
from configs.schema import Plan, PlannedCell
from configs.step import Work
from configs.steps.eval import EvalStep
from configs.steps.prompts import PromptsStep, condition_name, workload_names, workload_of, workloads_of
from tests.configs.conftest import Write


def step(**fields: Any) -> PromptsStep:
    return PromptsStep.model_validate({"step": "prompts", "workloads": "seeds", **fields})


ONE = {"name": "one", "language": "English", "prompt": "Say something.", "max_tokens": 40}


def test_every_shipped_file_of_workloads_loads_with_the_caps_and_languages_of_the_write_ups() -> None:
    assert {"mtp-gb10", "mtp-spark", "seeds", "tiny"} <= set(workload_names())
    for name in workload_names():
        assert len({each.name for each in workloads_of(name)}) == len(workloads_of(name))
    found = {each.name: each for each in workloads_of("seeds")}
    caps = {"qa": 256, "code": 512, "json": 1024, "math": 32, "longcode": 2048}
    assert {name: found[name].max_tokens for name in caps} == caps
    assert {each.language for each in found.values()} >= {"English", "Japanese", "Korean", "Python", "JSON"}
    assert [name for name, each in found.items() if each.check] == ["code", "longcode"]
    theirs = workloads_of("mtp-spark"), workloads_of("mtp-gb10")
    assert [[each.name for each in one] for one in theirs] == [[*caps], ["ja_finance", "en_finance", "py_code"]]
    assert workloads_of("seeds") == (*theirs[0], *theirs[1], found["ko_summary"])
    assert condition_name("py_code", 4) == "py_code c=4" and workload_of("py_code c=4") == "py_code"


def test_every_workload_is_priced_at_every_concurrency_with_its_warm_up() -> None:
    cell = expand(load_sweep("prompts-tiny")).cells[0].cell
    two = [ONE, ONE | {"name": "two", "max_tokens": 10, "answer_tokens": 4}]
    assert step(workloads=two, concurrencies=[1, 4], repeats=3).workload(cell) == (
        Work(3, 67, 40, 1, 40), Work(1, 67, 10, 1, 10), Work(3, 67, 4, 1, 10), Work(1, 67, 4, 1, 10),
        Work(12, 67, 40, 4, 40), Work(4, 67, 10, 4, 10), Work(12, 67, 4, 4, 10), Work(4, 67, 4, 4, 10),
    )  # fmt: skip
    assert [*step(workloads=two).longest_requests(cell)] == [("workload 'one'", 118), ("workload 'two'", 88)]


def test_a_plan_keeps_the_workloads_themselves() -> None:
    plan = expand(load_sweep("prompts"))
    again = Plan.model_validate_json(plan.model_dump_json())
    assert again == plan and again.config_hash == plan.config_hash
    steps = PlannedCell.model_validate_json(plan.cells[0].model_dump_json()).steps
    [kept] = [each for each in steps if isinstance(each, PromptsStep)]
    assert kept.workloads == workloads_of("seeds")
    assert "日銀のYCC撤廃" in kept.workloads[5].prompt and kept.workloads[1].check is not None


def test_a_better_guess_of_an_answer_continues_the_same_run_and_another_cap_does_not() -> None:
    plan = expand(load_sweep("prompts"))

    def with_first(**fields: Any) -> Plan:
        first = plan.cells[0]
        [prompts] = [each for each in first.steps if isinstance(each, PromptsStep)]
        workloads = (prompts.workloads[0].model_copy(update=fields), *prompts.workloads[1:])
        changed = prompts.model_copy(update={"workloads": workloads})
        steps = tuple(changed if each is prompts else each for each in first.steps)
        return plan.model_copy(update={"cells": (first.model_copy(update={"steps": steps}), *plan.cells[1:])})

    guessed = with_first(answer_tokens=7)
    assert guessed != plan and guessed.config_hash == plan.config_hash
    assert with_first(max_tokens=7).config_hash != plan.config_hash


MINE = """
name: mine
workloads:
  - name: sum
    language: Python
    prompt: Write a Python program that adds.
    max_tokens: 64
    check: {cases: [{stdin: 1 2, stdout: '3'}]}
"""


def test_workloads_of_ones_own_are_a_file_that_is_named_by_its_path_or_a_list(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    assert [each.name for each in step_with(write, path).workloads] == ["sum"]
    listed = step_with(write, "[{name: a, language: English, prompt: Hello., max_tokens: 8}]")
    assert listed.workloads[0].prompt == "Hello."
    path.write_text(MINE + f"include: [{path}]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="'mine' includes itself"):
        workloads_of(str(path))


def step_with(write: Write, workloads: object) -> PromptsStep:
    write(f"name: mine\nsteps:\n  - step: prompts\n    workloads: {workloads}\n", "suites/mine.yaml")
    [found] = load_suite("mine", Library.beside(Path())).steps
    assert isinstance(found, PromptsStep)
    return found


@pytest.mark.parametrize(
    ("workloads", "said"),
    [
        ("seedz", 'mine.yaml:4: steps[0].workloads: "seedz" isn\'t accepted'),
        ("seedz", "no workloads 'seedz'; accepted: mtp-gb10, mtp-spark, seeds, tiny (did you mean 'seeds'?)"),
        ("gone.yaml", "can't be read"),
        ("[]", "at least 1 item"),
        ("[{name: a b, language: x, prompt: y, max_tokens: 8}]", "steps[0].workloads[0].name"),
        ("[{name: a, langage: x, prompt: y, max_tokens: 8}]", "did you mean 'language'?"),
        ("[{name: a, language: x, prompt: y, max_tokens: 8}, {name: a, language: x, prompt: z, max_tokens: 8}]",
         "steps[0].workloads[1].name"),
        ("[{name: a, language: x, prompt: y, max_tokens: 8, check: {cases: [{arguments: [1], stdout: '1'}]}}]",
         "steps[0].workloads[0].check.cases[0].arguments: arguments without a function"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_their_line(write: Write, workloads: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        step_with(write, workloads)
    assert said in str(error.value)


@pytest.fixture
def of_fields(refused: Write, sweep_text: str) -> Write:
    """What is said of a step with these fields."""

    def said(fields: str) -> str:
        suite = f"name: mine\nsteps:\n  - {{step: eval-gpqa, max_tokens: 64, {fields}}}\n"
        return refused(sweep_text.replace("suite: tiny-quick", "suite: mine"), {"suites/mine.yaml": suite})

    return said


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ("dataset: gone.jsonl", ["steps[0].dataset: no file", "gone.jsonl", "relative to"]),
        ("dataset: /nowhere/gone.parquet", ["steps[0].dataset: no file '/nowhere/gone.parquet'"]),
        ("dataset: hubb", ["steps[0].dataset", "did you mean 'hub'?", ".jsonl, .json, .csv, .parquet"]),
        ("dataset: items.txt", ["'items.txt' is no dataset; accepted: hub, twin", ".jsonl"]),
        ("'looks': [0.5, 1]", ["steps[0].looks"]),
        ("items: 5, params: {}", ["steps[0].params: unknown key; accepted: ", "margin"]),
        ("margin: 5", ["steps[0].margin", "5", "less than 1"]),
    ],
)
def test_a_mistake_in_an_evaluation_has_place_and_remedy(of_fields: Write, fields: str, parts: list[str]) -> None:
    said = of_fields(fields)
    assert "suites/mine.yaml:3: " in said
    assert [part for part in parts if part not in said] == [], said


def test_a_users_file_is_found_from_anywhere(write: Write, of_fields: Write, sweep_text: str, tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("Question\nwhat\n")
    step = "{step: eval-gpqa, max_tokens: 64, dataset: %s}"
    write(f"name: mine\nsteps: [{step % (tmp_path / 'items.csv')}]\n", "suites/mine.yaml")
    assert load_sweep(write(sweep_text.replace("suite: tiny-quick", "suite: mine"))).suite == "mine"
    said = of_fields("dataset: items.csv")
    assert f"{ROOT}/items.csv" in said, "a relative path is the checkout's, which nodes have too"


def test_a_twin_has_its_own_number_of_items() -> None:
    step = next(step for step in load_suite("full").steps if isinstance(step, EvalStep))
    twin = step.model_copy(update={"dataset": "twin", "items": None})
    assert (step.n_items, step.items_there, twin.n_items, twin.dataset_file) == (198, 198, 192, None)


def written(folder: Path, suffix: str, n: int) -> Path:
    """A file of n records whose texts have line breaks and blank lines in them."""
    records = [{"Question": f"first line\n\nnumber {i}", "Correct Answer": "a"} for i in range(n)]
    file = folder / f"items{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), file)
    elif suffix == ".json":
        file.write_text(json.dumps(records, indent=1))
    elif suffix == ".jsonl":
        file.write_text("\n".join(json.dumps(record) for record in records) + "\n\n")
    else:
        with file.open("w", newline="") as text:
            rows = csv.DictWriter(text, fieldnames=list(records[0]))
            rows.writeheader()
            rows.writerows(records)
    return file


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_the_plan_of_a_users_file_counts_its_records(tmp_path: Path, suffix: str) -> None:
    suite_step = next(step for step in load_suite("full").steps if isinstance(step, EvalStep))
    step = suite_step.model_copy(update={"dataset": str(written(tmp_path, suffix, 300)), "items": None})
    assert (step.items_there, step.n_items) == (300, 300), "more than the suite's 198"
    some = step.model_copy(update={"items": 250})
    assert some.n_items == 250
    cell = expand(load_sweep("full")).cells[0].cell
    assert [load.requests for load in some.workload(cell)] == [250]
    written(tmp_path, suffix, 20)
    assert step.n_items == 20, "the file as it is now"


def test_a_file_that_cant_give_the_items_is_refused_when_the_suite_is_read(of_fields: Write, tmp_path: Path) -> None:
    file = written(tmp_path, ".jsonl", 3)
    said = of_fields(f"items: 4, dataset: {file}")
    assert "steps[0].items: 4, but" in said and "has 3; accepted: 1 to 3" in said
    file.write_text("")
    said = of_fields(f"dataset: {file}")
    assert "steps[0].dataset" in said and "has no records" in said
    broken = tmp_path / "items.parquet"
    broken.write_text("no parquet")
    assert "is no parquet file: " in of_fields(f"dataset: {broken}")


@pytest.mark.parametrize(
    ("step", "accepted"), [("eval-gpqa, max_tokens: 4096", 5596), ("eval-mmlu-pro, max_tokens: 1024", 3024)]
)
def test_the_longest_request_must_fit(write: Write, refused: Write, sweep_text: str, step: str, accepted: int) -> None:
    """1024 tokens of answer and a usual prompt of 350 would fit into 2048; MMLU-Pro's longest prompt would not."""
    text, suite = sweep_text.replace("suite: tiny-quick", "suite: mine"), "name: mine\nsteps: [{step: %s}]\n"
    said = refused(text, {"suites/mine.yaml": suite % step})
    assert f"2048 is too short for step '{step.partition(',')[0]}'" in said
    assert said.endswith(f"accepted: {accepted} or more")
    write(suite % "eval-mmlu-pro, dataset: twin, max_tokens: 1024", "suites/mine.yaml")
    assert load_sweep(write(text)).suite == "mine"
