"""Drawings: every name is whole, none covers a point, and every sign is explained, however long the names are."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.warehouse.report.rows import AR, MTP, row, seen
from warehouse.report.accuracy_section import accuracy_section
from warehouse.report.display.curves import PER_SECOND, Point, acceptance_lines, against_load, curves, speedup_scatter
from warehouse.report.display.drawing import LETTER, WIDTH
from warehouse.report.display.figures import Row
from warehouse.report.display.markup import Markup
from warehouse.report.display.plots import rate_bars, score_dots
from warehouse.report.display.view import View
from warehouse.report.steps.load import category_section
from warehouse.report.steps.memory import energy_bars, memory_section
from warehouse.report.steps.prompts import workload_section
from warehouse.report.steps.throughput import speed_section

AXIS_LETTER = LETTER * 10 / 11
"""By the sizes of both in the style sheet."""

MADE_UP = {"weights": "dummy", "acceptance_source": "replayed:mtp-gb10-26b-a4b"}


def cells(**columns: Any) -> list[Row]:
    """Of a long name, nearly alike in all their figures."""
    return [
        row(
            "mtp-v2-runner", 400.0 + k, k=k, speedup=1.6, speedup_lo=1.5, speedup_hi=1.7 - k / 20, n=48, score=0.9,
            score_lo=0.8, score_hi=0.95,
            tokens_per_step=3 + k / 10, acceptance_by_position=[0.8, 0.6, 0.5], energy_j_per_token=0.7,
            **MADE_UP, **columns,
        )
        for k in (2, 4, 8)
    ]  # fmt: skip


def offered(rows: list[Row]) -> Markup:
    return against_load("t", "u", [[Point(32.0, 31.0, each)] for each in rows], PER_SECOND, has_bound=True)


EXPLAINED = "! pale: not ok, in no comparison"

Draw = Callable[[list[Row]], Markup]
DRAWINGS = (rate_bars, energy_bars, score_dots, speedup_scatter, acceptance_lines, offered)


def names(drawing: Markup) -> list[tuple[float, float, float]]:
    """Left end, right end and place of each name."""
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="(\w+)">(mtp[^<]*)', drawing)
    wide = [(float(x), float(y), kind, LETTER * len(words)) for x, y, kind, words in found]
    return [(x - width, x, y) if kind == "end" else (x, x + width, y) for x, y, kind, width in wide]


@pytest.mark.parametrize("draw", DRAWINGS)
@pytest.mark.parametrize("verdict", ["ok", "suspect"])
def test_names_are_whole(draw: Draw, verdict: str) -> None:
    found = names(draw(cells(verdict=verdict)))
    assert len(found) == 3
    assert all(left >= 0 and right <= WIDTH for left, right, _ in found), found


@pytest.mark.parametrize("draw", DRAWINGS)
def test_what_an_axis_shows_is_whole(draw: Draw) -> None:
    found = re.findall(r'<text x="([\d.]+)" y="[\d.]+" class="axis middle">([^<]*)', draw(cells()))
    half = [(float(x), AXIS_LETTER * len(words) / 2, words) for x, words in found]
    assert all(x - wide >= 0 and x + wide <= WIDTH for x, wide, words in half), half


def test_names_cover_neither_points_nor_one_another() -> None:
    drawing = speedup_scatter(cells())
    found = names(drawing)
    assert {left for left, _, _ in found} == {found[0][0]}, "in one column"
    points = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', drawing)]
    assert max(points) < found[0][0]
    places = sorted(y for _, _, y in found)
    assert all(below - above >= 12 for above, below in pairwise(places))


@pytest.mark.parametrize("draw", DRAWINGS)
def test_what_is_not_ok_is_pale_and_has_a_mark_and_the_mark_is_explained(draw: Draw) -> None:
    flagged = draw(cells(verdict="suspect"))
    assert EXPLAINED in flagged and "‡ !<" in flagged and ' flagged"' in flagged
    assert "!" not in draw(cells()) and "flagged" not in draw(cells())


def test_a_suspect_point_of_a_line_is_pale_and_its_sound_ones_are_not() -> None:
    [sound, flagged, _] = cells()
    points = [Point(0.0, 31.0, sound), Point(8.0, 30.0, {**flagged, "verdict": "suspect"})]
    drawing = curves("t", "u", "depth, tokens", {0.0: 0.0, 8.0: 8.0}, [points])
    assert re.findall(r'<circle [^>]*class="([^"]*)"', drawing) == ["fill c8", "fill c8 flagged"]
    assert EXPLAINED in drawing and "‡ !<" in drawing


def test_the_line_of_all_that_is_offered_is_there_for_a_single_rate() -> None:
    [ends] = re.findall(r'<polyline points="([^"]*)" class="bound"', offered(cells()))
    (x1, y1), (x2, y2) = (tuple(map(float, each.split(","))) for each in ends.split())
    assert x2 > x1 and y1 == y2


LONE: dict[str, tuple[Callable[[View], Markup | None], Row, Row]] = {
    "rates": (speed_section, AR, MTP),
    "energy": (memory_section, AR | {"energy_j_per_token": 0.7}, MTP | {"energy_j_per_token": 0.5}),
    "scores": (accuracy_section, *(each | {"step": "eval-gpqa", "condition": None, "mode": None, "tok_s": None,
               "score": 0.9, "score_lo": 0.5, "score_hi": 0.9, "n": 48, "extractor": "last-letter"}
               for each in (AR, MTP))),
    "categories": (category_section, *(MTP | {"step": "load", "condition": f"load c=1, {category}", "mode": "natural"}
                   for category in ("coding", "math"))),
    "workloads": (workload_section, *(MTP | {"step": "prompts", "condition": f"{workload} c=1", "mode": "natural"}
                  for workload in ("code", "math"))),
}  # fmt: skip
"""Sections with bars, and two rows that are compared there."""


@pytest.mark.parametrize("kind", LONE)
def test_a_single_bar_is_not_drawn_and_its_row_is_in_the_table(kind: str) -> None:
    make, first, second = LONE[kind]
    alone, both = make(seen(second)) or "", make(seen(first, second)) or ""
    assert "<svg" not in alone and "<figure" not in alone and 'class="plots"' not in alone
    assert ">mtp K=4</th>" in alone or ">mtp K=4<small>" in alone
    assert both.count("<svg") == 1
