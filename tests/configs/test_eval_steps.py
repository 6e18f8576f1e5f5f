"""What an evaluation step refuses when its suite is read, and what it asks for."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_suite, load_sweep
from configs.steps.eval import EvalStep

Write = Callable[..., str]


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
def test_a_mistake_in_an_evaluation_is_one_line_with_place_and_remedy(
    of_fields: Write, fields: str, parts: list[str]
) -> None:
    said = of_fields(fields)
    assert "suites/mine.yaml:3: " in said
    assert [part for part in parts if part not in said] == [], said


def test_a_file_of_the_users_is_found_from_the_checkout_whatever_the_current_folder(
    write: Write, of_fields: Write, sweep_text: str, tmp_path: Path
) -> None:
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
    assert "steps[0].dataset" in (said := of_fields(f"dataset: {file}")) and "has no records" in said
    broken = tmp_path / "items.parquet"
    broken.write_text("no parquet")
    assert "is no parquet file: " in of_fields(f"dataset: {broken}")


@pytest.mark.parametrize(
    ("step", "accepted"), [("eval-gpqa, max_tokens: 4096", 5596), ("eval-mmlu-pro, max_tokens: 1024", 3024)]
)
def test_the_longest_prompt_and_the_longest_answer_must_fit_and_not_only_the_usual_one(
    write: Write, refused: Write, sweep_text: str, step: str, accepted: int
) -> None:
    """1024 tokens of answer and a usual prompt of 350 would fit into 2048; MMLU-Pro's longest prompt would not."""
    text, suite = sweep_text.replace("suite: tiny-quick", "suite: mine"), "name: mine\nsteps: [{step: %s}]\n"
    said = refused(text, {"suites/mine.yaml": suite % step})
    assert f"2048 is too short for step '{step.partition(',')[0]}'" in said
    assert said.endswith(f"accepted: {accepted} or more")
    write(suite % "eval-mmlu-pro, dataset: twin, max_tokens: 1024", "suites/mine.yaml")
    assert load_sweep(write(text)).suite == "mine"
