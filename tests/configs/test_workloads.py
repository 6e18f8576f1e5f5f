"""What planning knows of a prompts step: its workloads by name, its requests, its room, its price, and its mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.expand import expand
from configs.files import ConfigError
from configs.load import load_suite, load_sweep
from configs.schema import Plan, PlannedCell
from configs.step import Work
from configs.steps.prompts import PromptsStep, condition_name, workload_names, workload_of, workloads_of


def step(**fields: Any) -> PromptsStep:
    return PromptsStep.model_validate({"step": "prompts", "workloads": "seeds", **fields})


ONE = {"name": "one", "language": "English", "prompt": "Say something.", "max_tokens": 40}


def test_every_shipped_file_of_workloads_loads() -> None:
    assert {"mtp-gb10", "mtp-spark", "seeds", "tiny"} <= set(workload_names())
    for name in workload_names():
        assert len({each.name for each in workloads_of(name)}) == len(workloads_of(name))


def test_the_seeds_have_the_caps_and_languages_of_the_write_ups() -> None:
    found = {each.name: each for each in workloads_of("seeds")}
    caps = {"qa": 256, "code": 512, "json": 1024, "math": 32, "longcode": 2048}
    assert {name: found[name].max_tokens for name in caps} == caps
    assert {each.language for each in found.values()} >= {"English", "Japanese", "Korean", "Python", "JSON"}
    assert [name for name, each in found.items() if each.check] == ["code", "longcode"]
    theirs = workloads_of("mtp-spark"), workloads_of("mtp-gb10")
    assert [[each.name for each in one] for one in theirs] == [[*caps], ["ja_finance", "en_finance", "py_code"]]
    assert workloads_of("seeds") == (*theirs[0], *theirs[1], found["ko_summary"])


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


def test_a_better_guess_of_an_answer_continues_the_same_run_and_another_prompt_does_not() -> None:
    plan = expand(load_sweep("prompts"))

    def with_first(**fields: Any) -> Plan:
        cell = plan.cells[0]
        steps = [
            each.model_copy(update={"workloads": (each.workloads[0].model_copy(update=fields), *each.workloads[1:])})
            if isinstance(each, PromptsStep)
            else each
            for each in cell.steps
        ]
        return plan.model_copy(update={"cells": (cell.model_copy(update={"steps": tuple(steps)}), *plan.cells[1:])})

    guessed = with_first(answer_tokens=7)
    assert guessed != plan and guessed.config_hash == plan.config_hash
    assert with_first(max_tokens=7).config_hash != plan.config_hash


def test_a_timed_step_is_measured_in_every_visit() -> None:
    starts = expand(load_sweep("prompts-tiny")).cells[1].starts
    assert [each.name for start in starts for each in start.measurements] == ["smoke", "prompts", "prompts@2"]


SUITE = "name: mine\nsteps:\n  - step: prompts\n    workloads: {workloads}\n"

MINE = """
name: mine
workloads:
  - name: sum
    language: Python
    prompt: Write a Python program that adds.
    max_tokens: 64
    check: {cases: [{stdin: 1 2, stdout: '3'}]}
"""


def test_a_file_of_ones_own_is_named_by_its_path(write: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    write(SUITE.format(workloads=path), "suites/mine.yaml")
    suite = load_suite_of(write)
    assert [each.name for each in suite.workloads] == ["sum"]


def test_a_file_that_includes_itself_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE + f"include: [{path}]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="'mine' includes itself"):
        workloads_of(str(path))


def test_a_list_in_the_suite_needs_no_file(write: Callable[..., str]) -> None:
    write(SUITE.format(workloads="[{name: a, language: English, prompt: Hello., max_tokens: 8}]"), "suites/mine.yaml")
    assert load_suite_of(write).workloads[0].prompt == "Hello."


def load_suite_of(write: Callable[..., str]) -> PromptsStep:
    from configs.files import Library

    folder = Path(write("", "unused.yaml")).parent
    [found] = load_suite("mine", Library.beside(folder)).steps
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
        (
            "[{name: a, language: x, prompt: y, max_tokens: 8}, {name: a, language: x, prompt: z, max_tokens: 8}]",
            "steps[0].workloads[1].name",
        ),
        (
            "[{name: a, language: x, prompt: y, max_tokens: 8, check: {cases: [{arguments: [1], stdout: '1'}]}}]",
            "steps[0].workloads[0].check.cases[0].arguments: arguments without a function",
        ),
    ],
)
def test_mistakes_are_named_with_their_line(write: Callable[..., str], workloads: str, said: str) -> None:
    write(SUITE.format(workloads=workloads), "suites/mine.yaml")
    with pytest.raises(ConfigError) as error:
        load_suite_of(write)
    assert said in str(error.value)


def test_a_condition_says_its_workload() -> None:
    assert condition_name("py_code", 4) == "py_code c=4" and workload_of("py_code c=4") == "py_code"
