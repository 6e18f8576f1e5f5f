"""The final figures of speed: intervals, speedups and pairs, once all starts of a run are known.

How much starts differ, and how a machine drifts, is estimated over all cells: no group can settle its own rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, sqrt
from typing import NamedTuple

from warehouse.dataset.consolidate.comparable import timed_differently, unequal_columns, unequal_serving
from warehouse.dataset.consolidate.pairs import pair_columns
from warehouse.dataset.consolidate.rows import CellStep, Result, Row, Standing, Start
from warehouse.dataset.consolidate.speed.starts import (
    Arms,
    Placebos,
    RunCondition,
    Starts,
    arms_of,
    components_of,
    in_place,
    placebo_pairs,
    placebos_of,
)
from warehouse.dataset.statistics.proportions import ALPHA, holm
from warehouse.dataset.statistics.starts import Components, Estimate, rate_interval, ratio_interval
from warehouse.ledger.verdicts import Reason

TOKENS_SLACK = 1.05
"""A verification step costs at least one step of AR, so a speedup can't exceed the tokens committed per step. The slack
allows for noise that an interval over few repeats misses."""

WITHIN_ONE_START = "within one start"
BETWEEN_STARTS = "between starts"

WITHHELD = {
    Reason.PLACEBO_FAILED: "AR against AR reads as a difference in this run",
    Reason.NO_PLACEBO: "AR was not started twice beside another arm, so there is no A/A check",
}
"""Why no speed of a run or of a condition is a claim, in words."""


class Known(NamedTuple):
    """What the runs' starts say together."""

    arms: Arms
    components: Mapping[RunCondition, Components]
    placebos: Placebos


class Settled(NamedTuple):
    """Rows of the tables with their final figures, and what they were settled by."""

    results: list[Row]
    pairs: list[Row]
    visits: list[Row]
    known: Known


def settled_speeds(
    results: Sequence[Result], starts: Sequence[Start], standings: Mapping[CellStep, Standing]
) -> Settled:
    """The rows in the order given, those of speeds with intervals and speedups; pairs and A/A checks; placed starts."""
    placed = in_place(starts)
    arms = arms_of(placed)
    found = components_of(arms)
    checks = placebo_pairs(arms, found)
    known = Known(arms, found, placebos_of(checks))
    done: list[Row] = []
    pairs: list[Row] = []
    for result in results:
        stands = standings.get((result.columns["run_id"], result.columns["cell_key"], result.columns["step"]))
        settled, pair = (result, None) if stands is None else _settled(result, stands, known)
        done.append(settled.row)
        pairs += [] if pair is None else [pair]
    claims = among_others(pairs)
    return Settled(concluded(done, claims), [*checks, *claims], [start.row for start in placed], known)


def _settled(result: Result, stands: Standing, known: Known) -> tuple[Result, Row | None]:
    """A speed row with what the run's other starts say about it, and its comparison with AR."""
    row = result.columns
    if row.get("tok_s") is None:
        return result, None
    shape = row["condition"], row["mode"]
    ours = known.arms.get((stands.arm, shape))
    if ours is None:
        return result, None
    load: RunCondition = (row["run_id"], row["step"], *shape)
    found = known.components[load]
    result = result.plus(_interval_of(ours, found))
    if ours.served.technique.is_baseline:
        return result, None
    baseline = None if stands.baseline_arm is None else known.arms.get((stands.baseline_arm, shape))
    refusal = stands.refusal or _refusal(ours, baseline, row["concurrency"])
    if refusal or baseline is None:
        return result.noting(f"{refusal}, so there is no speedup"), None
    differs = unequal_serving(ours.served.serving, baseline.served.serving)
    if differs:
        result = result.noting(f"{Reason.SERVING_DIFFERS}: AR was served with another {', '.join(differs)}")
    if not result.is_ok:
        return result, None
    ratio = ratio_interval(ours.rates, baseline.rates, found)
    low, high = (None, None) if ratio is None else (exp(ratio.lo), exp(ratio.hi))
    speedup = ours.tok_s / baseline.tok_s if ratio is None else exp(ratio.log)
    result = _held_to_tokens_per_step(result, speedup if low is None else low)
    withheld = None if ratio is None else known.placebos.withholds(load)
    seen = result.plus({"speedup": speedup, "speedup_lo": low, "speedup_hi": high})
    pair = speed_pair(seen.row, ours, baseline, ratio, found, differs, withheld)
    if not result.is_ok:
        return result, pair
    claimed = seen.plus({"baseline_energy_j_per_token": baseline.energy_j_per_token})
    if withheld is not None:
        unclaimed = claimed.plus({"speedup_lo": None, "speedup_hi": None})
        return unclaimed.noting(f"{withheld}: {WITHHELD[withheld]}"), pair
    return claimed, pair


def _interval_of(ours: Starts, found: Components) -> Row:
    if not found.start_df:
        row: Row = {"interval_scope": WITHIN_ONE_START}
    else:
        row = {"interval_scope": BETWEEN_STARTS, "start_sd": sqrt(found.start_var)}
    estimate = rate_interval(ours.rates, found)
    return row if estimate is None else row | {"tok_s_lo": exp(estimate.lo), "tok_s_hi": exp(estimate.hi)}


def _refusal(ours: Starts, baseline: Starts | None, concurrency: int | None) -> str:
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
    # a diffusion model is compared with another model's AR: their revisions are of two repositories
    same_model = ours.served.model.name == baseline.served.model.name
    deciding = ("engine_version", "gpu_driver", *(["model_revision"] if same_model else []))
    unlike = unequal_columns(ours.places[0], baseline.places[0], deciding)
    return f"{Reason.SERVING_DIFFERS}: AR was served by another engine: {'; '.join(unlike)}" if unlike else ""


