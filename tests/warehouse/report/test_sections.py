"""Sections and drawings: what they say, and of what; every name is whole, and what is pointed at is there."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.warehouse.report.pages import AR, MTP, row, seen, speed_pair, visit
from tests.warehouse.runs import SHORT, VisitedRun
from tests.warehouse.synthetic import only, streamed, window
from warehouse.ledger.store import Store
from warehouse.ledger.timed_tables import REQUESTS, WINDOWS
from warehouse.report.accuracy_section import TITLE, accuracy_section
from warehouse.report.answer import caveats
from warehouse.report.display.curves import PER_SECOND, Point, acceptance_lines, against_load, curves, speedup_scatter
from warehouse.report.display.drawing import LETTER, WIDTH
from warehouse.report.display.figures import NOTHING, Row, significant
from warehouse.report.display.markup import Markup
from warehouse.report.display.plots import rate_bars, score_dots
from warehouse.report.display.view import View
from warehouse.report.steps.depth import depth_section
from warehouse.report.steps.load import category_section
from warehouse.report.steps.memory import energy_bars, memory_section
from warehouse.report.steps.parity import parity_section
from warehouse.report.steps.prompts import workload_section
from warehouse.report.steps.throughput import acceptance_section, baseline_section, latency_section, speed_section

TINY, ON_CPU = {"family": "tiny-gemma4"}, {"gpu": "cpu"}


@pytest.mark.parametrize(
    ("of_ar", "of_mtp", "said"),
    [
        (TINY | ON_CPU, TINY | ON_CPU, "All of these numbers come from a tiny demonstration model on a CPU."),
        (TINY, TINY, "All of these numbers come from a tiny demonstration model."),
        (ON_CPU, ON_CPU, "All of these numbers come from a CPU."),
        ({}, TINY, "Some of these numbers come from a tiny demonstration model."),
        (TINY, ON_CPU, "All of these numbers come from a tiny demonstration model or from a CPU."),
        ({}, {}, None),
    ],
)
def test_small_numbers_are_called_what_they_are_and_nothing_else(of_ar: Row, of_mtp: Row, said: str | None) -> None:
    small = [each.partition(" They were really measured")[0] for each in caveats(seen(AR | of_ar, MTP | of_mtp))
             if "really measured" in each]  # fmt: skip
    assert small == ([] if said is None else [said])


def test_a_comparison_is_pointed_at_and_a_dashed_line_explained_where_it_is() -> None:
    score = row("ar", step="eval-gpqa", condition=None, mode=None, score=0.75, n=4, samples=1, extractor="last-letter")
    assert TITLE not in (accuracy_section(seen(score)) or "")
    assert TITLE not in (accuracy_section(seen(AR)) or "")
    pair = {
        "kind": "accuracy", "model": "m", "step": "eval-gpqa", "technique": "mtp", "k": 4, "run_id": "r1",
        "cell_key": "mtp", "delta": 0.0, "delta_lo": -0.1, "delta_hi": 0.1, "margin": 0.05, "mde": 0.1, "n": 4,
        "gained": 0, "lost": 0, "wording": "equal", "conclusion": "inconclusive", "look": None, "truncated_delta": 0.0,
        "mcnemar_p_holm": 1.0, "ni_p_holm": 0.5, "served_differently": [], "bound_lo": -0.1,
    }  # fmt: skip
    compared = accuracy_section(seen(score, pairs=(pair,)))
    assert f"below (“{TITLE}”)" in compared and f"<h3>{TITLE}</h3>" in compared
    drafted = MTP | {"acceptance_length": 3.1, "tokens_per_step": 3.1}
    assert "; dashed: tokens per step." in acceptance_section(seen(AR, drafted))
    assert "ashed" not in acceptance_section(seen(AR, drafted | {"speedup": None}))


def table_of(view: View, label: str) -> list[str]:
    """Text of the cells of a table of the section, behind its head."""
    text = baseline_section(view) or ""
    body = text.partition(f'aria-label="{label}"')[2].partition("</table>")[0].partition("<tbody>")[2]
    return [cell.partition(">")[2].partition("<")[0] for cell in body.split("<t")[2:]]


def controls(mode: str, *told: dict[str, float]) -> list[Row]:
    """Starts of the AR that mtp's cell of run r2 brought along, as measured."""
    named = {"role": "control", "cell_key": "mtp", "model": "m", "precision": "bf16", "run_id": "r2", "mode": mode}
    return [visit(number, **named | each) for number, each in enumerate(told, 1)]


