"""A run whose evaluations could not read their items is refused before anything is rented, made or recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from configs.checkout import ROOT
from configs.evals.spec import EvalStep
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Plan
from flows.plans import framework_environments
from flows.preflight import DatasetUnreachable, require_datasets
from tests.fake_run import write_user_configs

NIGHTLY: Plan = expand(load_sweep("nightly"), recipe="r")


def with_dataset(dataset: str, plan: Plan = NIGHTLY) -> Plan:
    cells = [
        planned.model_copy(
            update={
                "steps": tuple(
                    step.model_copy(update={"dataset": dataset}) if isinstance(step, EvalStep) else step
                    for step in planned.steps
                )
            }
        )
        for planned in plan.cells
    ]
    return plan.model_copy(update={"cells": tuple(cells)})


def refused(plan: Plan) -> str:
    with pytest.raises(DatasetUnreachable) as caught:
        require_datasets(plan, {})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_gated_dataset_needs_a_token_a_file_or_nothing_left_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    said = refused(NIGHTLY)
    assert said.count("eval-gpqa: Idavidrein/gpqa is gated and HF_TOKEN isn't set") == 1, "once, not for every cell"
    assert "export HF_TOKEN" in said and "`dataset: FILE`" in said
    require_datasets(NIGHTLY, {planned.cell.cell_key: ["eval-gpqa"] for planned in NIGHTLY.cells})
    require_datasets(with_dataset("twin"), {})
    monkeypatch.setenv("HF_TOKEN", "hf_canary0123456789")
    require_datasets(NIGHTLY, {})


def test_a_file_that_rented_nodes_do_not_get_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "items.csv"
    assert f"dataset file '{file}' is gone" in refused(with_dataset(str(file)))
    file.write_text("")
    assert f"lies outside {ROOT}" in refused(with_dataset(str(file)))
    require_datasets(with_dataset(str(file), NIGHTLY.model_copy(update={"cloud": None})), {})


def test_a_sweep_is_refused_on_one_line_and_records_nothing(
    tmp_path: Path, finish_sweep: Callable[..., tuple[int, str]]
) -> None:
    write_user_configs(tmp_path, "ar")
    suite = "name: fake-suite\nsteps: [{step: smoke}, {step: eval-gpqa, max_tokens: 64, items: 5}]\n"
    (tmp_path / "suites" / "fake-suite.yaml").write_text(suite)
    code, said = finish_sweep("run", str(tmp_path / "sweep.yaml"), HF_TOKEN="")
    assert code == 1
    assert said.startswith("sweep: eval-gpqa: Idavidrein/gpqa is gated") and said.count("\n") == 1, said
    assert not list((tmp_path / "store").glob("runs/*"))


def test_the_environments_of_a_plan_are_those_of_its_frameworks() -> None:
    full = expand(load_sweep("full"), recipe="r")
    assert framework_environments(full) == ["hret", "inspect", "lm-eval"]
    assert framework_environments(NIGHTLY) == ["lm-eval"]
    assert framework_environments(expand(load_sweep("tiny-quick"), recipe="r")) == []
