"""What the page shows: of a snapshot the newest rows, by kind, by the plots that they share, and by lines of a plot."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar

import polars as pl

from configs.steps.load import category_of
from configs.steps.prompts import workload_of
from warehouse.dataset.tables import CURVE, DIAGNOSTIC_EXTRACTORS, counts
from warehouse.ledger.verdicts import Reason
from warehouse.report.display.figures import MARKED, REPLAY, REPLAY_NUMBER, Row, technique_sign
from warehouse.report.published.read import Published

_K = TypeVar("_K", bound=Hashable)


def grouped(rows: Sequence[Row], key: Callable[[Row], _K]) -> dict[_K, list[Row]]:
    """The rows of each key, in their order."""
    groups: dict[_K, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def benches_of(rows: Sequence[Row], *, by_precision: bool = True) -> list[list[Row]]:
    """Rows that share a plot: of one model, engine and machine, in one run, and of one precision unless told."""
    groups = grouped(rows, lambda row: (*bench(row), row["precision"] if by_precision else "", row["run_id"]))
    return [*groups.values()]


def cell_of(row: Row) -> tuple[str, str]:
    """The cell in its run."""
    return row["run_id"], row["cell_key"]


RATE_MODES = ("fixed", "natural", "decode")
"""Modes whose tokens per second are a result; those of `stream` and `prefill` only say when tokens arrive."""

LOAD_STEP, PROMPTS_STEP, DEPTH_STEP, MEMORY_STEP = "load", "prompts", "depth", "memory"

APART = (LOAD_STEP, PROMPTS_STEP, DEPTH_STEP)
"""Steps whose rates have sections of their own. On a bench with no other rate the first of these is the headline."""

Bench = tuple[str, str, str]
"""Model, engine and kind of machine: what shares a table and a plot."""


@dataclass(frozen=True)
class View:
    """Rows of the newest run of every cell and step on every machine, their comparisons, and all attempts."""

    rows: list[Row]
    pairs: list[Row]
    attempts: list[Row]
    older_rows: int
    """Rows of earlier runs of the same cells: in the dataset, not on the page."""
    visits: Sequence[Row] = ()
    """Engine starts of the runs that are shown."""
    published: Sequence[Published] = ()
    """What others published; no part of a snapshot."""
    load: Sequence[Row] = ()
    """Latencies under load of the rows that are shown."""
    k_curves: Sequence[Row] = ()
    """Speeds over K of the rows that are shown."""
    recommendations: Sequence[Row] = ()
    """Which K, of the curves that are shown."""

    def of(self, **columns: Any) -> list[Row]:
        """Rows that have all of these values."""
        rows = self.rows
        if columns.keys() >= {"run_id", "cell_key"}:
            rows = self._by_cell.get((columns["run_id"], columns["cell_key"]), [])
        elif "step" in columns:
            rows = self._by_step.get(columns["step"], [])
        return [row for row in rows if all(row[name] == value for name, value in columns.items())]

    def is_told_apart(self) -> bool:
        """Whether all rates are those of steps that have sections of their own."""
        return bool(self.rates) and all(row["step"] in APART for row in self.rates)

    def flagged(self) -> list[Row]:
        """Rejected and suspect rows, the worst first."""
        found = [row for row in self.rows if row["verdict"] != "ok" and row["extractor"] not in DIAGNOSTIC_EXTRACTORS]
        return sorted(found, key=lambda row: row["verdict"] != "rejected")

    def speed_pair(self, row: Row) -> Row | None:
        """The comparison of a speed row with AR; None: there is none."""
        shape = (row["condition"], row["mode"])
        found = (pair for pair in self._pairs(row, "speed") if (pair["condition"], pair["mode"]) == shape)
        return next(found, None)

    def accuracy_pair(self, row: Row) -> Row | None:
        """The comparison of the row's cell with AR by score: the least favourable evaluation; None: there is none."""
        return min(self.accuracy_pairs(row), key=favour, default=None)

    def accuracy_pairs(self, row: Row) -> list[Row]:
        """All evaluations in which the row's cell was compared with AR."""
        return self._pairs(row, "accuracy")

    def placebos(self) -> list[Row]:
        """AR against AR, of the runs that are shown."""
        return [pair for pair in self.pairs if pair["kind"] == "placebo"]

    def _pairs(self, row: Row, kind: str) -> list[Row]:
        return self._pairs_by_cell.get((row["run_id"], row["cell_key"], kind), [])

    def latencies(self, row: Row) -> Row | None:
        """The row of `load` that belongs to a row of a prompt suite; None: there is none."""
        return self._load_by_condition.get((row["run_id"], row["cell_key"], row["condition"]))

    @cached_property
    def rates(self) -> list[Row]:
        """Rows with a headline rate, whatever their verdict; those of single categories are none."""
        rated = [row for row in self.rows if row["mode"] in RATE_MODES and row["tok_s"] is not None]
        whole = [row for row in rated if row["step"] != LOAD_STEP or category_of(row["condition"]) is None]
        first: dict[Bench, int] = {}
        for row in whole:
            first[bench(row)] = min(first.get(bench(row), len(APART)), _rank(row))
        return [row for row in whole if _rank(row) == first[bench(row)]]

    @cached_property
    def _load_by_condition(self) -> dict[tuple[str, str, str], Row]:
        return {(row["run_id"], row["cell_key"], row["condition"]): row for row in self.load}

    @cached_property
    def scores(self) -> list[Row]:
        """Scores that count, of whole evaluations."""
        return [row for row in self.rows if counts(row)]

    @cached_property
    def _by_cell(self) -> dict[tuple[str, str], list[Row]]:
        return grouped(self.rows, cell_of)

    @cached_property
    def _by_step(self) -> dict[str, list[Row]]:
        return grouped(self.rows, lambda row: row["step"])

    @cached_property
    def _pairs_by_cell(self) -> dict[tuple[str, str, str], list[Row]]:
        return grouped(self.pairs, lambda pair: (pair["run_id"], pair["cell_key"], pair["kind"]))


