"""A page of many cells and evaluations: it stays readable, says what it leaves out, and hides no evaluation."""

from __future__ import annotations

import polars as pl
import pytest

from tests.warehouse.graded import GPQA, WRONG_READING, Graded, answers, score
from warehouse.dataset.snapshot import current, publish, read_current
from warehouse.dataset.tables import PRODUCT_TABLES
from warehouse.ledger.store import Store
from warehouse.report.display.tables import MOST_ROWS, fair_share
from warehouse.report.display.view import View, make_view
from warehouse.report.page import render_report

CELLS, EVALUATIONS = 90, 6


@pytest.fixture
def tables(local: Store) -> dict[str, pl.DataFrame]:
    """One AR cell and one beside it, as often as to make 90 cells of six evaluations; the last cell is worse."""
    run = Graded(local, GPQA)
    reported = score("exact_match,none", 0.75, 20)
    run.answered("ar", None, answers(100, range(95), **WRONG_READING), reported)
    run.answered("mtp", 4, answers(100, range(94), **WRONG_READING), reported)
    publish(local)
    small = {name: read_current(local, name) for name in PRODUCT_TABLES}
    rows, pairs = small["results_consolidated"], small["pairs"]
    more_rows, more_pairs = [], []
    for number in range(CELLS):
        other = rows.filter(technique="ar" if number == 0 else "mtp")
        for place in range(EVALUATIONS):
            named = {"cell_key": pl.lit(f"{number:016x}"), "step": pl.lit(f"eval-{place}")}
            conclusion = pl.lit("worse" if number == CELLS - 1 else "non-inferior")
            more_rows.append(other.with_columns(**named))
            more_pairs += [pairs.with_columns(**named, conclusion=conclusion)] if number else []
    return small | {"results_consolidated": pl.concat(more_rows), "pairs": pl.concat(more_pairs)}


def test_long_tables_are_cut_and_say_where_the_rest_is(local: Store, tables: dict[str, pl.DataFrame]) -> None:
    manifest = current(local)
    assert manifest is not None
    page = render_report(tables, manifest)
    section = page[page.index('id="accuracy"') :].partition("</section>")[0]
    assert section.count("<tr>") <= 3 * (MOST_ROWS + 1)
    assert section.count("140 rows more in results_consolidated.parquet.") == 2, "scores, and other readers"
    assert section.count("134 rows more in pairs.parquet.") == 1
    assert "50 scores more in results_consolidated.parquet." in section, "in each plot"
    tables_of_page = [part[: part.index("</table>")] for part in section.split("<table>")[1:]]
    assert len(tables_of_page) == 3
    for each in tables_of_page:
        assert [place for place in range(EVALUATIONS) if f"eval-{place}<" not in each] == [], "no evaluation is hidden"
    assert sum(each.count("no: worse") for each in tables_of_page) == EVALUATIONS, "no loss is hidden"


def test_every_group_has_its_share_of_a_table_that_is_cut() -> None:
    rows = [{"step": step, "n": n} for step, many in (("a", 1000), ("b", 10)) for n in range(many)]
    shown = fair_share(rows, lambda row: row["step"])
    assert len(shown) == MOST_ROWS and [row for row in shown if row["step"] == "b"] == rows[1000:]
    assert shown == sorted(shown, key=rows.index), "in their order"
    assert fair_share(rows[:MOST_ROWS], lambda row: row["step"]) == rows[:MOST_ROWS]


def test_a_cells_rows_and_pairs_are_those_that_a_search_through_everything_finds(
    tables: dict[str, pl.DataFrame],
) -> None:
    view: View = make_view(tables)
    for row in view.rows[::97]:
        cell = {"run_id": row["run_id"], "cell_key": row["cell_key"]}
        for wanted in (cell, cell | {"step": row["step"]}, {"step": row["step"]}, {"technique": row["technique"]}):
            assert view.of(**wanted) == [each for each in view.rows if wanted.items() <= each.items()]
        assert view.accuracy_pairs(row) == [each for each in view.pairs if cell.items() <= each.items()]
    assert view.of(run_id="none", cell_key="none") == []
