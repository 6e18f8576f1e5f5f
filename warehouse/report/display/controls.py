"""AR as the control that cells bring along: no rows of the dataset, and yet what they are held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from warehouse.ledger.verdicts import worst
from warehouse.report.display.figures import Row, figure
from warehouse.report.display.markup import Child, tag
from warehouse.report.display.tables import Heading, beside, fair_share, more, on_card, table, verdict_mark
from warehouse.report.display.view import View


def controls(view: View, title: str, starts: Sequence[Row], *figures: Heading) -> list[Child]:
    """A table of AR's starts, one row per cell and condition, and what is said above and below; no starts: nothing.

    Args:
        view: has the cells that the starts stand beside.
        title: of the table.
        starts: rows of `visits`.
        figures: columns of what each start measured (`of_each`).
    """
    if not starts:
        return []
    found = _start_by_start(starts)
    shown = fair_share(found, lambda control: control["run_id"])
    cells, named = beside(view.rows, shown)
    card = on_card(shown)
    columns = (
        Heading("model", lambda control: f"{control['model']} {control['precision']}{card(control)}", ""),
        Heading("condition", lambda control: control["condition"], ""),
        *figures,
        Heading("repeats", lambda control: figure(control["repeats"], 0)),
        Heading("verdict", verdict_mark, ""),
        cells,
    )
    said = tag("p", "As the control of other cells, each engine start of AR:")
    return [said, table(title, columns, shown, named), more(found, "visits")]


def of_each(name: str, shown: Callable[[float | None], str]) -> Callable[[Row], str]:
    """What each start of a control measured, in their order."""
    return lambda control: ", ".join(shown(start[name]) for start in control["starts"])


def _start_by_start(starts: Sequence[Row]) -> list[Row]:
    """One row per cell and condition: its control's starts in their order, and the worst verdict."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for start in starts:
        found.setdefault(tuple(start[name] for name in ("run_id", "cell_key", "condition", "mode")), []).append(start)
    return [
        {
            **each[0],
            "starts": sorted(each, key=lambda start: int(start["visit"])),
            "repeats": sum(start["repeats"] or 0 for start in each),
            "verdict": worst(start["verdict"] for start in each),
        }
        for each in found.values()
    ]
