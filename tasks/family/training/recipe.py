"""What is trained, how long, and what of it is still to do; its sources are the recipe (`members.recipe_hash`)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.family.members import DONE_FILE, damage_of, recipe_hash


@dataclass(frozen=True)
class Member:
    """One checkpoint of the family.

    Attributes:
        name: Folder name.
        steps: Training steps of a full build.
        needs_target: Whether it is trained on the finished target.
    """

    name: str
    steps: int
    needs_target: bool


MEMBERS = {
    member.name: member
    for member in (
        Member("target", steps=800, needs_target=False),
        Member("draft", steps=500, needs_target=False),
        Member("dflash", steps=700, needs_target=True),
        Member("mtp", steps=240, needs_target=True),
        Member("diffusion", steps=1300, needs_target=False),
    )
}
"""In the order in which they are started."""


def missing(out: Path, members: Sequence[str], steps_scale: float = 1.0) -> list[str]:
    """Those of `members` that `out` does not hold whole and of this recipe."""
    wanted = recipe_hash(steps_scale)
    return [name for name in members if damage_of(out / name) is not None or _recipe_of(out / name) != wanted]


def scaled_steps(name: str, steps_scale: float) -> int:
    """Training steps of a member, at least two."""
    return max(2, round(MEMBERS[name].steps * steps_scale))


def _recipe_of(folder: Path) -> str | None:
    """The recipe by which a whole member was trained."""
    recipe: str | None = json.loads((folder / DONE_FILE).read_text(encoding="utf-8")).get("recipe")
    return recipe
