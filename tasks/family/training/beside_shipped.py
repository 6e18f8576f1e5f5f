"""How close members that were trained here come to the shipped ones: what both came to, and a verdict in words."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tasks.family.members import DONE_FILE, SHIPPED, WEIGHTS, damage_of

LOSS_SHARE = 0.1
"""Most that a loss may be above the shipped one's, as a share of it, for a member as good."""

SCORE_POINTS = 0.07
"""Most that a score may be below the shipped one's: three of the 48 questions that a score is of."""


@dataclass(frozen=True)
class Figure:
    """One figure of a member: of the one trained here and of the shipped one."""

    member: str
    what: str
    trained: float
    shipped: float

    @property
    def is_as_good(self) -> bool:
        """Whether the one trained here is as good, but for noise."""
        if self.what == "loss":
            return self.trained <= self.shipped * (1 + LOSS_SHARE)
        return self.trained >= self.shipped - SCORE_POINTS


def figures(out: Path, members: Sequence[str], shipped: Path = WEIGHTS) -> list[Figure]:
    """The final loss and each score of those of `members` that are shipped too."""
    found: list[Figure] = []
    for member in members:
        if member not in SHIPPED or damage_of(shipped / member) is not None:
            continue
        here, there = (_came_to(folder / member) for folder in (out, shipped))
        found += [Figure(member, what, here[what], there[what]) for what in here if what in there]
    return found


def verdict(found: Sequence[Figure]) -> str:
    """One sentence: how far the figures are apart, and whether the members trained here are as good."""
    losses = [abs(each.trained / each.shipped - 1) for each in found if each.what == "loss"]
    scores = [abs(each.trained - each.shipped) for each in found if each.what != "loss"]
    apart = [f"losses equal within {max(losses):.1%}"] if losses else []
    apart += [f"greedy scores within {max(scores):.3f}"] if scores else []
    worse = [f"{each.member}'s {each.what}" for each in found if not each.is_as_good]
    so = f"not as good as shipped: {', '.join(worse)}" if worse else "as good as shipped"
    return f"{', '.join(apart)}: {so}"


def table(found: Sequence[Figure]) -> str:
    """The figures as lines of text."""
    lines = [f"{'member':8}{'':8}{'trained':>9}{'shipped':>9}"]
    lines += [f"{each.member:8}{each.what:8}{each.trained:9.4f}{each.shipped:9.4f}" for each in found]
    return "\n".join(lines)


def as_json(found: Sequence[Figure]) -> dict[str, Any] | None:
    """The same for a program; None: nothing of it is shipped."""
    return {"figures": [asdict(each) for each in found], "verdict": verdict(found)} if found else None


def _came_to(folder: Path) -> dict[str, float]:
    """Final loss and scores of a member, by name."""
    done = json.loads((folder / DONE_FILE).read_text(encoding="utf-8"))
    return {"loss": done["loss"], **done["scores"]}
