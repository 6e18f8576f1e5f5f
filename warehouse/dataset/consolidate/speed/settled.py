"""The last word on speeds: intervals, speedups and pairs, once all visits of a run are known.

How much starts differ is estimated over all cells of a run, and a machine's drift over all its visits, so no
comparison group can settle its own rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, sqrt
from typing import NamedTuple

from warehouse.dataset.consolidate.rows import Judged, Row, verdict_columns, verdict_of
from warehouse.dataset.consolidate.serving import speed_differences, timed_differently, unequal_serving
from warehouse.dataset.consolidate.speed.arms import Standing
from warehouse.dataset.consolidate.speed.claims import (
    BETWEEN_STARTS,
    WITHHELD,
    WITHIN_ONE_START,
    among_others,
    concluded,
    speed_pair,
)
from warehouse.dataset.consolidate.speed.placebo import Placebos, placebo_pairs, placebos_of
from warehouse.dataset.consolidate.speed.rows import STANDING
from warehouse.dataset.consolidate.speed.run import Arms, Load, Visits, arms_of, components_of, in_place
from warehouse.dataset.consolidate.speed.visits import SEEN, Shape
from warehouse.dataset.statistics.visits import Components, Estimate, rate_interval, ratio_interval
from warehouse.ledger.verdicts import Reason

TOKENS_SLACK = 1.05
"""A verification step costs at least one step of AR, so a speedup can't exceed the tokens committed per step; the
slack allows for noise that an interval over few repeats misses."""


class Known(NamedTuple):
    """What the runs' visits say together."""

    arms: Arms
    components: Mapping[Load, Components]
    placebos: Placebos


class Settled(NamedTuple):
    """Speeds with their last word: rows of the tables, and what they were settled by."""

    results: list[Row]
    pairs: list[Row]
    visits: list[Row]
    known: Known


def settled_speeds(results: Sequence[Row], visits: Sequence[Row]) -> Settled:
    """The rows in the order given, those of speeds with intervals and speedups; pairs and placebos; placed visits."""
    placed = in_place(visits)
    arms = arms_of(placed)
    found = components_of(arms)
    placebos = placebo_pairs(arms, found)
    known = Known(arms, found, placebos_of(placebos))
    done: list[Row] = []
    pairs: list[Row] = []
    for each in results:
        row, pair = _settled(each, each[STANDING], known) if STANDING in each else (each, None)
        done.append({name: value for name, value in row.items() if name != STANDING})
        pairs += [] if pair is None else [pair]
    claims = among_others(pairs)
    return Settled(
        concluded(done, claims),
        [*placebos, *claims],
        [{name: value for name, value in row.items() if name != SEEN} for row in placed],
        known,
    )


def _settled(row: Row, stands: Standing, known: Known) -> tuple[Row, Row | None]:
    """A speed row with what the run's other visits say about it, and its comparison with AR."""
    shape: Shape = row["condition"], row["mode"]
    ours = known.arms.get((stands.arm, shape))
    if row.get("tok_s") is None or ours is None:
        return row, None
    load: Load = (row["run_id"], row["step"], *shape)
    found = known.components[load]
    row = row | interval_of(ours, found)
    if stands.cell.technique.is_baseline:
        return row, None
    baseline = None if stands.baseline_arm is None else known.arms.get((stands.baseline_arm, shape))
    refusal = stands.refusal or _refusal(ours, baseline, row["concurrency"])
    if refusal or baseline is None:
        return _noting(row, f"{refusal}, so there is no speedup"), None
    differs = unequal_serving(stands.cell.serving, baseline.served.serving)
    if differs:
        row = _noting(row, f"{Reason.SERVING_DIFFERS}: AR was served with another {', '.join(differs)}")
    if row["verdict"] != "ok":
        return row, None
    ratio = ratio_interval(ours.rates, baseline.rates, found)
    withheld = None if ratio is None else known.placebos.withholds(load)
    row = row | speedup_of(ours, baseline, ratio)
    row = row | verdict_columns(_held_to_tokens_per_step(row))
    return claimed(row, withheld), speed_pair(row, ours, baseline, ratio, found, differs, withheld)


def claimed(row: Row, withheld: Reason | None) -> Row:
    """The row with what may be claimed of its speedup; the pair keeps all that was seen."""
    if row["verdict"] != "ok":
        return row | dict.fromkeys(("speedup", "speedup_lo", "speedup_hi", "baseline_energy_j_per_token"))
    if withheld is None:
        return row
    return _noting(row, f"{withheld}: {WITHHELD[withheld]}") | {"speedup_lo": None, "speedup_hi": None}


def interval_of(ours: Visits, found: Components) -> Row:
    """Interval of the rate, and over what it holds."""
    if not found.start_df:
        row: Row = {"interval_scope": WITHIN_ONE_START}
    else:
        row = {"interval_scope": BETWEEN_STARTS, "start_sd": sqrt(found.start_var)}
    estimate = rate_interval(ours.rates, found)
    return row if estimate is None else row | {"tok_s_lo": exp(estimate.lo), "tok_s_hi": exp(estimate.hi)}


def _refusal(ours: Visits, baseline: Visits | None, concurrency: int | None) -> str:
    if baseline is None:
        return f"{Reason.NO_BASELINE}: AR was not measured under this condition"
    if not baseline.is_ok:
        return f"{Reason.NO_BASELINE}: the AR row on this machine is not ok"
    most = baseline.served.serving.max_num_seqs
    if most is not None and most < (concurrency or 1):
        return f"{Reason.NO_BASELINE}: AR was held to {most} requests at a time, and {concurrency} were asked of it"
    clients = timed_differently([*ours.places, *baseline.places])
    if clients is not None:
        return f"{Reason.CLIENT_DIFFERS}: the cell and AR were timed by different clients, {clients}"
    same_model = ours.served.model.name == baseline.served.model.name
    unlike = speed_differences(ours.places[0], baseline.places[0], same_model)
    return f"{Reason.SERVING_DIFFERS}: AR was served by another engine: {'; '.join(unlike)}" if unlike else ""


def speedup_of(ours: Visits, baseline: Visits, ratio: Estimate | None) -> Row:
    """The ratio of the two rates, with its interval where there is one, and what a token of AR took meanwhile."""
    row: Row = {"baseline_energy_j_per_token": baseline.energy_j_per_token}
    if ratio is None:
        return row | {"speedup": ours.tok_s / baseline.tok_s, "speedup_lo": None, "speedup_hi": None}
    return row | {"speedup": exp(ratio.log), "speedup_lo": exp(ratio.lo), "speedup_hi": exp(ratio.hi)}


def _noting(row: Row, sentence: str) -> Row:
    return row | verdict_columns(verdict_of(row).noting(sentence))


def _held_to_tokens_per_step(row: Row) -> Judged:
    """Guard: the lower end of the speedup must not exceed the tokens per decoding step by more than the slack.

    Acceptance length would be too lax a bound: n-gram and suffix draft only on some steps, and it counts only those.
    """
    verdict, tokens = verdict_of(row), row.get("tokens_per_step") or row.get("acceptance_length")
    speedup = row.get("speedup_lo") or row["speedup"]
    if tokens is None or speedup <= tokens * TOKENS_SLACK:
        return verdict
    sentence = f"speedup of at least {speedup:.2f} with {tokens:.2f} tokens per decoding step: it can't be true"
    return verdict.worsened("suspect", Reason.SPEEDUP_ABOVE_ACCEPTANCE, sentence)