def _rank(row: Row) -> int:
    """Order in which steps' rates represent a bench: 0 those of load shapes, then those with sections of their own."""
    return 1 + APART.index(row["step"]) if row["step"] in APART else 0


def favour(pair: Row) -> tuple[int, float]:
    """Least favourable first: by conclusion, then by how large a loss is still possible, in margins."""
    worst_first = ("worse", "inconclusive", "non-inferior")
    return worst_first.index(pair["conclusion"]), pair["bound_lo"] / pair["margin"]


def bench(row: Row) -> Bench:
    """The bench that a row belongs to."""
    return row["model"], row["engine"], row["gpu"]


def small_origin(row: Row) -> str:
    """Where a figure is from that is real but says nothing of large models on a GPU; empty: it is of such a model."""
    is_tiny, is_of_cpu = str(row["family"]).startswith("tiny-"), row["gpu"] == "cpu"
    return " on ".join(["a tiny demonstration model"] * is_tiny + ["a CPU"] * is_of_cpu)


class LoadShape(NamedTuple):
    """What a rate was measured under; a name alone doesn't say it: two suites may each have a `short c=1`."""

    condition: str
    mode: str
    concurrency: int | None
    context_tokens: int | None
    output_tokens: int | None


def load_shape(row: Row) -> LoadShape:
    """Of a row with a rate."""
    return LoadShape(*(row[name] for name in LoadShape._fields))


def load_name(row: Row) -> str:
    """The condition; of one that is measured with answers of a fixed length as well as others, the mode that isn't."""
    is_other = row["step"] not in APART and row["mode"] != "fixed"
    return f"{row['condition']} ({row['mode']})" if is_other else str(row["condition"])


def ar_first(row: Row) -> tuple[bool, str]:
    """Sorts AR before all others, and those by name."""
    return row["technique"] != "ar", technique_sign(row)


def note_of(rows: Sequence[Row], *more: str) -> str:
    """What a plot of one bench is of."""
    first = rows[0]
    said = f"{first['model']} {first['precision']}", f"{first['engine']} on {first['gpu']}", *more
    return f"{', '.join(said)}."


def curve_of(row: Row) -> tuple[object, ...]:
    """What names the curve over K that a row of `k_curves` or `recommendations` is of."""
    return tuple(row[name] for name in CURVE)


def measured_in(point: Row) -> str:
    """Run of the row of `results_consolidated` that a point of a curve over K is."""
    return str(point["measured_in"] or point["run_id"])


def headline_shape(rows: list[Row]) -> LoadShape | None:
    """The load that represents a bench: fewest requests at a time, then the shortest context.

    None: nothing was timed, or several workloads were, of which none represents the others.
    """
    known = [row for row in rows if row["mode"] in RATE_MODES and row["tok_s"] is not None]
    workloads = {workload_of(row["condition"]) for row in known if row["step"] == PROMPTS_STEP}
    if not known or len(workloads) > 1:
        return None
    lightest = ("concurrency", "context_tokens", "condition", "mode", "output_tokens")
    return load_shape(min(known, key=lambda row: [row[name] or 0 for name in lightest]))


