"""What the rented machines cost, and how much of the bill measured something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from math import fsum
from operator import itemgetter

from warehouse.dataset.tables import BILLED_PHASES
from warehouse.report.display.figures import NOTHING, Row, figure, plural, usd
from warehouse.report.display.markup import Markup, plot, section, tag
from warehouse.report.display.plots import phase_bars
from warehouse.report.display.tables import Heading, table
from warehouse.report.display.view import View, grouped

MOST_PLOTS = 4
"""Runs with a drawing of their own; the table has them all."""

LEAD = (
    "Every second from renting a machine until it was down is on the bill, at the price of its offer, and the parts "
    "add up to it. A spot machine that its cloud takes back so soon that it is not charged (AWS: within an hour) costs "
    "nothing. Machines that are still up are not on it yet."
)


def cost_section(view: View) -> Markup | None:
    """Dollars by phase of every run that rented machines, the newest first; None where nothing was rented."""
    rented = [row for row in view.attempts if row["rented_s"] is not None]
    rented.sort(key=lambda row: row["ended_at"] or "", reverse=True)
    runs = [_summed(run_id, rows) for run_id, rows in grouped(rented, itemgetter("run_id")).items()]
    if not runs:
        return None
    columns = [
        Heading("run", lambda run: run["run_id"], ""),
        Heading("cost", lambda run: usd(run["cost_usd"])),
        Heading("measured", lambda run: f"{run['share']:.1%}"),
        *(Heading(phase, partial(_said, phase)) for phase in BILLED_PHASES),
        Heading("hours", lambda run: figure(run["rented_s"] / 3600)),
        Heading("machines", lambda run: figure(run["machines"], 0)),
    ]
    drawings = []
    for run in runs[:MOST_PLOTS]:
        total = fsum(run[phase] for phase in BILLED_PHASES) or 1.0
        shares = [(phase, run[phase] / total, _said(phase, run)) for phase in BILLED_PHASES]
        bars = [(phase, share, f"{share:.1%}, {said}" if share else NOTHING) for phase, share, said in shares]
        what = "Where its money went." if run["is_priced"] else "Where its hours went."
        drawings.append(plot(f"Run {run['run_id']}", what, phase_bars(bars)))
    legend = "; ".join(f"{phase}: {meaning}" for phase, meaning in BILLED_PHASES.items())
    return section(
        "cost",
        "What it cost",
        LEAD,
        tag("p", " ".join(f"{_sentence(run)}{_of_rows(view, run['run_id'])}" for run in runs[:MOST_PLOTS])),
        tag("div", *drawings, class_="plots"),
        table("Bill by run", columns, runs),
        tag("p", f"{legend}.", class_="lead"),
    )


def _summed(run_id: str, rows: Sequence[Row]) -> Row:
    """Sums of a run. Shares are of its dollars, or of its hours where a machine had no price."""
    is_priced = all(row["cost_usd"] is not None for row in rows)
    unit = "usd" if is_priced else "s"
    phases = {phase: fsum(row[f"{phase}_{unit}"] for row in rows) for phase in BILLED_PHASES}
    total = fsum(phases.values())
    endings = Counter(str(row["ended"]).replace("_", " ") for row in rows)
    return {
        **phases,
        "run_id": run_id,
        "is_priced": is_priced,
        "machines": len(rows),
        "rented_s": fsum(row["rented_s"] for row in rows),
        "cost_usd": total if is_priced else None,
        "free": sum(row["charged"] is False for row in rows),
        "estimated": sum(bool(row["estimated"]) for row in rows),
        "share": phases["measure"] / total if total else 0.0,
        "endings": ", ".join(f"{number} {ended}" for ended, number in endings.most_common()),
    }


def _sentence(run: Row) -> str:
    paid = f"{usd(run['cost_usd'])} for " if run["is_priced"] else ""
    hours = f"{figure(run['rented_s'] / 3600)} hours of {plural(run['machines'], 'rented machine')}"
    what = "the bill" if run["is_priced"] else "the hours (not every machine has a known price)"
    how = f"{run['endings']}; {run['free']} not charged" if run["free"] else run["endings"]
    how += f"; nobody saw {run['estimated']} end, which is estimated" if run["estimated"] else ""
    return f"Run {run['run_id']}: {paid}{hours} ({how}); {run['share']:.1%} of {what} measured something."


def _of_rows(view: View, run_id: str) -> str:
    """What of it the rows on the page took, and their controls; nothing where no speed was measured."""
    visits = [visit for visit in view.visits if visit["run_id"] == run_id]
    if not visits:
        return ""
    rows = [row for row in view.rows if row["run_id"] == run_id]
    step = itemgetter("cell_key", "step")  # what a start's seconds are a part of
    steps = set(map(step, rows))
    controls = [visit for visit in visits if visit["role"] == "control" and step(visit) in steps]
    of_which = f", of which controls {_took(controls)}" if controls else ""
    return f" Its rows on this page took {_took(rows)}{of_which}."


def _took(rows: Sequence[Row]) -> str:
    """`2.10 hours ($4.20)`, each row's share of its step; dollars only where every row has a price."""
    hours = f"{figure(fsum(row['gpu_s'] or 0.0 for row in rows) / 3600)} hours"
    timed = [row for row in rows if row["gpu_s"] is not None]
    if any(row["cost_usd"] is None for row in timed):
        return hours
    return f"{hours} ({usd(fsum(row['cost_usd'] for row in timed))})"


def _said(phase: str, run: Row) -> str:
    amount: float = run[phase]
    if not amount:
        return NOTHING
    return usd(amount) if run["is_priced"] else f"{figure(amount / 3600)} h"
