"""Pairs of speeds: what a ratio of two rates claims, and why it claims nothing."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.dataset.consolidate.pairs import shared
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.consolidate.speed.run import Visits
from warehouse.dataset.statistics.conclude import holm
from warehouse.dataset.statistics.proportions import ALPHA
from warehouse.dataset.statistics.visits import Components, Estimate
from warehouse.ledger.verdicts import Reason

WITHIN_ONE_START = "within one start"
BETWEEN_STARTS = "between starts"

WITHHELD = {
    Reason.PLACEBO_FAILED: "AR against AR reads as a difference in this run",
    Reason.NO_PLACEBO: "no placebo: AR was not started twice beside another arm",
}
"""Why no speed of a run or of a condition is a claim, in words."""


def speed_pair(
    row: Row,
    ours: Visits,
    baseline: Visits,
    ratio: Estimate | None,
    found: Components,
    differs: list[str],
    withheld: Reason | None,
) -> Row:
    """A row with a speedup, as a comparison; only an ok row whose interval leaves 1 out is faster or slower.

    Args:
        row: with its speedup and its last verdict.
        ours: the visits behind it.
        baseline: those of AR, on the same machine.
        ratio: log of the speedup; None: within one start.
        found: what varies from start to start.
        differs: serving arguments in which the two differ.
        withheld: why the placebo allows no claim; None: it does.
    """
    noted = [*([Reason.SERVING_DIFFERS] if differs else []), *([withheld] if withheld is not None else [])]
    pair = shared(row, baseline.rows[0]["served_cell_key"], "speed") | {
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
    return _alone(pair)


CORRECTED = "; inconclusive"
"""Begins what a correction has to say of a pair's wording."""


def _alone(pair: Row) -> Row:
    """The pair with what its interval says by itself: nothing, unless the row is ok and no claim is withheld."""
    low, high, conclusion = pair["ratio_lo"], pair["ratio_hi"], "inconclusive"
    is_ok = pair["verdict"] == "ok" and not any(reason in pair["reasons"] for reason in WITHHELD)
    if is_ok and low is not None and high is not None:
        conclusion = "faster" if low > 1 else "slower" if high < 1 else "inconclusive"
    return pair | {"conclusion": conclusion, "wording": pair["wording"].partition(CORRECTED)[0]}


def among_others(pairs: Sequence[Row]) -> list[Row]:
    """The pairs, their p values corrected for all cells of the run under the same condition (Holm).

    Of twenty techniques that gain nothing one would read as faster by its interval alone: such a claim is withdrawn.
    A row that isn't ok claims nothing, so it is none of so many and has no corrected p. Pairs that were corrected
    before, among others, are corrected anew.
    """
    families: dict[tuple[str | None, ...], list[Row]] = {}
    for pair in pairs:
        families.setdefault(_family(pair), []).append(_alone(pair))
    return [each for family in families.values() for each in _corrected(family)]


_FAMILY = ("run_id", "step", "condition", "mode")


def concluded(results: Sequence[Row], pairs: Sequence[Row]) -> list[Row]:
    """Rows of `results_consolidated` with what their comparisons conclude, once those are corrected; null: none."""
    said = {(pair["cell_key"], *_family(pair)): pair["conclusion"] for pair in pairs}
    return [row | {"conclusion": said.get((row["cell_key"], *_family(row)))} for row in results]


def _family(row: Row) -> tuple[str | None, ...]:
    return tuple(row.get(name) for name in _FAMILY)


def _corrected(family: Sequence[Row]) -> list[Row]:
    tested = [pair for pair in family if pair["ratio_p"] is not None and pair["verdict"] == "ok"]
    corrected = dict(zip(map(id, tested), holm([pair["ratio_p"] for pair in tested]), strict=True))
    done = []
    for pair in family:
        p = corrected.get(id(pair))
        pair = pair | {"ratio_p_holm": p}
        if p is not None and p >= ALPHA and pair["conclusion"] != "inconclusive":
            among = f" as one of {len(tested)} comparisons" if len(tested) > 1 else ""
            wording = f"{pair['wording']}{CORRECTED}{among} (p = {p:.2g})"
            pair |= {"conclusion": "inconclusive", "wording": wording}
        done.append(pair)
    return done


def _wording(
    row: Row, ours: Visits, baseline: Visits, found: Components, differs: list[str], withheld: Reason | None
) -> str:
    said = f"{row['speedup']:.2f} x"
    if row["speedup_lo"] is None:
        said += _no_interval(ours, baseline, found)
    else:
        said += f" [{row['speedup_lo']:.2f}, {row['speedup_hi']:.2f}], {_starts(len(ours.rates))} against "
        said += f"{len(baseline.rates)} on one machine"
    if row["verdict"] != "ok":
        said += f"; no claim: the row is {row['verdict']} ({', '.join(row['reasons'])})"
    elif withheld is not None:
        said += f"; no claim: {WITHHELD[withheld]}"
    return said + (f"; AR was served with another {', '.join(differs)}" if differs else "")


def _no_interval(ours: Visits, baseline: Visits, found: Components) -> str:
    """Why `ratio_interval` made none."""
    if not found.start_df:
        return f" {WITHIN_ONE_START}: no claim about another one"
    if any(len(visit.log_rates) < 2 for visit in (*ours.rates, *baseline.rates)):
        return ": no claim: one repeat in a start says nothing of how repeats scatter"
    return ": no claim: the two were not measured about the same middle, and no drift is known"


def _starts(number: int) -> str:
    return "1 start" if number == 1 else f"{number} starts"
