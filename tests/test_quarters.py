"""Every slow test runs in one of the four quarters, and the core in all of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from configs.checkout import ROOT
from tests.quarters import QUARTERS, left_out, quarter_of, slowest_first


class Item:
    def __init__(self, nodeid: str, seconds: float | None, *others: str, **busy: float) -> None:
        self.nodeid, self.path = nodeid, ROOT / Path(nodeid.partition("::")[0])
        self._marks = {} if seconds is None else {"slow": pytest.mark.slow(seconds, **busy).mark}
        self._marks |= {name: getattr(pytest.mark, name).mark for name in others}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self._marks.get(name)


def run_by_quarter(items: list[Any]) -> list[set[str]]:
    return [{each.nodeid for each in items} - {each.nodeid for each in left_out(items, q)} for q in range(QUARTERS)]


def test_each_slow_test_runs_in_one_quarter_and_all_others_in_every_one() -> None:
    slow = [Item(f"tests/flows/test_{n}.py::test_it", float(n)) for n in range(1, 12)]
    always = [Item("tests/flows/test_b.py::test_fast", None), Item("tests/flows/test_b.py::test_core", 9, "core")]
    times_run = Counter(name for quarter in run_by_quarter([*slow, *always]) for name in quarter)
    assert all(times_run[each.nodeid] == 1 for each in slow)
    assert all(times_run[each.nodeid] == QUARTERS for each in always)


def test_quarters_take_about_the_same_time() -> None:
    seconds = {
        f"tests/flows/test_{i}.py::test_it": float(n) for i, n in enumerate((500, 300, 200, 151, 150, 100, 90, 10))
    }
    sums = [sum(seconds[name] for name in run) for run in run_by_quarter([Item(*each) for each in seconds.items()])]
    assert max(sums) == 500, "no quarter is longer than the longest test alone"


@pytest.mark.parametrize(("seconds", "busy"), [(300, {}), (600, {"busy": 0.2})])
def test_a_quiet_test_counts_twice_and_one_that_waits_less_than_once(seconds: float, busy: dict[str, float]) -> None:
    quiet = Item("tests/engine/test_quiet.py::test_rates", 150, "engine", "quiet")
    alone = [Item(f"tests/engine/test_{n}.py::test_it", n, "engine") for n in (201, 199, 198)]
    waits = Item("tests/flows/test_w.py::test_it", seconds, **busy)
    assert {quiet.nodeid} in run_by_quarter([quiet, *alone, Item("tests/engine/test_x.py::test_it", 97, "engine")])
    assert {waits.nodeid, alone[-1].nodeid} in run_by_quarter([quiet, *alone, waits])


def test_those_that_run_one_after_the_other_are_in_different_quarters() -> None:
    nights = [Item(f"tests/cloud/test_{n}.py::test_it", 100, "cloud") for n in range(QUARTERS)]
    others = [Item(f"tests/engine/test_{n}.py::test_it", 110, "engine") for n in range(3)]
    assert all(len(run & {each.nodeid for each in nights}) == 1 for run in run_by_quarter([*others, *nights]))


def test_each_quarter_has_a_night_that_loses_a_node() -> None:
    others = [Item(f"tests/cloud/test_{n}.py::test_it", n, "cloud") for n in (500, 400, 300)]
    nights = [Item(f"tests/cloud/test_{n}.py::test_it", n, "cloud", "reclaimed") for n in (600, 200, 20, 10)]
    assert all(len(run & {each.nodeid for each in nights}) == 1 for run in run_by_quarter([*others, *nights]))


def test_groups_with_an_engine_share_out_alike_without_the_small_tests() -> None:
    heavy = [Item("tests/cloud/test_n.py::test_it", 90, "cloud"), Item("tests/engine/test_q.py::test_it", 80, "quiet")]
    heavy += [Item(f"tests/engine/test_{n}.py::test_it", n, "engine") for n in (70, 30, 20)]
    small = [Item(f"tests/flows/test_{n}.py::test_it", n) for n in (300, 200, 10)]
    alone = run_by_quarter([*heavy])
    assert alone == [run & {each.nodeid for each in heavy} for run in run_by_quarter([*small, *heavy])]


def test_the_slow_tests_of_a_file_stay_together() -> None:
    engine = [Item(f"tests/engine/test_e.py::test_{n}", 60) for n in range(5)]
    others = [Item(f"tests/flows/test_a.py::test_{n}", 7) for n in range(5)]
    for together in (engine, others):
        names = {each.nodeid for each in together}
        assert [run for run in run_by_quarter([*engine, *others]) if run & names == names]


def test_files_with_long_tests_begin_first_and_stay_whole() -> None:
    slow = {"a": [None, 5.0], "b": [None], "c": [40.0, None, 30.0], "d": [50.0]}
    files = {
        name: [Item(f"tests/flows/test_{name}.py::test_{n}", s) for n, s in enumerate(slow[name])] for name in slow
    }
    items: list[Any] = [item for name in "abcd" for item in files[name]]
    assert slowest_first(items) == [item for name in "cdab" for item in files[name]]


def test_commits_choose_every_quarter() -> None:
    assert {quarter_of(f"{number:08x}{'0' * 32}") for number in range(8)} == set(range(QUARTERS))
