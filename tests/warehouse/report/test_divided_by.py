"""What speedups are divided by: each cell's own control, else the run's AR cell, and never AR of another run."""

from __future__ import annotations

from tests.warehouse.report.rows import AR, MTP, seen, visit
from tests.warehouse.report.started import speed_pair
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View
from warehouse.report.steps.throughput import baseline_section


def table_of(view: View, label: str) -> list[str]:
    """Text of the cells of a table of the section, behind its head."""
    text = baseline_section(view) or ""
    body = text.partition(f'aria-label="{label}"')[2].partition("</table>")[0].partition("<tbody>")[2]
    return [cell.partition(">")[2].partition("<")[0] for cell in body.split("<t")[2:]]


def controls() -> tuple[Row, Row]:
    named = {"role": "control", "cell_key": "mtp", "model": "m", "precision": "bf16", "run_id": "r2"}
    return visit(1, tok_s=79.0, **named), visit(2, tok_s=81.0, **named)


def test_an_ar_cell_of_another_run_hides_no_control_and_divides_nothing() -> None:
    bracketed = MTP | {"run_id": "r2"}
    view = seen(AR, bracketed, pairs=(speed_pair(bracketed, baseline_value=80.0),), visits=controls())
    assert table_of(view, "AR baseline")[-1] == "–", "no speedup has it for a divisor"  # noqa: RUF001
    assert table_of(view, "AR as the control of other cells")[2:] == ["79.0, 81.0", "80.0", "6", "", "mtp K=4"]


def test_an_ar_cell_says_how_many_speedups_it_divides() -> None:
    assert table_of(seen(AR, MTP, pairs=(speed_pair(MTP),)), "AR baseline")[-1] == "1"
