"""The forecast: its rates against published ones, what it counts and what it refuses to leave out."""

import io

import pytest
from rich.console import Console

from configs.expand import expand
from configs.load import load_gpu, load_sweep
from configs.schema import Plan
from flows.forecast.decoding import at_once, decode_tok_s
from flows.forecast.estimates import CPU_START_S
from flows.forecast.forecast import Forecast, forecast
from flows.terminal.tables.forecast_table import render
from warehouse.clock import duration
from warehouse.price import dollars
from warehouse.published.read import load_write_up


def plan(name: str) -> Plan:
    return expand(load_sweep(name))


def shown(result: Forecast) -> str:
    console = Console(width=100, file=io.StringIO(), color_system=None)
    console.print(render(result))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_rate_is_within_a_fifth_of_what_its_source_measured() -> None:
    gpu = load_gpu("h100")
    cells = {p.cell.model.name: p.cell for p in plan("full").cells if p.cell.technique.method == "ar"}
    published = [
        row for row in load_write_up("mtp-diffusion-h100").rows if row.technique == "ar" and row.tok_s is not None
    ]
    assert len(published) == 2 * len(cells)
    for row in published:  # a mean context is half of the 512 output tokens longer than the prompt
        context = (row.context_tokens or 64) + 256
        assert decode_tok_s(cells[str(row.model)], gpu, context) == pytest.approx(row.tok_s, rel=0.2)


def test_longer_contexts_are_slower_and_more_requests_faster_up_to_what_the_engine_takes() -> None:
    gpu = load_gpu("h100")
    diffusion = next(p.cell for p in plan("full").cells if p.cell.serving.max_num_seqs == 4)
    assert decode_tok_s(diffusion, gpu, 8000) < decode_tok_s(diffusion, gpu, 100)
    assert decode_tok_s(diffusion, gpu, 100, 4) > decode_tok_s(diffusion, gpu, 100, 1)
    assert at_once(diffusion, gpu, 64, 600) == 4


def test_committed_steps_are_not_paid_again_and_a_finished_cell_costs_nothing() -> None:
    quick = plan("tiny-quick")
    first, second = (planned.cell.cell_key for planned in quick.cells)
    steps = [step.step for step in quick.cells[0].steps]
    result = forecast(quick, {first: steps, second: ["throughput"]})
    assert result.cells[0].total_s == 0
    assert {step.state for step in result.cells[0].steps} == {"measured"}
    assert [s.step for s in result.cells[1].steps if s.state == "measured"] == ["throughput"]
    assert result.cells[1].start_s == CPU_START_S
    assert result.cells[1].total_s < forecast(quick, {}).cells[1].total_s


def test_dollars_follow_the_price_and_are_unknown_where_it_is() -> None:
    full = plan("full")
    result = forecast(full, {})
    assert result.usd_spot == pytest.approx(result.gpu_h * 2.25)
    assert result.usd_on_demand == pytest.approx(result.gpu_h * 6.88)
    h200 = load_gpu("h200")
    cells = tuple(planned.model_copy(update={"gpu": h200}) for planned in full.cells)
    unpriced = forecast(full.model_copy(update={"gpu": h200, "cells": cells}), {})
    assert unpriced.usd_spot is None
    assert " ? " in shown(unpriced)


def test_cells_at_the_same_time_take_less_wall_time_but_the_same_gpu_hours() -> None:
    full = plan("full")
    four, one = forecast(full, {}), forecast(full.model_copy(update={"concurrency": 1}), {})
    assert four.gpu_h == pytest.approx(one.gpu_h)
    assert one.wall_h == pytest.approx(one.gpu_h)
    assert one.wall_h / 4 <= four.wall_h < one.wall_h / 2


def test_cells_of_this_machine_take_turns_whatever_concurrency_says() -> None:
    own = expand(load_sweep("own-gpu"), card="NVIDIA L40S")
    four = forecast(own.model_copy(update={"concurrency": 4}), {})
    assert four.wall_h == pytest.approx(forecast(own, {}).wall_h) == pytest.approx(four.gpu_h)
    assert "one after another" in shown(four) and "at a time;" not in shown(four)


@pytest.mark.parametrize("name", ["full", "demo", "nightly", "tiny-quick", "demo-diffusion"])
def test_the_table_fits_a_hundred_columns_without_cutting_anything(name: str) -> None:
    result = forecast(plan(name), {})
    text = shown(result)
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "…" not in text
    assert all(word in text for cell in result.cells for word in cell.label.split())
    assert all(sentence.split()[0] in text for sentence in result.assumptions)


def test_what_is_left_out_is_shown_with_its_reason() -> None:
    result = forecast(plan("full"), {})
    assert "Left out" in shown(result)
    assert "parity: diffusion has no greedy decoding" in shown(result)


def test_free_machines_show_no_prices() -> None:
    result = forecast(plan("demo"), {})
    assert result.is_free
    assert "$" not in shown(result)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "-"), (0.4, "-"), (42, "42s"), (59.6, "1m00s"), (425, "7m05s"), (12000, "3h20m")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_unknown_dollars_are_a_question_mark() -> None:
    assert (dollars(None), dollars(0), dollars(12.345)) == ("?", "$0.00", "$12.35")
