"""Tables at the widths of real terminals: every model, figure, interval and verdict is there, and none is cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from configs.expand import expand
from configs.load import load_sweep
from flows.results import recommendations_table, result_rows, results_table
from flows.terminal.progress import CellProgress, RunProgress, StepState, progress_table
from tests.warehouse.synthetic import celled, mirrored_demo, write_demo_run
from warehouse.dataset.snapshot import publish
from warehouse.ledger.store import Store, open_store

COLUMNS = (80, 100, 120)
OTHER = "gemma-4-26b-a4b"
FIGURES = ("tok_s", "speedup", "acceptance_length", "score", "parity")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """All steps of two models' cells, published."""
    store, plan = open_store(str(tmp_path_factory.mktemp("store"))), mirrored_demo()
    twins = [celled(each, model=each.cell.model.model_copy(update={"name": OTHER})) for each in plan.cells]
    write_demo_run(store, "two", plan=plan.model_copy(update={"cells": (*plan.cells, *twins)}))
    publish(store)
    return store


def lines_of(table: RenderableType, columns: int) -> list[str]:
    console = Console(width=columns, file=io.StringIO(), color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= columns and not any("…" in line for line in lines)
    return lines


@pytest.mark.parametrize("columns", COLUMNS)
def test_the_results_of_two_models_name_the_model_in_each_row_and_cut_no_figure(store: Store, columns: int) -> None:
    rows, lines = result_rows(store, "two"), lines_of(results_table(store, "two"), columns)
    said = [word for line in lines for word in line.split()]
    for model in (OTHER, "tiny-gemma4"):
        own = [row for row in rows if row["cell"].startswith(f"{model} ")]
        assert own and said.count(model) >= len(own), "once in each row, at the least"
    for row in rows:
        for name in FIGURES:
            for part in row[name].replace(" [", "\n[").replace(" (", "\n(").split("\n"):
                assert any(part in line for line in lines), (row, part)
        for word in row["verdict"].replace("(", "").replace(")", "").replace(",", "").split():
            assert any(word in line for line in lines), (row, word)
    headers = [line.split() for line in lines if line.split()[:1] == ["cell"]]
    assert all(header[-1] == "verdict" for header in headers), "the verdict stands in the row of its figures"


def test_a_rate_is_on_one_line_with_its_interval_where_there_is_room(store: Store) -> None:
    rates = [row["tok_s"] for row in result_rows(store, "two") if "[" in row["tok_s"]]
    lines = lines_of(results_table(store, "two"), 120)
    assert rates and all(any(rate in line for line in lines) for rate in rates)


@pytest.mark.parametrize("columns", COLUMNS)
def test_which_k_says_its_whole_sentence(store: Store, columns: int) -> None:
    table = recommendations_table(store, "two")
    assert table is not None
    said = {word for line in lines_of(table, columns) for word in line.split()}
    sentences = [str(text) for column in table.columns for text in column.values]
    assert sentences and all(set(sentence.split()) <= said for sentence in sentences)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("sweep", ["full", "demo", "precision"])
def test_the_status_shows_every_step_of_every_cell(sweep: str, columns: int) -> None:
    cells = []
    for planned in expand(load_sweep(sweep)).cells:
        states: dict[str, StepState] = {step.step: "ok" for step in planned.steps}
        cells.append(CellProgress(planned.cell.label, planned.cell.cell_key, states, {}, None))
    lines = lines_of(progress_table(RunProgress("r1", tuple(cells))), columns)
    said = [word for line in lines for word in line.split()]
    assert {step for cell in cells for step in cell.steps} <= set(said)
    assert said.count("ok") == sum(len(cell.steps) for cell in cells)


def test_one_step_is_no_steps() -> None:
    cell = CellProgress("model bf16 ar", "key", {"smoke": "ok"}, {}, None)
    assert RunProgress("r1", (cell,)).count == "1 of 1 step measured"