def _held_to_tokens_per_step(result: Result, speedup: float) -> Result:
    """Guard: the lower end of the speedup must not exceed the tokens per decoding step by more than the slack.

    Acceptance length would be too lax a bound: n-gram and suffix draft only on some steps, and it counts only those.
    """
    tokens = result.columns.get("tokens_per_step") or result.columns.get("acceptance_length")
    if tokens is None or speedup <= tokens * TOKENS_SLACK:
        return result
    sentence = f"speedup of at least {speedup:.2f} with {tokens:.2f} tokens per decoding step: it can't be true"
    return result.worsened("suspect", Reason.SPEEDUP_ABOVE_ACCEPTANCE, sentence)


def speed_pair(
    row: Row,
    ours: Starts,
    baseline: Starts,
    ratio: Estimate | None,
    found: Components,
    differs: list[str],
    withheld: Reason | None,
) -> Row:
    """A row with a speedup, as a comparison. `ratio` is None within one start.

    `differs`: serving arguments in which the two differ. `withheld`: why the A/A check allows no claim.
    """
    noted = [*([Reason.SERVING_DIFFERS] if differs else []), *([withheld] if withheld is not None else [])]
    return pair_columns(row, baseline.served_cell_key, "speed") | {
        "condition": row["condition"],
        "mode": row["mode"],
        "metric": "tok_s",
        "n": row["repeats"],
        "baseline_value": baseline.tok_s,
        "value": row["tok_s"],
        "ratio": row["speedup"],
        "ratio_lo": row["speedup_lo"],
        "ratio_hi": row["speedup_hi"],
        "ratio_p": None if ratio is None else ratio.p,
        "machine": row["machine"],
        "visits": len(ours.rates),
        "baseline_visits": len(baseline.rates),
        "drift": None if ratio is None else found.drift_share,
        "verdict": row["verdict"],
        "reasons": [*row["reasons"], *(reason.value for reason in noted)],
        "served_differently": differs,
        "wording": _wording(row, ours, baseline, found, differs, withheld),
    }


_FAMILY = ("run_id", "step", "condition", "mode")


def among_others(pairs: Sequence[Row]) -> list[Row]:
    """The pairs with their conclusion, their p values corrected for all ok cells of the run under the same condition.

    By its interval alone, one of twenty techniques that gain nothing would read as faster. Holm withdraws such a claim.
    """
    families: dict[tuple[str | None, ...], list[Row]] = {}
    for pair in pairs:
        families.setdefault(_family(pair), []).append(pair)
    return [each for family in families.values() for each in _concluded(family)]


def _concluded(family: Sequence[Row]) -> list[Row]:
    tested = [pair for pair in family if pair["ratio_p"] is not None and pair["verdict"] == "ok"]
    corrected = dict(zip(map(id, tested), holm([pair["ratio_p"] for pair in tested]), strict=True))
    done = []
    for pair in family:
        low, high, p = pair["ratio_lo"], pair["ratio_hi"], corrected.get(id(pair))
        conclusion, wording = "inconclusive", pair["wording"]
        is_ok = pair["verdict"] == "ok" and not any(reason in pair["reasons"] for reason in WITHHELD)
        if is_ok and low is not None and high is not None:
            conclusion = "faster" if low > 1 else "slower" if high < 1 else "inconclusive"
        if p is not None and p >= ALPHA and conclusion != "inconclusive":
            among = f" as one of {len(tested)} comparisons" if len(tested) > 1 else ""
            conclusion, wording = "inconclusive", f"{wording}; inconclusive{among} (p = {p:.2g})"
        done.append(pair | {"ratio_p_holm": p, "conclusion": conclusion, "wording": wording})
    return done


def concluded(results: Sequence[Row], pairs: Sequence[Row]) -> list[Row]:
    """Rows of `results_consolidated` with what their comparisons conclude, once those are corrected; null: none."""
    said = {(pair["cell_key"], *_family(pair)): pair["conclusion"] for pair in pairs}
    return [row | {"conclusion": said.get((row["cell_key"], *_family(row)))} for row in results]


def _family(row: Row) -> tuple[str | None, ...]:
    return tuple(row.get(name) for name in _FAMILY)


def _wording(
    row: Row, ours: Starts, baseline: Starts, found: Components, differs: list[str], withheld: Reason | None
) -> str:
    said = f"{row['speedup']:.2f} x"
    if row["speedup_lo"] is None:
        said += _no_interval(ours, baseline, found)
    else:
        starts = "1 start" if len(ours.rates) == 1 else f"{len(ours.rates)} starts"
        said += f" [{row['speedup_lo']:.2f}, {row['speedup_hi']:.2f}], {starts} against {len(baseline.rates)} on one "
        said += "machine"
    if row["verdict"] != "ok":
        said += f"; no claim: the row is {row['verdict']} ({', '.join(row['reasons'])})"
    elif withheld is not None:
        said += f"; no claim: {WITHHELD[withheld]}"
    return said + (f"; AR was served with another {', '.join(differs)}" if differs else "")


def _no_interval(ours: Starts, baseline: Starts, found: Components) -> str:
    """Why `ratio_interval` made none."""
    if not found.start_df:
        return f" {WITHIN_ONE_START}: no claim about another one"
    if any(len(visit.log_rates) < 2 for visit in (*ours.rates, *baseline.rates)):
        return ": no claim: one repeat in a start says nothing of how repeats scatter"
    return ": no claim: the two were not measured about the same middle, and no drift is known"
