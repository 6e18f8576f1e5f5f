"""What the family consists of and where it is kept; standard library only, so it can be asked anywhere."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DONE_FILE = "DONE"
"""Written last inside a member's folder; a folder without it does not count."""

COSMETIC_FILES = frozenset({"__init__.py", "build.py", "interpreter.py"})
"""Files that cannot change a trained weight; every other file of this package is part of the recipe."""


@dataclass(frozen=True)
class Member:
    """One checkpoint of the family.

    Attributes:
        name: Folder name.
        steps: Training steps of a full build.
        needs_target: Whether it is trained on the finished target.
        on_request: Whether only `--with-diffusion` or `--only` builds it.
    """

    name: str
    steps: int
    needs_target: bool
    on_request: bool = False


MEMBERS = {
    member.name: member
    for member in (
        Member("target", steps=800, needs_target=False),
        Member("draft", steps=500, needs_target=False),
        Member("dflash", steps=700, needs_target=True),
        Member("mtp", steps=240, needs_target=True),
        Member("diffusion", steps=1300, needs_target=False, on_request=True),
    )
}
"""In the order in which they are started."""


def recipe_hash(steps_scale: float = 1.0) -> str:
    """Identity of the recipe: 16 hex digits over the source of every file that can change a weight.

    Args:
        steps_scale: Factor on all steps; a scaled build (tests) has another hash than a full one.
    """
    digest = hashlib.sha256(f"steps_scale={steps_scale}".encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if file.name not in COSMETIC_FILES:
            digest.update(f"\n{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def family_dir(steps_scale: float = 1.0) -> Path:
    """Default folder of the family trained by this recipe; a changed recipe has another one."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "specsweep" / "family" / recipe_hash(steps_scale)


def missing(out: Path, members: Sequence[str], steps_scale: float = 1.0) -> list[str]:
    """Those of `members` that `out` does not hold complete and of this recipe."""
    wanted = recipe_hash(steps_scale)
    return [name for name in members if _recipe_of(out / name) != wanted]


def scaled_steps(name: str, steps_scale: float) -> int:
    """Training steps of a member, at least two."""
    return max(2, round(MEMBERS[name].steps * steps_scale))


def _recipe_of(folder: Path) -> str | None:
    """The recipe that a folder says it was trained by; None without a readable `DONE`."""
    try:
        done = json.loads((folder / DONE_FILE).read_text())
    except (OSError, ValueError):
        return None
    return done.get("recipe") if isinstance(done, dict) else None
