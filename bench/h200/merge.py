"""Makes one dataset and one page of what several leases measured: `merge.py SNAPSHOT NEWER...`.

SNAPSHOT and each NEWER are folders with the product tables, such as the store of a lease after `sweep report`. What a
newer one measured of a step of a cell replaces what was there, whole: a bracket is never made of two leases, and one
that a lease's end cut off replaces nothing. The store of a lease is gone with its machine, so rates stay as they were
built then. Rows are held to a guard that came after the first leases; intervals, speedups, placebos and claims are made
anew of the visits that stand here (`restated.py`), and so are curves over K and recommendations (`curves.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

import polars as pl

from bench.h200.curves import over_leases
from bench.h200.restated import restated
from configs.expand import expand
from configs.load import load_model, load_sweep, load_technique
from tasks.guards.machine import SHARED, same_experts
from tasks.guards.published import judged_write_ups
from warehouse.build import ROW_ORDER
from warehouse.consolidate.raw import polars_schema
from warehouse.consolidate.rows import Row
from warehouse.loads.latencies import with_verdicts
from warehouse.report.write import CONVENIENCE_KEY, write_report
from warehouse.snapshot import publish_rows
from warehouse.store import open_store
from warehouse.tables import (
    ATTEMPTS,
    K_CURVES,
    LOAD,
    PAIRS,
    PRODUCT_TABLES,
    RECOMMENDATIONS,
    RESULTS_CONSOLIDATED,
    VISITS,
)
from warehouse.verdicts import Reason, worst

Tables = dict[str, pl.DataFrame]

MEASURED_ONCE = ("run_id", "cell_key", "step")
"""What a newer lease replaces."""

KNOWN_AS = ("model", "precision", "technique", "k", "denoising_steps", "canvas_length", "engine", "gpu", "step")
"""What a reader takes for the same cell and step, though its key changed with the version that planned it."""

RATE = (*MEASURED_ONCE, "condition", "mode")
"""What names a rate, and all that was made of it."""

TRIED = ("run_id", "cell_key", "attempt", "ended_at")
"""What names an attempt. None is replaced: each was paid for."""

MERGED = [name for name in PRODUCT_TABLES if name not in (K_CURVES.name, RECOMMENDATIONS.name)]
"""Tables whose rows are taken over from a lease; the others say what several cells are together."""

SWEEP = "shapes"
"""What leases measure several K of. One of its plan that nobody measured is missing on the curve."""

_results = RESULTS_CONSOLIDATED.name
_is_measured = ~pl.col("reasons").list.contains(Reason.NOT_MEASURED.value)


def tables_of(folder: Path) -> Tables:
    """The tables of a dataset; of an earlier version with nulls where it had no column, and no rows of a table."""
    found = {}
    for name in MERGED:
        file, schema = folder / f"{name}.parquet", polars_schema(PRODUCT_TABLES[name])
        found[name] = schema.to_frame()
        if file.exists():
            columns = pl.scan_parquet(file, schema=schema, missing_columns="insert", extra_columns="ignore")
            found[name] = columns.collect()
    return found


def over(old: Tables, new: Tables) -> Tables:
    """The old tables with what is newer: what it measured, and what nobody had."""
    had = old[_results].select(MEASURED_ONCE)
    measured = new[_results].filter(_is_measured).select(MEASURED_ONCE)
    taken = pl.concat([measured, new[_results].select(MEASURED_ONCE).join(had, on=MEASURED_ONCE, how="anti")]).unique()
    return {name: _over(name, old[name], new[name], taken) for name in MERGED}


def _over(name: str, old: pl.DataFrame, new: pl.DataFrame, taken: pl.DataFrame) -> pl.DataFrame:
    if name == ATTEMPTS.name:
        return pl.concat([old.join(new, on=TRIED, how="anti", nulls_equal=True), new])
    return pl.concat([old.join(taken, on=MEASURED_ONCE, how="anti"), new.join(taken, on=MEASURED_ONCE, how="semi")])


def newest(tables: Tables) -> Tables:
    """Without rows of a cell that a later run measured again under another key, with as many starts of its control.

    One with a rate that may be believed goes before one without, of however many starts.
    """
    controls = tables[VISITS.name].filter(pl.col("role") == "control").group_by("run_id", "cell_key")
    starts = controls.agg(starts=pl.col("visit").n_unique())
    results = tables[_results].join(starts, on=["run_id", "cell_key"], how="left")
    is_believed = ((pl.col("verdict") == "ok") & pl.col("mode").is_not_null()).any().over("run_id", "cell_key")
    results = results.sort(_is_measured, is_believed, pl.col("starts").fill_null(0), "measured_at")
    latest = results.unique(KNOWN_AS, keep="last")
    kept = results.join(latest, on=(*KNOWN_AS, "run_id"), how="semi", nulls_equal=True)
    shared = {name: [each for each in MEASURED_ONCE if each in frame.columns] for name, frame in tables.items()}
    measured = {name: frame.join(kept, on=shared[name], how="semi") for name, frame in tables.items()}
    return {**measured, ATTEMPTS.name: tables[ATTEMPTS.name]}  # also those of cells that never started


def judged(rows: Mapping[str, list[Row]]) -> dict[str, list[Row]]:
    """Rows of leases from before `same_experts`, held to it: rates and starts."""
    at_a_time = {_rate(row): row["concurrency"] for row in rows[_results]}
    return {**rows, **{name: [_held(row, at_a_time) for row in rows[name]] for name in (_results, VISITS.name)}}


def _rate(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in RATE)


def _shared(row: Row, concurrency: int | None) -> str | None:
    """What the guard says of a rate by what is on record of its cell."""
    told = (row["made_up"] or "").split(", ")
    if "weights=dummy" not in told or row["mode"] is None:
        return None
    routing = "random" if "routing=random" in told else None
    model = load_model(row["model"]).model_copy(update={"routing": routing})
    found = same_experts(model, load_technique(row["technique"]), row["k"], concurrency)
    return None if found is None else found.sentence


def _held(row: Row, at_a_time: Mapping[tuple[object, ...], int | None]) -> Row:
    """As the node would have judged it."""
    sentence = _shared(row, at_a_time.get(_rate(row)))
    if sentence is None:
        return row
    noted: dict[str, object] = {"verdict": worst([row["verdict"], "suspect"])}
    noted["reasons"] = list(dict.fromkeys([*row["reasons"], Reason.SAME_EXPERTS.value]))
    if "details" in row:
        noted["details"] = [*(each for each in row["details"] if SHARED not in each), sentence]
    return row | noted


def main(snapshot: Path, newer: Sequence[Path]) -> None:
    """Rewrite SNAPSHOT with what is newer: tables as Parquet, and the page. It may be an empty folder."""
    tables = tables_of(snapshot)
    for folder in newer:
        if not (folder / f"{_results}.parquet").exists():
            sys.exit(f"merge: {folder} has no dataset. Remedy: bin/sweep report --store {folder}")
        tables = over(tables, tables_of(folder))
    rows = judged({name: frame.to_dicts() for name, frame in newest(tables).items()})
    rows[_results], rows[PAIRS.name], known = restated(rows[_results], rows[PAIRS.name], rows[VISITS.name])
    planned = expand(load_sweep(SWEEP)).cells  # none of the demo's family is in it
    rows |= over_leases(planned, rows[_results], rows[LOAD.name], known)._asdict()
    rows[LOAD.name] = with_verdicts(rows[LOAD.name], rows[_results])
    rows = {name: sorted(each, key=_place(name)) for name, each in rows.items()}
    with TemporaryDirectory() as scratch:
        store = open_store(scratch)
        runs = sorted({row["run_id"] for name in (_results, ATTEMPTS.name) for row in rows[name]})
        assert publish_rows(store, rows, runs, None) is not None, "nobody else publishes here"
        write_report(store, judged_write_ups())
        for name in (*(f"{table}.parquet" for table in rows), CONVENIENCE_KEY):
            copyfile(Path(scratch) / name, snapshot / name)
            print(snapshot / name, len(rows.get(name.removesuffix(".parquet"), ())) or "")


def _place(table: str) -> Callable[[Row], list[tuple[bool, object]]]:
    """The dataset's order, as far as the table has its columns; nulls first."""
    names = [name for name in ROW_ORDER if name in PRODUCT_TABLES[table].column_names()]
    return lambda row: [(row[name] is not None, row[name]) for name in names]


if __name__ == "__main__":
    main(Path(sys.argv[1]), [*map(Path, sys.argv[2:])])
