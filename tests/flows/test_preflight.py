"""A run whose steps could not read their items is refused before anything is rented, made or recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Plan
from configs.steps.eval import EvalStep
from configs.steps.load import LoadStep
from flows import preflight
from flows.plans import framework_environments
from flows.preflight import DatasetUnreachable, rehearsed, require_datasets
from tests.fake_run import write_user_configs
from tests.flows.conftest import Finish, with_steps
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store
from warehouse.ledger.verdicts import Verdict

NIGHTLY: Plan = expand(load_sweep("nightly"))


def with_dataset(dataset: str, plan: Plan = NIGHTLY) -> Plan:
    return with_steps(plan, EvalStep, dataset=dataset)


def on_task(task: str) -> Plan:
    assert NIGHTLY.cloud is not None
    return NIGHTLY.model_copy(update={"cloud": NIGHTLY.cloud.model_copy(update={"task": task})})


def ledger_at(folder: Path, committed: dict[str, Verdict] | None = None) -> Ledger:
    """A ledger in which every cell of the nightly has committed these steps, with these verdicts."""
    ledger = Ledger(open_store(str(folder / "store")), "r1")
    for planned in NIGHTLY.cells:
        for step, verdict in (committed or {}).items():
            ledger.commit(planned.cell.cell_key, ledger.new_commit(step, 1, "o", verdict, [], 1.0, []))
    return ledger


@pytest.fixture
def new_run(tmp_path: Path) -> Ledger:
    """A run of which nothing is measured."""
    return ledger_at(tmp_path)


@pytest.fixture
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)


@contextmanager
def in_checkout(name: str) -> Iterator[None]:
    """A file below the checkout; it is gone afterwards, with the folders that were made for it."""
    file = ROOT / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("Question\nwhat\n")
    try:
        yield
    finally:
        file.unlink()
        with suppress(OSError):  # the first folder that has something else in it stays
            file.parent.rmdir()
            file.parent.parent.rmdir()


def refused(plan: Plan, ledger: Ledger) -> str:
    with pytest.raises(DatasetUnreachable) as caught:
        require_datasets(plan, ledger)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_gated_dataset_needs_a_token_a_file_or_nothing_left_to_measure(
    tmp_path: Path, new_run: Ledger, no_token: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(NIGHTLY, new_run)
    assert said.count("eval-gpqa: Idavidrein/gpqa is gated and HF_TOKEN isn't set") == 1, "once, not for every cell"
    assert "export HF_TOKEN" in said and "`dataset: FILE`" in said
    require_datasets(NIGHTLY, ledger_at(tmp_path / "measured", {"eval-gpqa": "ok"}))
    require_datasets(with_dataset("twin"), new_run)
    monkeypatch.setenv("HF_TOKEN", "hf_canary0123456789")
    require_datasets(NIGHTLY, new_run)


def test_cells_whose_gate_is_closed_need_nothing_any_more(tmp_path: Path, no_token: None) -> None:
    require_datasets(NIGHTLY, ledger_at(tmp_path / "closed", {"smoke": "rejected"}))
    assert "is gated" in refused(NIGHTLY, ledger_at(tmp_path / "open", {"smoke": "ok"}))
    assert "is gated" in refused(NIGHTLY, ledger_at(tmp_path / "doubtful", {"smoke": "suspect"}))


def test_the_token_is_only_asked_for_where_the_task_passes_it_on(
    tmp_path: Path, new_run: Ledger, no_token: None
) -> None:
    require_datasets(on_task("slurm"), new_run)
    assert "HF_TOKEN isn't set" in refused(on_task("h100-spot"), new_run)
    own = tmp_path / "own.yaml"
    resources = "{accelerators: H100:1, autostop: {idle_minutes: 5, down: true}}"
    own.write_text(f"resources: {resources}\nrun: exec bin/node run\n")
    require_datasets(on_task(str(own)), new_run)


def test_a_file_that_rented_nodes_do_not_get_is_refused(tmp_path: Path, new_run: Ledger) -> None:
    file = tmp_path / "items.csv"
    assert f"dataset file '{file}' is gone" in refused(with_dataset(str(file)), new_run)
    file.write_text("Question\nwhat\n")
    assert f"lies outside {ROOT}" in refused(with_dataset(str(file)), new_run)
    assert f"lies outside {ROOT}" in refused(with_dataset(os.path.relpath(file, ROOT)), new_run)
    require_datasets(with_dataset(str(file), NIGHTLY.model_copy(update={"cloud": None})), new_run)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("results/preflight-test/items.csv", "/results"),
        ("out/preflight-test/items.csv", "/out"),
        ("build/preflight-test/items.csv", "/build"),
        ("preflight-test-1/.venv/items.csv", ".venv"),
        ("preflight-test-2/results/items.csv", None),
    ],
)
def test_a_folder_of_the_checkout_that_is_not_copied_to_nodes_is_refused_with_the_line_that_says_so(
    new_run: Ledger, name: str, line: str | None
) -> None:
    with in_checkout(name):
        if line is None:
            require_datasets(with_dataset(name), new_run)
            assert f"name it relative to {ROOT}, as '{name}'" in refused(with_dataset(str(ROOT / name)), new_run)
        else:
            assert f"isn't copied to rented nodes (.skyignore has '{line}')" in refused(with_dataset(name), new_run)
        require_datasets(with_dataset(name, NIGHTLY.model_copy(update={"cloud": None})), new_run)


def with_load(dataset: str, requests_per_category: int | None = None) -> Plan:
    """The shipped sweep that loads cells with SPEED-Bench, with other prompts."""
    plan = expand(load_sweep("speed-bench"))
    return with_steps(plan, LoadStep, dataset=dataset, requests_per_category=requests_per_category)


def test_prompts_with_holes_are_refused_before_a_node_would(new_run: Ledger) -> None:
    said = refused(with_load("speed-bench"), new_run)
    assert said.count("load: about half of the prompts of 'speed-bench' are placeholders") == 1, "once for all cells"
    assert "prepare_data.py" in said and "`requests_per_category`" in said and "`dataset: ours`" in said
    require_datasets(with_load("speed-bench", requests_per_category=10), new_run)
    require_datasets(with_load("ours"), new_run)


def test_a_file_of_prompts_that_rented_nodes_do_not_get_is_refused(tmp_path: Path, new_run: Ledger) -> None:
    file = tmp_path / "prompts.jsonl"
    assert f"load: dataset file '{file}' is gone" in refused(with_load(str(file)), new_run)
    file.write_text('{"category": "coding", "turns": ["Write it."]}\n')
    assert f"lies outside {ROOT}" in refused(with_load(str(file)), new_run)


def test_a_sweep_is_refused_on_one_line_and_records_nothing(tmp_path: Path, finish_sweep: Finish) -> None:
    suite = "name: fake-suite\nsteps: [{step: smoke}, {step: eval-gpqa, max_tokens: 64, items: 5}]\n"
    said = finish_sweep("run", write_user_configs(tmp_path, "ar", suite), HF_TOKEN="", code=1)
    assert said.startswith("sweep: eval-gpqa: Idavidrein/gpqa is gated") and said.count("\n") == 1, said
    assert not list((tmp_path / "store").glob("runs/*"))


def test_the_environments_of_a_plan_are_those_of_its_frameworks() -> None:
    for name, wanted in (("full", ["hret", "inspect", "lm-eval"]), ("nightly", ["lm-eval"]), ("tiny-quick", [])):
        assert framework_environments(expand(load_sweep(name))) == wanted


def test_the_doctor_rehearses_the_cells_that_the_run_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "rehearse", lambda parts, *_: list(parts))
    assert rehearsed(NIGHTLY, ledger_at(tmp_path / "new"), "nightly", print)
    assert rehearsed(NIGHTLY, ledger_at(tmp_path / "old", {"smoke": "rejected"}), "nightly", print) == []
