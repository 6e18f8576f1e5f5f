"""The demo's tiny models as they are found: which there are, where each lies, whether it is whole, what identifies it.

Standard library only, for nodes and flows. They never import the trainer, but its sources identify what it trains.
"""

import hashlib
import json
from functools import lru_cache
from pathlib import Path

from configs.errors import SpecsweepError
from tasks.host.environment_spec import user_cache

SHIPPED = ("target", "draft", "dflash", "mtp")  # members that lie in `WEIGHTS`, the same for everybody
ON_REQUEST = ("diffusion",)  # members too large to ship: trained once, into the user's cache
WEIGHTS = Path(__file__).parent / "weights"

RESTORE = "run `git checkout tasks/family/weights`"
TRAIN = "`bin/sweep run demo-diffusion` trains it"
DONE_FILE = "DONE"  # what a member's training came to, and the sha256 of each file it wrote; written last
TRAINER = Path(__file__).parent / "training"
COSMETIC_FILES = frozenset({"__init__.py", "build.py"})  # of the trainer: they can't change a weight
REVISION_DIGITS = 16


class MemberUnavailable(SpecsweepError):
    """A shipped member is missing or damaged, or there is none of this name."""


def folder_of(member: str) -> Path:
    """Where a member lies, or will lie once it is trained."""
    return (WEIGHTS if member in SHIPPED else trained_dir()) / member


def revision_of(member: str) -> str:
    """What identifies a member: its files, or the recipe that trains it here. Raises MemberUnavailable."""
    if member in ON_REQUEST:
        return recipe_hash()
    if (problem := why_not(member)) is not None:
        raise MemberUnavailable(problem)
    return digest_of(folder_of(member))


def why_not(member: str) -> str | None:
    """Why a member can't be served here, and the remedy; None: it can."""
    if member not in (*SHIPPED, *ON_REQUEST):
        return f"the demo family has no {member!r}: choose one of {', '.join((*SHIPPED, *ON_REQUEST))}"
    folder = folder_of(member)
    if (damage := damage_of(folder)) is None:
        return None
    return f"the demo family's {member!r} {damage} in {folder}: {RESTORE if member in SHIPPED else TRAIN}"


def damage_of(folder: Path) -> str | None:
    """What is wrong with a member's folder, as a verb; None: it holds what its training wrote."""
    try:
        written = json.loads((folder / DONE_FILE).read_text(encoding="utf-8"))["sha256"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "is missing"
    for name, digest in written:
        if not (folder / name).is_file():
            return f"lacks {name}"
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            return f"has a damaged {name}"
    return None


@lru_cache
def digest_of(folder: Path) -> str:
    """16 hex digits over the names and contents of a folder's files."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:REVISION_DIGITS]


@lru_cache
def recipe_hash(steps_scale: float = 1.0) -> str:
    """16 hex digits over the scale of the training (tests), and every source file that can change a weight."""
    digest = hashlib.sha256(f"steps_scale={steps_scale}".encode())
    sources = (file for file in TRAINER.glob("*.py") if file.name not in COSMETIC_FILES)
    for file in sorted((*sources, TRAINER.parent / "words.py")):
        digest.update(f"\n{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:REVISION_DIGITS]


def trained_dir(steps_scale: float = 1.0) -> Path:
    """Where members trained by this recipe are kept; those of a changed recipe are kept elsewhere."""
    return user_cache() / "family" / recipe_hash(steps_scale)
