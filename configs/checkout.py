"""Where this checkout is, which version, and at which commit."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""Root of the checkout: specsweep runs from a clone, never from a wheel."""


def version() -> str:
    """The version in pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def git_head() -> str | None:
    """The checkout's commit; None where this is no git checkout, or git isn't installed."""
    return _git("rev-parse", "HEAD") or None


def has_changes() -> bool:
    """Whether tracked files differ from the commit; False where git can't tell."""
    return bool(_git("status", "--porcelain", "--untracked-files=no"))


def _git(*arguments: str) -> str:
    if not shutil.which("git") or not (ROOT / ".git").exists():
        return ""
    argv = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
