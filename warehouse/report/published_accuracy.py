"""The published comparison of accuracy that this project began with, and the verdict that its items can carry.

Source: mtp-diffusion-h100 (docs/sources.md): GPQA-Diamond in fp8, one answer per item, scores to three decimals. Which
items each arm got right was not published, so neither was how many items differ, and on that the verdict depends. So
each row is judged three times: as if the fewest items differed that give the two scores, as if 15 % did, and as if the
arms were independent of each other, the most that can be expected. What holds in all three cases is carried.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from configs.load import load_model, load_technique
from warehouse.display.figures import Row, figure, plural, signed, span
from warehouse.display.markup import Markup, tag
from warehouse.display.section import section
from warehouse.display.tables import Heading, table
from warehouse.display.view import View
from warehouse.published.read import load_write_up
from warehouse.statistics.compare import MARGIN, Conclusion
from warehouse.statistics.conclude import Standing, conclude, wording
from warehouse.statistics.holm import holm
from warehouse.statistics.paired import Comparison, compare_counts

SOURCE = "mtp-diffusion-h100"
"""Whose scores these are."""

ASSUMED_DISCORDANCE = 0.15
"""Share of items that two equally good arms answer differently when both sample: our assumption, as in the plan."""

STRICT_MARGIN = 0.03
"""The loss that the source calls noise ("per-cell standard error around 0.03")."""


class PublishedScore(NamedTuple):
    """One published pair of scores, 0 ... 1."""

    model: str
    technique: str
    framework: str
    ar: float
    score: float
    n: int
    """Items; each arm answered all of them."""


@cache
def published_scores() -> tuple[PublishedScore, ...]:
    """Every score of GPQA that the source prints for a technique, beside AR's by the same framework."""
    rows = [row for row in load_write_up(SOURCE).rows if row.suite == "gpqa" and row.extractor is None]
    ar = {(row.model, row.framework, row.n): row.score for row in rows if row.is_baseline}
    return tuple(
        PublishedScore(row.model, load_technique(row.technique).method, str(row.framework), below, row.score, row.n)
        for row in rows
        if row.model is not None and row.score is not None and row.n is not None and not row.is_baseline
        if (below := ar[load_model(row.model).compared_as, row.framework, row.n]) is not None
    )


class Case(NamedTuple):
    """One assumption about how many items differ, and what would follow from it."""

    comparison: Comparison
    standing: Standing
    conclusion: Conclusion

    @property
    def words(self) -> str:
        """The comparison in words."""
        return wording(self.comparison, self.conclusion, self.standing)


class PublishedVerdict(NamedTuple):
    """A published pair of scores in the three cases."""

    published: PublishedScore
    fewest: Case
    assumed: Case
    independent: Case

    @property
    def conclusion(self) -> Conclusion:
        """What holds in all cases."""
        found = {case.conclusion for case in (self.fewest, self.assumed, self.independent)}
        return found.pop() if len(found) == 1 else "inconclusive"

    @property
    def words(self) -> str:
        """The verdict in words, with the widest interval where there is one; where the cases disagree, that they do."""
        if self.conclusion != "inconclusive":
            return self.independent.words
        if self.assumed.conclusion == "inconclusive":
            return self.assumed.words
        return f"cannot tell: it depends on how many items differ, which was not published (n={self.published.n})"


def right_answers(score: float, n: int) -> int:
    """Right answers of so many behind a score that was rounded to three decimals."""
    return round(score * n)


def counts(published: PublishedScore, share: float) -> tuple[int, int]:
    """Items gained and lost that give the two scores, with as nearly this share of items differing as can be."""
    net = right_answers(published.score, published.n) - right_answers(published.ar, published.n)
    differing = max(abs(net), round(share * published.n))
    differing += (differing - net) % 2
    return (differing + net) // 2, (differing - net) // 2


@cache
def published_verdicts(margin: float = MARGIN) -> list[PublishedVerdict]:
    """Every published pair, judged in three cases; in each the eleven comparisons are corrected together (Holm)."""
    fewest = _cases([0.0] * len(published_scores()), margin)
    assumed = _cases([ASSUMED_DISCORDANCE] * len(published_scores()), margin)
    independent = _cases(
        [each.ar * (1 - each.score) + each.score * (1 - each.ar) for each in published_scores()], margin
    )
    return [PublishedVerdict(*each) for each in zip(published_scores(), fewest, assumed, independent, strict=True)]


def _cases(shares: list[float], margin: float) -> list[Case]:
    found = [
        compare_counts(each.n, *counts(each, share), margin, None)
        for each, share in zip(published_scores(), shares, strict=True)
    ]
    p_holm, ni_p_holm = holm([each.p for each in found]), holm([each.ni_p for each in found])
    return [
        Case(each, Standing(p, ni_p, each.ni_p, len(found)), conclude(each, p, ni_p))
        for each, p, ni_p in zip(found, p_holm, ni_p_holm, strict=True)
    ]


def published_accuracy_section(view: View) -> Markup:
    """The published table with what its n can carry, folded up: it is a reference, not a result of ours."""
    del view
    items = " or ".join(map(str, sorted({each.n for each in published_scores()})))
    lead = (
        f"Not measured here: GPQA-Diamond as published by {SOURCE} (docs/sources.md), {items} items, one "
        f"answer each, and what these scores can carry at a margin of {100 * MARGIN:g} points, and of "
        f"{100 * STRICT_MARGIN:g}. How many items differ between the arms was not published. A verdict stands only if "
        "it holds with the fewest that give these scores, with 15 %, and with independent arms."
    )
    judged = [
        {"verdict": verdict, "strict": strict, **verdict.published._asdict()}
        for verdict, strict in zip(published_verdicts(), published_verdicts(STRICT_MARGIN), strict=True)
    ]
    decided = sum(row["verdict"].conclusion != "inconclusive" for row in judged)
    title = f"{plural(len(judged), 'published comparison')}, of which {decided} can be decided"
    shown = tag("details", tag("summary", title), table("Published accuracy, judged", _HEADINGS, judged))
    return section("published", "Published accuracy", lead, shown)


def _interval(row: Row) -> str:
    found: Comparison = row["verdict"].assumed.comparison
    return span(found.delta_lo, found.delta_hi, 3)


_HEADINGS = (
    Heading("model", lambda row: row["model"], ""),
    Heading("technique", lambda row: row["technique"], ""),
    Heading("framework", lambda row: row["framework"], ""),
    Heading("AR", lambda row: figure(row["ar"], 3)),
    Heading("score", lambda row: figure(row["score"], 3)),
    Heading("difference", lambda row: signed(row["verdict"].assumed.comparison.delta)),
    Heading("what it carries", lambda row: row["verdict"].words, "wrap"),
    Heading("interval if 15 % differ", _interval),
    Heading("at 3 points", lambda row: row["strict"].words, "wrap"),
    Heading("if the fewest differ", lambda row: row["verdict"].fewest.words, "wrap"),
)