def test_an_ar_cell_says_how_many_speedups_it_divides_and_one_of_another_run_hides_no_control() -> None:
    bracketed = MTP | {"run_id": "r2"}
    starts = controls("fixed", {"tok_s": 79.0}, {"tok_s": 81.0})
    view = seen(AR, bracketed, pairs=(speed_pair(bracketed, baseline_value=80.0),), visits=starts)
    assert table_of(view, "AR baseline")[-1] == "–", "no speedup has it for a divisor"  # noqa: RUF001
    assert table_of(view, "AR as the control of other cells")[2:] == ["79.0, 81.0", "80.0", "6", "", "mtp K=4"]
    assert table_of(seen(AR, MTP, pairs=(speed_pair(MTP),)), "AR baseline")[-1] == "1"


STREAM = MTP | {"mode": "stream", "tok_s": None, "ttft_ms": 52.0, "tpot_ms": 5.0}


def streams(run: VisitedRun, visit: str, ttft_ms: float, tpot_ms: float) -> None:
    """A committed visit of mtp's: a window, and three streamed requests around these."""
    step = run.step(f"throughput{visit}", "mtp", 4).provenance(machine="node-1 card-1")
    step.write(WINDOWS, [window(SHORT, 0, 80.0)])
    step.write(REQUESTS, [streamed(SHORT, at, ttft_ms + off, tpot_ms) for at, off in enumerate((0.0, 1.0, 90.0))])
    step.judge(*((SHORT.name, mode, "ok", [], []) for mode in ("fixed", "stream"))).commit()


def test_a_start_of_the_control_says_when_its_tokens_came(local: Store) -> None:
    run = VisitedRun(local, "bracketed")
    streams(run, "@control-1", 40.0, 12.0)
    streams(run, "", 51.0, 5.0)
    built = run.built()
    control, cell = (only(built.visits, role=role, mode="stream") for role in ("control", "cell"))
    assert (control["ttft_ms"], control["tpot_ms"], control["technique"]) == (41.0, 12.0, "ar"), "medians"
    assert (cell["ttft_ms"], cell["tok_s"]) == (52.0, None)
    assert only(built.results, technique="mtp", mode="stream")["ttft_ms"] == 52.0


def test_the_page_has_them_below_the_cells_and_says_of_which_card_and_where_requests_wait() -> None:
    starts = controls("stream", {"ttft_ms": 41.0, "tpot_ms": 12.0}, {"ttft_ms": 43.0, "tpot_ms": 12.5})
    shown = latency_section(seen(STREAM | {"run_id": "r2"}, visits=starts)) or ""
    cells, _, below = shown.partition("As the control of other cells")
    assert "52.0" in cells and "41.0" not in cells
    assert "41.0, 43.0" in below and "12.00, 12.50" in below and "mtp K=4" in below
    assert "As the control" not in (latency_section(seen(STREAM)) or "")
    assert "TTFT is the one to compare" in (latency_section(seen(STREAM | {"concurrency": 8})) or "")
    assert "to compare" not in (latency_section(seen(STREAM | {"concurrency": 1})) or "")
    [there] = controls("stream", {"ttft_ms": 30.0})
    here = there | {"ttft_ms": 41.0, "run_id": "r1"}
    shown = latency_section(seen(STREAM, visits=[here, there | {"gpu": "h200"}])) or ""
    assert "m bf16 on h100" in shown and "m bf16 on h200" in shown
    assert "m bf16 on" not in (latency_section(seen(STREAM, visits=[here])) or ""), "the head says it"


@pytest.mark.parametrize("peak_tok_s", [90.0, None])
def test_a_peak_that_no_run_was_long_enough_for_has_no_column(peak_tok_s: float | None) -> None:
    told = {"step": "depth", "condition": "tg128", "mode": "decode", "depth_tokens": 0, "tok_s_mean": 80.0}
    shown = depth_section(seen(row("ar", 80.0, peak_tok_s=peak_tok_s, **told))) or ""
    assert shown and (">peak</th>" in shown) is (peak_tok_s is not None)


