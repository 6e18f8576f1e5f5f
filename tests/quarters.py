"""Which slow tests a run has: all of them, or one quarter. `python -m tests.quarters` says which this commit runs.

`make test` runs every fast test, every slow one of the `core`, and a quarter of the other slow tests. Each quarter has
one of the nights that lose a node. The commit's hash chooses the quarter, so each slow test runs in about one commit of
four. `make test-all` runs everything.

A slow test says about how long it takes, in seconds of the two-core machine: `pytest.mark.slow(30)`. The quarters take
about the same time. Tests of a cloud and `quiet` ones run one after the other, so they are shared out before the rest.
What has an engine or a cloud is marked with the processor seconds that it and its children spend beside other tests.
The slow tests of a file stay together, because they share what is made for them. In `tests/cloud` and `tests/engine`
that takes nearly all of their time. Only what `make test-all` runs is marked.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from configs.checkout import ROOT

QUARTERS = 4

SHARED = (ROOT / "tests/cloud", ROOT / "tests/engine")
"""Folders in which a file takes as long as its longest test: it makes what the others look at."""


BUSY = 0.4
"""Processor seconds of a second of a test without an engine or a cloud: it mostly waits (2026-11-28, 0.1 to 0.6). What
computes more is marked with as many seconds as make that up, and what waits for minutes says its own share:
`pytest.mark.slow(420, busy=0.15)`. An engine and a cloud compute all the time. A `quiet` test keeps both processors, as
nothing runs beside it."""


def commit_of(folder: Path) -> str:
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "0" * 40


def quarter_of(commit: str) -> int:
    return int(commit[:8], 16) % QUARTERS


def left_out(items: Sequence[pytest.Item], quarter: int) -> list[pytest.Item]:
    """First what runs in a row is shared out by how long that takes, then the rest, by how busy all keep a machine.

    Nights that lose a node go before all others, so that each quarter has one. What has an engine goes before the small
    tests: its groups in `make test` do not even collect those.
    """
    files = _by_file(item for item in items if item.get_closest_marker("slow") and not item.get_closest_marker("core"))
    in_a_row = {file: _is(files[file], "cloud", "quiet") for file in files}
    row_s, busy_s, left = [0.0] * QUARTERS, [0.0] * QUARTERS, list[pytest.Item]()
    for file in sorted(files, key=lambda file: (*_turn(files[file]), -_seconds_of(files[file]), file)):  # longest first
        taken_s = row_s if in_a_row[file] else busy_s
        chosen = taken_s.index(min(taken_s))
        row_s[chosen] += _seconds_of(files[file])
        busy_s[chosen] += _busy_seconds_of(files[file])
        if chosen != quarter:
            left += files[file]
    return left


def slowest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Files with long tests begin first, so that none runs on alone when the others have ended. A file stays whole."""
    return [item for file in sorted(_by_file(items).values(), key=_seconds_of, reverse=True) for item in file]


def in_words(commit: str) -> str:
    number = quarter_of(commit) + 1
    return f"slow tests: quarter {number} of {QUARTERS}, chosen by commit {commit[:7]}; all of them: make test-all"


def _by_file(items: Iterable[pytest.Item]) -> dict[Path, list[pytest.Item]]:
    files: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    return files


def _seconds_of(file: Sequence[pytest.Item]) -> float:
    each = [float(mark.args[0]) for mark in map(_slow, file) if mark is not None]
    return max(each, default=0.0) if file[0].path.parent in SHARED else sum(each)


def _busy_seconds_of(file: Sequence[pytest.Item]) -> float:
    """Of a processor: all of a run together keep both busy from its beginning to its end."""
    own = [mark.kwargs["busy"] for mark in map(_slow, file) if mark is not None and "busy" in mark.kwargs]
    usual = 2 if any(item.get_closest_marker("quiet") for item in file) else 1 if _is(file, "engine", "cloud") else BUSY
    return _seconds_of(file) * max(own, default=usual)


def _slow(item: pytest.Item) -> pytest.Mark | None:
    return item.get_closest_marker("slow")


def _turn(file: Sequence[pytest.Item]) -> tuple[bool, ...]:
    return tuple(not _is(file, *marks) for marks in (("reclaimed",), ("cloud", "quiet"), ("engine",)))


def _is(file: Sequence[pytest.Item], *marks: str) -> bool:
    return any(map(file[0].get_closest_marker, marks))


if __name__ == "__main__":
    print(in_words(commit_of(ROOT)))
