"""How often the verdict on an evaluation is wrong, with interim looks and without: simulated.

    bin/run python bench/sequential_errors.py [SIMULATIONS]

First table: one right-or-wrong answer per item. "false worse": nothing was lost, and it was called worse. "false no
worse": as much as the margin was lost, and it was called no worse. Both must stay below 5 %. Then what it is good for:
how often an equally good arm is called no worse, and a loss of twice the margin worse, and after how many items.
Second table: several answers per item, items of different difficulty. The last line is one JSON document.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from warehouse.statistics.compare import MARGIN, Conclusion, mcnemar_p, tango_score
from warehouse.statistics.paired import Comparison, compare_counts, tested
from warehouse.statistics.proportions import ALPHA
from warehouse.statistics.sequential import levels, stop

LOOKS = ((1.0,), (0.5, 0.75, 1.0), (0.25, 0.5, 0.75, 1.0))
SHARES = (0.25, 0.5, 0.75, 1.0)
ITEMS = (198, 500, 1000)
DISCORDANCES = (0.05, 0.15, 0.25)
SEED = 20261122

_SHAPE = compare_counts(1, 0, 0, MARGIN, "shape")


class Arm(NamedTuple):
    """Items whose chance to be answered right is Beta(a, b); what is lost is whole items, or a share of each."""

    a: float
    b: float
    whole_items: bool


ARMS = tuple(Arm(a, b, whole) for a, b in ((1.6, 0.5), (0.3, 0.1)) for whole in (False, True))
"""Items of mixed difficulty (mean 0.76, as GPQA with thinking on), and items nearly always right or always wrong."""


class Ending(NamedTuple):
    """How one evaluation ended, and after how many items."""

    conclusion: Conclusion
    items: int


def main() -> None:
    """Simulate all designs and print two tables."""
    simulations = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    random = np.random.default_rng(SEED)
    print(f"{simulations} simulations each, margin {MARGIN:g}; standard error of 5 %: {_error(simulations):.2%}")
    designs = [row for n in ITEMS for w in DISCORDANCES for row in _designs(random, n, w, simulations)]
    _show(designs)
    answers = [_answers(random, n, k, arm, simulations // 4) for n in (50, 198, 1000) for k in (2, 8) for arm in ARMS]
    print(f"\n{simulations // 4} simulations each, several answers per item")
    _show(answers)
    worst = max(max(row["false worse"], row["false no worse"]) for row in designs + answers)
    print(json.dumps({"simulations": simulations, "worst_error": worst, "designs": designs, "answers": answers}))


def _designs(random: np.random.Generator, n: int, discordance: float, simulations: int) -> Iterator[dict[str, Any]]:
    """One row per design, all from the same simulated evaluations."""
    losses = (0.0, MARGIN, 2 * MARGIN if discordance > 2 * MARGIN else None)
    paths = [None if loss is None else _paths(random, n, discordance, loss, simulations) for loss in losses]
    for looks in LOOKS:
        by_look = dict(zip(looks, levels(looks), strict=True))
        none, margin, large = (
            [_ended(n, path, by_look) for path in each] if each is not None else [] for each in paths
        )
        yield {
            "n": n,
            "discordance": discordance,
            "looks": " ".join(f"{look:g}" for look in looks),
            "false worse": _share(none, "worse"),
            "false no worse": _share(margin, "non-inferior"),
            "no worse found": _share(none, "non-inferior"),
            "items if none lost": round(sum(each.items for each in none) / simulations),
            "worse found": _share(large, "worse") if large else None,
            "items if much lost": round(sum(each.items for each in large) / simulations) if large else None,
        }


def _paths(
    random: np.random.Generator, n: int, discordance: float, loss: float, simulations: int
) -> list[list[list[int]]]:
    """Per simulation: gained and lost up to each of SHARES."""
    shares = [(discordance - loss) / 2, (discordance + loss) / 2, 1 - discordance]
    steps = np.diff([0, *(_items(n, look) for look in SHARES)])
    drawn = np.stack([random.multinomial(step, shares, simulations)[:, :2] for step in steps], axis=1)
    paths: list[list[list[int]]] = drawn.cumsum(axis=1).tolist()
    return paths


def _ended(n: int, path: Sequence[Sequence[int]], by_look: dict[float, float]) -> Ending:
    for look, (gained, lost) in zip(SHARES, path, strict=True):
        if look not in by_look:
            continue
        found = stop(_compared(_items(n, look), gained, lost), by_look[look])
        if found is not None:
            return Ending(found, _items(n, look))
    return Ending("inconclusive", n)


@cache
def _compared(n: int, gained: int, lost: int) -> Comparison:
    """What `stop` reads of a comparison; its bootstrap and intervals would take minutes."""
    ni_p = NormalDist().cdf(-tango_score(n, gained, lost, -MARGIN))
    return _SHAPE._replace(n=n, delta=(gained - lost) / n, p=_mcnemar_p(min(gained, lost), gained + lost), ni_p=ni_p)


@cache
def _mcnemar_p(fewer: int, discordant: int) -> float:
    return mcnemar_p(fewer, discordant - fewer)


def _answers(random: np.random.Generator, n: int, samples: int, arm: Arm, simulations: int) -> dict[str, Any]:
    """Both arms are sampled; nothing is lost, or a loss of the margin."""
    false_worse = false_fine = fine = 0
    mean = arm.a / (arm.a + arm.b)
    for _ in range(simulations):
        right = random.beta(arm.a, arm.b, n)
        kept = random.random(n) >= MARGIN / mean if arm.whole_items else 1 - MARGIN / mean
        baseline = random.binomial(samples, right) / samples
        same = tested(_differences(random.binomial(samples, right) / samples - baseline), MARGIN)
        damaged = tested(_differences(random.binomial(samples, right * kept) / samples - baseline), MARGIN)
        false_worse += same.p < ALPHA and same.delta_hi < 0
        fine += same.ni_p < ALPHA
        false_fine += damaged.ni_p < ALPHA
    return {
        "n": n,
        "answers": samples,
        "loss": f"{'whole items' if arm.whole_items else 'everywhere'}, {arm.a:g}/{arm.b:g}",
        "false worse": false_worse / simulations,
        "false no worse": false_fine / simulations,
        "no worse found": fine / simulations,
    }


def _differences(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    differences: list[float] = values.round(9).tolist()
    return differences


def _items(n: int, look: float) -> int:
    return math.ceil(n * look)


def _share(endings: Sequence[Ending], conclusion: Conclusion) -> float:
    return sum(each.conclusion == conclusion for each in endings) / len(endings)


def _error(simulations: int) -> float:
    return math.sqrt(0.05 * 0.95 / simulations)


def _show(rows: Sequence[dict[str, Any]]) -> None:
    print("  ".join(f"{name:>18}" for name in rows[0]))
    for row in rows:
        print("  ".join(f"{_text(value):>18}" for value in row.values()))


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
