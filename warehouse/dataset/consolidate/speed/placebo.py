"""The placebo: AR against AR, last start over first. Where that reads as a difference, no speedup of ours counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import NamedTuple

from warehouse.dataset.consolidate.pairs import shared
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.consolidate.speed.run import Arms, Load, baselines_of, load_of
from warehouse.dataset.statistics.conclude import holm
from warehouse.dataset.statistics.proportions import ALPHA
from warehouse.dataset.statistics.visits import Components, Estimate, placebo_interval, smallest_seen
from warehouse.ledger.verdicts import Reason

MOST_SEEN = 1e6
"""Bound of what is stored of `ratio_detectable`: with one degree of freedom and many placebos it has no end."""


def placebo_pairs(arms: Arms, found: Mapping[Load, Components]) -> list[Row]:
    """One pair per AR arm and condition; p values are corrected for all of them of the same run."""
    made: list[tuple[Row, Estimate]] = []
    for key, visits in baselines_of(arms):
        varies = found[load_of(key)]
        estimate = placebo_interval(visits.rates, varies)
        if estimate is None:
            continue
        before, after = visits.rows[0], visits.rows[-1]
        pair = shared(after, after["served_cell_key"], "placebo") | {
            "condition": after["condition"],
            "mode": after["mode"],
            "metric": "tok_s",
            "n": after["repeats"],
            "baseline_value": before["tok_s"],
            "value": after["tok_s"],
            "machine": after["machine"],
            "visits": 1,
            "baseline_visits": 1,
            "drift": varies.drift_share,
            "verdict": "ok",
            "reasons": [],
        }
        made.append((pair, estimate))
    return among_placebos(made)


def among_placebos(made: Sequence[tuple[Row, Estimate]]) -> list[Row]:
    """The placebos with what was seen and their last word, each as one of all of its run."""
    families: dict[str, list[tuple[Row, Estimate]]] = {}
    for pair, estimate in made:
        families.setdefault(pair["run_id"], []).append((pair, estimate))
    return [pair for family in families.values() for pair in _corrected(family)]


def _corrected(family: Sequence[tuple[Row, Estimate]]) -> list[Row]:
    """The placebos of one run, with their last word."""
    done: list[Row] = []
    corrected = holm([estimate.p for _, estimate in family])
    for (pair, estimate), p in zip(family, corrected, strict=True):
        differs = p < ALPHA
        pair = pair | _seen(estimate, len(family))
        wording = (
            f"AR against AR, last start over first: {pair['ratio']:.2f} x [{pair['ratio_lo']:.2f}, "
            f"{pair['ratio_hi']:.2f}], p = {p:.2g} as one of {len(family)}: "
            f"{'a difference where there is none' if differs else 'no difference seen'}"
        )
        conclusion = "differs" if differs else "inconclusive"
        done.append(pair | {"ratio_p_holm": p, "conclusion": conclusion, "wording": wording})
    return done


def _seen(estimate: Estimate, tests: int) -> Row:
    seen = smallest_seen(estimate, tests)
    return {
        "ratio": exp(estimate.log),
        "ratio_lo": exp(estimate.lo),
        "ratio_hi": exp(estimate.hi),
        "ratio_p": estimate.p,
        "ratio_detectable": MOST_SEEN if seen > log(MOST_SEEN) else exp(seen),
    }


class Placebos(NamedTuple):
    """Which claims AR against AR allows."""

    failed: frozenset[str]
    """Runs in which it read as a difference."""
    made: frozenset[Load]
    """Where it could be made."""

    def withholds(self, load: Load) -> Reason | None:
        """Why no speed under this condition is a claim; None: it may be one."""
        if load[0] in self.failed:
            return Reason.PLACEBO_FAILED
        return None if load in self.made else Reason.NO_PLACEBO


def placebos_of(pairs: Sequence[Row]) -> Placebos:
    """What `placebo_pairs` say together."""
    return Placebos(
        frozenset(pair["run_id"] for pair in pairs if pair["conclusion"] == "differs"),
        frozenset((pair["run_id"], pair["step"], pair["condition"], pair["mode"]) for pair in pairs),
    )