THIN = "\N{NARROW NO-BREAK SPACE}"


def test_tokens_per_watt_are_the_quotient_of_what_stands_beside_them() -> None:
    told = row("ar", 4400.0, power_w=250.0, energy_j_per_token=0.0625, throttle_reasons=[])
    shown = memory_section(seen(told)) or ""
    cells = re.findall(r'<td class="n">([^<]*)', shown.partition("Energy of each load")[2])
    assert cells == [f"4{THIN}000", "250", "0.0625", "16.0"], "of the steady state it is 4400"


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0625, "0.0625"), (0.4567, "0.457"), (4.567, "4.57"), (45.67, "45.7"), (4567.8, f"4{THIN}568"), (None, NOTHING)],
)
def test_a_figure_has_three_digits_however_small_it_is(value: float | None, said: str) -> None:
    assert significant(value) == said


def parity(technique: str, equal: int, near: int | None = None, margin: float | None = None) -> Row:
    told = {"parity_n": 12, "parity_equal": equal, "parity_near_ties": near, "divergence_margin": margin}
    return row(technique, step="parity", condition=None, mode=None, first_divergence=40, **told)


@pytest.mark.parametrize(
    ("technique", "said"),
    [
        (parity("mtp", 7, 5, 0.06), "all 5 parted at a near tie (gap at most 0.06 nats): floating-point ties"),
        (parity("mtp", 11, 1, 0.0), "the one that parted did so at a near tie"),
        (parity("mtp", 7, 3, 3.1), "2 of 5 parted where the model was sure (gap 3.1 nats): not a tie, look at it"),
        (parity("mtp", 7), None),
    ],
)
def test_the_page_says_where_outputs_parted_if_their_gaps_are_known(technique: Row, said: str | None) -> None:
    page = parity_section(seen(parity("ar", 12), technique))
    if said is None:
        assert "mtp (7 of 12 equal, first difference at token 40)." in page
        assert "parted at" not in page and "was sure (" not in page
    else:
        assert page.count(said) == 2, "in the finding above the table, and in the table"


AXIS_LETTER = LETTER * 10 / 11  # by the sizes of both in the style sheet
MADE_UP = {"weights": "dummy", "acceptance_source": "replayed:mtp-gb10-26b-a4b"}


def cells(**columns: Any) -> list[Row]:
    """Of a long name, nearly alike in all their figures."""
    alike = {
        "n": 48, "score": 0.9, "score_lo": 0.8, "score_hi": 0.95, "acceptance_by_position": [0.8, 0.6, 0.5],
        "energy_j_per_token": 0.7, "speedup": 1.6, "speedup_lo": 1.5,
    }  # fmt: skip
    told = [alike | {"k": k, "speedup_hi": 1.7 - k / 20, "tokens_per_step": 3 + k / 10} for k in (2, 4, 8)]
    return [row("mtp-v2-runner", 400.0 + each["k"], **each | MADE_UP | columns) for each in told]


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
def test_names_and_what_an_axis_shows_are_whole(draw: Draw) -> None:
    for verdict in ("ok", "suspect"):
        found = names(draw(cells(verdict=verdict)))
        assert len(found) == 3
        assert all(left >= 0 and right <= WIDTH for left, right, _ in found), found
    shown = re.findall(r'<text x="([\d.]+)" y="[\d.]+" class="axis middle">([^<]*)', draw(cells()))
    half = [(float(x), AXIS_LETTER * len(words) / 2, words) for x, words in shown]
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


def test_a_suspect_point_of_a_line_is_pale_and_the_line_of_all_that_is_offered_is_there_for_a_single_rate() -> None:
    [sound, flagged, _] = cells()
    points = [Point(0.0, 31.0, sound), Point(8.0, 30.0, {**flagged, "verdict": "suspect"})]
    drawing = curves("t", "u", "depth, tokens", {0.0: 0.0, 8.0: 8.0}, [points])
    assert re.findall(r'<circle [^>]*class="([^"]*)"', drawing) == ["fill c8", "fill c8 flagged"]
    assert EXPLAINED in drawing and "‡ !<" in drawing
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
