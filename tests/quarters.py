"""Which slow tests a run has: all of them, or one quarter. `python -m tests.quarters` says which this commit runs.

`make test` runs every fast test, every slow one of the `core`, and a quarter of the other slow tests. The commit's hash
chooses the quarter, so each slow test runs in about one landing of four. `make test-all` runs everything.

A slow test says about how long it takes, in seconds of the two-core machine: `pytest.mark.slow(30)`. The quarters take
about the same time. Tests of a file in `tests/cloud` or `tests/engine` share a cloud or an engine: they stay together.
A `quiet` test counts twice: nothing runs beside it. Only what `make test-all` runs is marked as slow.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from configs.checkout import ROOT

QUARTERS = 4

SHARED = (ROOT / "tests/cloud", ROOT / "tests/engine")
"""Folders in which the slow tests of a file share what they look at."""


def commit_of(folder: Path) -> str:
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "0" * 40


def quarter_of(commit: str) -> int:
    return int(commit[:8], 16) % QUARTERS


def left_out(items: Sequence[pytest.Item], quarter: int) -> list[pytest.Item]:
    units: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("core"):
            units[_unit_of(item)].append(item)
    took_s, left = [0.0] * QUARTERS, list[pytest.Item]()
    for unit in sorted(units, key=lambda unit: (-_seconds_of(units[unit]), unit)):  # longest first
        chosen = took_s.index(min(took_s))
        took_s[chosen] += _seconds_of(units[unit])
        if chosen != quarter:
            left += units[unit]
    return left


def slowest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Files with long tests begin first, so that none runs on alone when the others have ended. A file stays whole."""
    files: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    return [item for file in sorted(files.values(), key=_seconds_of, reverse=True) for item in file]


def in_words(commit: str) -> str:
    number = quarter_of(commit) + 1
    return f"slow tests: quarter {number} of {QUARTERS}, chosen by commit {commit[:7]}; all of them: make test-all"


def _unit_of(item: pytest.Item) -> str:
    """What stays together: a file, or a test with all its cases."""
    path, _, test = item.nodeid.partition("::")
    return path if item.path.parent in SHARED else f"{path}::{test.partition('[')[0]}"


def _seconds_of(unit: Sequence[pytest.Item]) -> float:
    each = [float(mark.args[0]) for item in unit if (mark := item.get_closest_marker("slow")) is not None]
    seconds = max(each, default=0.0) if unit[0].path.parent in SHARED else sum(each)
    return 2 * seconds if any(item.get_closest_marker("quiet") for item in unit) else seconds


if __name__ == "__main__":
    print(in_words(commit_of(ROOT)))
