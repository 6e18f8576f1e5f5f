"""Which rows of a snapshot are shown: the newest of everything, and the AR that it was held against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl

from warehouse.dataset.tables import CURVE
from warehouse.ledger.verdicts import Reason
from warehouse.report.display.figures import MARKED, REPLAY, REPLAY_NUMBER, Row
from warehouse.report.display.view import View

CELL_ON = ("cell_key", "gpu", "step")
"""What is measured anew: a cell's key doesn't name the machine, so the same cell elsewhere replaces nothing."""

HELD_AGAINST = ("run_id", "precision", "engine", "gpu", "step")
"""What a row shares with the AR row of its run, whose model is the row's `compared_as`."""


def make_view(tables: Mapping[str, pl.DataFrame]) -> View:
    """Pick what is shown: the newest run of every cell and step on every machine, and the AR that it was held against.

    Args:
        tables: of one snapshot.
    """
    everything = tables["results_consolidated"]
    kept = _newest(everything)
    shown = everything.join(kept, on=kept.columns, how="semi", maintain_order="left")
    runs = shown.select("run_id", "gpu").unique()
    visits, load, curves = (tables[name] for name in ("visits", "load", "k_curves"))
    pairs = _named(_pairs(tables["pairs"], kept, runs), shown)
    rows, pairs, attempts = _numbered(shown, pairs, tables["attempts"])
    return View(
        rows=[*rows.to_dicts()],
        pairs=[*pairs.to_dicts()],
        attempts=[*attempts.to_dicts()],
        older_rows=everything.height - shown.height,
        visits=[*visits.join(runs, on=runs.columns, how="semi", maintain_order="left").to_dicts()],
        load=[*load.join(kept, on=kept.columns, how="semi", maintain_order="left").to_dicts()],
        k_curves=[*_points(curves, kept, "semi").to_dicts()],
        recommendations=_of_curves(tables["recommendations"], curves, kept),
    )


def _numbered(*frames: pl.DataFrame) -> list[pl.DataFrame]:
    """The rows with the number of their source of replayed acceptance, so that each has a sign of its own."""
    said = (frame["acceptance_source"] for frame in frames if "acceptance_source" in frame.columns)
    sources = dict.fromkeys(source for each in said for source in each if (source or "").startswith(REPLAY))
    numbers = {source: number for number, source in enumerate(sources, 1)}
    number = pl.col("acceptance_source").replace_strict(numbers, default=None, return_dtype=pl.Int64)
    return [
        frame.with_columns(number.alias(REPLAY_NUMBER)) if "acceptance_source" in frame.columns else frame
        for frame in frames
    ]


def _of_curves(recommended: pl.DataFrame, curves: pl.DataFrame, kept: pl.DataFrame) -> list[Row]:
    """Recommendations of curves that are shown whole: one that rests on a row measured anew since is out of date."""
    gone = _points(curves, kept, "anti")
    whole = recommended.join(gone, on=CURVE, how="anti", nulls_equal=True, maintain_order="left")
    return [*whole.to_dicts()]


def _points(curves: pl.DataFrame, kept: pl.DataFrame, how: Literal["semi", "anti"]) -> pl.DataFrame:
    """Points of curves by whether the row that they are of is shown: it may be of another run than the curve."""
    row_of = [pl.coalesce("measured_in", "run_id") if name == "run_id" else pl.col(name) for name in kept.columns]
    return curves.join(kept, left_on=row_of, right_on=kept.columns, how=how, maintain_order="left")


def _newest(rows: pl.DataFrame) -> pl.DataFrame:
    """Cell, machine, step and run of what is shown.

    A run that measured only a control stands beside what an earlier one measured, and replaces none of it. A run's AR
    stays while a row that was divided by it does, though AR was measured again since.
    """
    ordered = rows.sort("measured_at", "run_id")
    measured = ordered.filter(~pl.col("reasons").list.contains(Reason.NOT_MEASURED.value))
    latest = [each.unique(CELL_ON, keep="last").select(*CELL_ON, "run_id") for each in (measured, ordered)]
    newest = pl.concat(latest).unique()
    others = rows.join(newest, on=newest.columns, how="semi").filter(pl.col("technique") != "ar")
    theirs = others.with_columns(model=pl.col("compared_as"))
    baselines = rows.filter(technique="ar").join(theirs, on=(*HELD_AGAINST, "model"), how="semi")
    return pl.concat([newest, baselines.select(newest.columns)]).unique()


def _pairs(pairs: pl.DataFrame, kept: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Comparisons of what is shown; placebos of all its runs, because a control need not be a cell of the run."""
    is_placebo = pl.col("kind") == "placebo"
    compared = pairs.filter(~is_placebo).join(kept, on=kept.columns, how="semi", maintain_order="left")
    placebos = pairs.filter(is_placebo).join(runs, on=runs.columns, how="semi", maintain_order="left")
    return pl.concat([compared, placebos])


def _named(pairs: pl.DataFrame, shown: pl.DataFrame) -> pl.DataFrame:
    """The pairs with what must stand beside their cells' names, which only rows know.

    A placebo stands under the cell that brought its AR along. It has that one's weights, because dummy ones are only
    compared with dummy ones, but neither drafts nor denoises, so that nothing else of it was replayed.
    """
    cell = ("run_id", "cell_key")
    facts = shown.select(*cell, *MARKED).unique(cell, keep="first", maintain_order=True)
    named = pairs.join(facts, on=cell, how="left", maintain_order="left")
    of_the_cell = pl.when(pl.col("kind") != "placebo")
    return named.with_columns(of_the_cell.then(pl.col(name)).alias(name) for name in MARKED if name != "weights")
