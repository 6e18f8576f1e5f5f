"""Tables at the widths of real terminals: every model, figure, interval and verdict is there, and none is cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from configs.expand import expand
from configs.load import load_sweep
from flows.matrix import Column, Matrix, words
from flows.results import published_tables, recommendations_table, result_rows, results_table
from flows.terminal.progress import CellProgress, RunProgress, StepState, progress_table
from tests.warehouse.synthetic import celled, mirrored_demo, write_demo_run
from warehouse.dataset.snapshot import publish, read_current
from warehouse.dataset.tables import RECOMMENDATIONS
from warehouse.ledger.lease import Heartbeat
from warehouse.ledger.store import Store, open_store
from warehouse.report.published.read import published_rows

COLUMNS = (50, 80, 100, 120)
OWN, OTHER = "tiny-gemma4", "gemma-4-26b-a4b"
FIGURES = ("tok_s", "speedup", "acceptance_length", "score", "parity")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """All steps of two models' cells, and those of one model's, published."""
    store, plan = open_store(str(tmp_path_factory.mktemp("store"))), mirrored_demo()
    twins = [celled(each, model=each.cell.model.model_copy(update={"name": OTHER})) for each in plan.cells]
    write_demo_run(store, "two", plan=plan.model_copy(update={"cells": (*plan.cells, *twins)}))
    write_demo_run(store, "one", plan=plan)
    publish(store)
    return store


def lines_of(table: RenderableType, columns: int) -> list[str]:
    console = Console(width=columns, file=io.StringIO(), color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= columns and not any("…" in line for line in lines)
    return lines


def words_of(table: RenderableType, columns: int) -> list[str]:
    return [word for line in lines_of(table, columns) for word in line.split()]


@pytest.mark.slow(2)
@pytest.mark.parametrize("columns", COLUMNS)
def test_the_results_of_two_models_name_the_model_in_each_row_and_cut_no_figure(store: Store, columns: int) -> None:
    rows, lines = result_rows(store, "two"), lines_of(results_table(store, "two"), columns)
    said = [word for line in lines for word in line.split()]
    assert all(said.count(model) >= len(rows) // 2 > 0 for model in (OTHER, OWN)), "once in each row, at the least"
    for row in rows:
        for name in FIGURES:
            for part in row[name].replace(" [", "\n[").replace(" (", "\n(").split("\n"):
                assert any(part in line for line in lines), (row, part)
        for word in row["verdict"].replace("(", "").replace(")", "").replace(",", "").split():
            assert any(word in line for line in lines), (row, word)
    headers = [line.split() for line in lines if line.split()[:1] == ["cell"]]
    assert all("verdict" in header for header in headers), "the verdict stands in the row of its figures"


@pytest.mark.slow(2)
def test_the_results_of_one_model_name_it_too(store: Store) -> None:
    assert OWN in words_of(results_table(store, "one"), 80)


@pytest.mark.slow(2)
def test_a_rate_is_on_one_line_with_its_interval_where_there_is_room(store: Store) -> None:
    rates = [row["tok_s"] for row in result_rows(store, "two") if "[" in row["tok_s"]]
    lines = lines_of(results_table(store, "two"), 120)
    assert rates and all(any(rate in line for line in lines) for rate in rates)


@pytest.mark.slow(2)
@pytest.mark.parametrize("columns", COLUMNS)
def test_which_k_says_its_whole_sentence(store: Store, columns: int) -> None:
    table, sentences = (
        recommendations_table(store, "two"),
        read_current(store, RECOMMENDATIONS.name).filter(run_id="two")["wording"],
    )
    assert table is not None and len(sentences) > 0
    assert {word for sentence in sentences for word in sentence.split()} <= set(words_of(table, columns))


@pytest.mark.parametrize("columns", COLUMNS)
def test_published_rows_are_shown_with_whole_figures_and_reasons(columns: int) -> None:
    rows = published_rows()
    said = words_of(published_tables(rows), columns)
    for word in {f"{figure:.10g}" for each in rows for figure in each.row.figures.values()}:
        assert any(word in shown for shown in said), word
    for reason in {reason for each in rows for reason in each.row.reasons}:
        assert any(reason in shown for shown in said), reason


@pytest.mark.parametrize("columns", COLUMNS)
def test_a_name_is_folded_before_a_figure_is_cut(columns: int) -> None:
    model, rate = "model-" * 7 + "it", "12345\n[12300, 12400]"
    names = [
        words(name, [value])
        for name, value in (("cell", f"{model} bf16"), ("step", "throughput"), ("verdict", "suspect"))
    ]
    lines = lines_of(Matrix(names, [Column("tok/s", [rate]), Column("speedup", [rate])]), columns)
    assert sum(line.count("[12300, 12400]") for line in lines) == 2
    assert model in "".join(line.split(" ")[1] for line in lines if line.startswith(" "))


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("sweep", ["full", "demo", "precision"])
def test_the_status_shows_every_step_of_every_cell_and_why_one_failed(sweep: str, columns: int) -> None:
    cells, reason = [], " ".join(f"because{number}" for number in range(20))
    for planned in expand(load_sweep(sweep)).cells:
        states: dict[str, StepState] = {step.step: "ok" for step in planned.steps}
        cells.append(CellProgress(planned.cell.label, planned.cell.cell_key, states, {}, None))
    cells[0] = cells[0]._replace(failure=reason)
    line = "12 of 1319 items, 4.2 items/s, about 311 s left"
    cells[1] = cells[1]._replace(heartbeat=Heartbeat(attempt=1, phase="", last_line=line, at=""))
    said = words_of(progress_table(RunProgress("r1", tuple(cells))), columns)
    assert {step for cell in cells for step in cell.steps} | {*reason.split(), *line.split()} <= set(said)
    assert said.count("ok") == sum(len(cell.steps) for cell in cells)