def make_view(tables: Mapping[str, pl.DataFrame]) -> View:
    """Pick what is shown: the newest run of every cell and step on every machine, and the AR it was compared with."""
    everything, curves = tables["results_consolidated"], tables["k_curves"]
    is_placebo = pl.col("kind") == "placebo"  # of all runs shown, because a control need not be a cell of the run
    compared, placebos = tables["pairs"].filter(~is_placebo), tables["pairs"].filter(is_placebo)
    kept = _newest(everything, compared)
    shown = _among(everything, kept)
    runs = shown.select("run_id", "gpu").unique()
    pairs = _named(pl.concat([_among(compared, kept), _among(placebos, runs)]), shown)
    rows, pairs, attempts = _numbered(shown, pairs, tables["attempts"])
    gone = _points(curves, kept, "anti")  # what rests on a row measured anew since is out of date
    recommended = tables["recommendations"].join(gone, on=CURVE, how="anti", nulls_equal=True, maintain_order="left")
    return View(
        rows=[*rows.to_dicts()],
        pairs=[*pairs.to_dicts()],
        attempts=[*attempts.to_dicts()],
        older_rows=everything.height - shown.height,
        visits=_among(tables["visits"], runs).to_dicts(),
        load=_among(tables["load"], kept).to_dicts(),
        k_curves=_points(curves, kept, "semi").to_dicts(),
        recommendations=recommended.to_dicts(),
    )


def _among(frame: pl.DataFrame, shown: pl.DataFrame) -> pl.DataFrame:
    return frame.join(shown, on=shown.columns, how="semi", maintain_order="left")


def _numbered(*frames: pl.DataFrame) -> list[pl.DataFrame]:
    """The rows with the number of their source of replayed acceptance, so that each has a sign of its own."""
    said = (frame["acceptance_source"] for frame in frames if "acceptance_source" in frame.columns)
    sources = dict.fromkeys(source for each in said for source in each if (source or "").startswith(REPLAY))
    numbers = {source: number for number, source in enumerate(sources, 1)}
    number = pl.col("acceptance_source").replace_strict(numbers, default=None, return_dtype=pl.Int64)
    numbered = number.alias(REPLAY_NUMBER)
    return [each.with_columns(numbered) if "acceptance_source" in each.columns else each for each in frames]


def _points(curves: pl.DataFrame, kept: pl.DataFrame, how: Literal["semi", "anti"]) -> pl.DataFrame:
    """Points of curves by whether the row that they are of is shown: it may be of another run than the curve."""
    row_of = [pl.coalesce("measured_in", "run_id") if name == "run_id" else pl.col(name) for name in kept.columns]
    return curves.join(kept, left_on=row_of, right_on=kept.columns, how=how, maintain_order="left")


def _newest(rows: pl.DataFrame, compared: pl.DataFrame) -> pl.DataFrame:
    """Cell, machine, step and run of what is shown: the same cell on another machine replaces nothing.

    A run that measured only a control is shown next to what an earlier run measured, and replaces none of it. A run's
    AR stays as long as a row that was divided by it, or a pair with it, stays, even if AR was measured again since.
    """
    cell_on = ("cell_key", "gpu", "step")
    ordered = rows.sort("measured_at", "run_id")
    measured = ordered.filter(~pl.col("reasons").list.contains(Reason.NOT_MEASURED.value))
    latest = [each.unique(cell_on, keep="last").select(*cell_on, "run_id") for each in (measured, ordered)]
    newest = pl.concat(latest).unique()
    others = _among(rows, newest).filter(pl.col("technique") != "ar")
    theirs = others.with_columns(model=pl.col("compared_as"))
    held_against = ("run_id", "precision", "engine", "gpu", "step", "model")
    baselines = rows.filter(technique="ar").join(theirs, on=held_against, how="semi")
    other_side = _among(compared, newest).select("baseline_cell_key", *newest.columns).drop("cell_key")
    paired = rows.join(other_side.rename({"baseline_cell_key": "cell_key"}), on=newest.columns, how="semi")
    return pl.concat([newest, *(each.select(newest.columns) for each in (baselines, paired))]).unique()


def _named(pairs: pl.DataFrame, shown: pl.DataFrame) -> pl.DataFrame:
    """The pairs with what their cells' names must be marked by, which only rows know.

    An A/A check is listed under the cell that brought its AR along, and has that cell's weights. But it neither drafts
    nor denoises, so nothing else of it was replayed.
    """
    cell = ("run_id", "cell_key")
    facts = shown.select(*cell, *MARKED).unique(cell, keep="first", maintain_order=True)
    named = pairs.join(facts, on=cell, how="left", maintain_order="left")
    of_the_cell = pl.when(pl.col("kind") != "placebo")
    return named.with_columns(of_the_cell.then(pl.col(name)).alias(name) for name in MARKED if name != "weights")
